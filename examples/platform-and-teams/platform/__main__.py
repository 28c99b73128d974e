"""The platform team's half: which releases of which runtimes teams train with, and whose the GPUs are."""

import pulumi
import pulumi_trainer as trainer

config = pulumi.Config()
catalog = trainer.RuntimeCatalog.from_dir("runtimes")
stable = trainer.RuntimeChannel("stable", release="torch-team@1.0.0", catalog=catalog)

teams = {
    "sorters": trainer.Team(gpus=32, namespace=config.get("sorters") or "sorters", budget="20000 USD"),
    "others": trainer.Team(gpus=32, namespace=config.get("others") or "others", budget="5000 GPU-hours"),
}
h100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}  # the label of their nodes
gpus = trainer.GpuQueues("gpus", teams=teams, gpus={"h100": h100}, prices={"h100": 3.20})

pulumi.export("stable", stable.offer)
for team, queue in gpus.queues.items():
    pulumi.export(f"queue-{team}", queue.name)
pulumi.export("quotas", gpus.table)
