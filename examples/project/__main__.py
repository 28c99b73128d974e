"""Trains the repository in `nano` on two nodes, as it is."""

import pulumi
import pulumi_trainer as trainer

runtime = trainer.ClusterTrainingRuntime("torch-distributed", release="2.3.0")
job = trainer.TrainJob(
    "nano",
    runtime=runtime,
    trainer=trainer.CustomTrainer(
        source="nano",
        script="train.py",
        args=["config/small.py", "--steps=60"],
        requirements="requirements.txt",
        num_nodes=2,
        resources_per_node={"cpu": 1, "memory": "1Gi"},
    ),
    output=True,
    wait_for="complete",
)
pulumi.export("phase", job.phase)
pulumi.export("loss", job.progress.apply(lambda progress: progress and progress["metrics"].get("loss")))
