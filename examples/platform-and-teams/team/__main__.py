"""A team's half: it trains with what the platform offers, and says how far it goes along with it."""

import pulumi
import pulumi_trainer as trainer


def train(steps: int):
    import os
    import torch.distributed as dist

    dist.init_process_group("gloo")
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}, NCCL_DEBUG={os.environ.get('NCCL_DEBUG')}", flush=True)
    for step in range(steps):
        dist.barrier()
    dist.destroy_process_group()


config = pulumi.Config()
platform = pulumi.StackReference(config.require("platform"))
job = trainer.TrainJob(
    "sorter",
    runtime=platform.get_output("stable"),
    follow="any",  # whatever the platform calls stable, at the next run; "minor" and "patch" are more careful, "pin" stays
    trainer=trainer.CustomTrainer(
        func=train,
        func_args={"steps": 100},
        num_nodes=config.get_int("nodes") or 2,
        resources_per_node={"gpu": 8, "memory": "256Gi"},
    ),
    queue=platform.get_output(f"queue-{config.get('team') or 'sorters'}"),
    priority=config.get("priority"),
    max_execution=2 * 3600,  # Kueue stops the job then, so plans know until when others wait for it at most
    hardening="restricted",  # the namespace may enforce this profile of Pod Security
    run=config.get("run") or "1",
    wait_for="complete",
)
pulumi.export("phase", job.phase)
