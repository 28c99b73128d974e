"""The platform team's half: which releases of which runtimes teams train with, and whose the GPUs are."""

import pulumi
import pulumi_trainer as trainer

config = pulumi.Config()
catalog = trainer.RuntimeCatalog.from_dir("runtimes")
stable = trainer.RuntimeChannel("stable", release="torch-team@1.0.0", catalog=catalog)

teams = {
    "sorters": trainer.Team(gpus=32, namespace=config.get("sorters") or "sorters"),
    "others": trainer.Team(gpus=32, namespace=config.get("others") or "others"),
}
gpus = trainer.GpuQueues("gpus", teams=teams)

pulumi.export("stable", stable.offer)
for team, queue in gpus.queues.items():
    pulumi.export(f"queue-{team}", queue.name)
pulumi.export("quotas", gpus.table)
