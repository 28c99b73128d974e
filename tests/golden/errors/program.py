"""A program with a mistake in each line; `program.txt` has what a preview says."""

import pulumi_trainer as trainer
from pulumi_trainer import CustomTrainer, Kubernetes, TrainJob

command = CustomTrainer(command=["true"])
TrainJob("a01", runtime="plain", trainer=command, name="My_Job")
TrainJob("a02", runtime="plain", trainer=command, target=Kubernetes(namespace="Team_A"))
TrainJob("a03", runtime="plain", trainer=command, queue="Team Queue")
TrainJob("a04", trainer=command, runtime="torch-distributd")
TrainJob("a05", trainer=command, runtime="torch-distributed@9.0")
TrainJob("a06", runtime="plain", trainer=command, follow="mayor")
TrainJob("a07", runtime="plain", trainer=command, labels={"x y": "1"})
TrainJob("a08", runtime="plain", trainer=command, annotations={"a": 1})
TrainJob("a09", trainer=command, max_runtime="soon")
TrainJob("a10", runtime="plain", trainer=command, keep_runs=-1)
TrainJob("a11", runtime="plain", trainer=command, priority=True)
TrainJob("a12", runtime="plain", trainer=command, resume="abc")
TrainJob("a13", runtime="plain", trainer=command, fork="x")
TrainJob("a14", runtime="plain", trainer=command, wait_for="ready")
TrainJob("a15", runtime="plain", trainer=command, checkpoint="yes")
TrainJob("b02", runtime="torch-distributed", trainer=CustomTrainer(command=["true"], num_nodes=1.5))
TrainJob("b03", runtime="torch-distributed", trainer=CustomTrainer(command=["true"], num_proc_per_node="many"))
TrainJob(
    "b04",
    runtime="torch-distributed",
    trainer=CustomTrainer(command=["true"], resources_per_node={"nvidia.com/gpu": 1.5}),
)
TrainJob("b05", runtime="torch-distributed", trainer=CustomTrainer(command=["true"], resources_per_node={"gpu": "two"}))
TrainJob("b07", runtime="torch-distributed", trainer=CustomTrainer(command=["true"], env={"": "a"}))
TrainJob("b08", runtime="torch-distributed", trainer=CustomTrainer(command=["true"], env={"A": 1}))
TrainJob(
    "b09",
    runtime="torch-distributed",
    trainer=CustomTrainer(command=["true"], env={"HF_TOKEN": "hf_0123456789abcdefghijklmno"}),
)
TrainJob("b11", runtime="torch-distributed", trainer=CustomTrainer(command="python train.py"))
TrainJob("b12", runtime="torch-distributed", trainer=CustomTrainer(command=["true"], args=[1, 2]))
TrainJob("b13", runtime="torch-distributed", trainer=CustomTrainer(script="none.py"))
TrainJob("b14", runtime="torch-distributed", trainer=CustomTrainer(command=["true"], func=print))
TrainJob("b15", runtime="torch-distributed", trainer=CustomTrainer(func=print))
TrainJob("b16", runtime="torch-distributed", trainer=CustomTrainer(command=["true"], packages=["torch=2.0"]))
TrainJob("b17", runtime="torch-distributed", trainer=CustomTrainer())
TrainJob("b18", runtime="torch-distributed", trainer=CustomTrainer(command=["true"], func_args={"a": 1}))
TrainJob("b19", runtime="torch-distributed", trainer=CustomTrainer(command=["true"], gpus=4))
TrainJob("b20", runtime="torch-distributed", trainer=CustomTrainer(command=["true"], volumes=["data"]))
TrainJob("c01", runtime="plain", trainer=command, dataset=trainer.DatasetInitializer("d1", storage_uri="data/train"))
TrainJob("c02", runtime="plain", trainer=command, initializer=trainer.HuggingFaceModelInitializer(storage_uri="hf://a"))
TrainJob("c04", runtime="plain", trainer={"image": "x"})
trainer.GpuQueues("d01", gpus={"h100": {"x y": "1"}}, teams={"a": 1})
trainer.GpuQueues("d02", gpus={"h100": {"gpu": "h100"}}, teams={"Team_A": {"h100": -1}})
trainer.LocalQueue("d03", cluster_queue="A_B", namespace="team")
trainer.ClusterTrainingRuntime(
    "d05", ml_policy=trainer.TorchPolicy(num_nodes=2), template={"spec": {"replicatedJobs": [{"name": "node"}]}}
)
trainer.RuntimeChannel("d06", release="torch-distributed")
trainer.CoschedulingPodGroup("d07", min_member=0)
