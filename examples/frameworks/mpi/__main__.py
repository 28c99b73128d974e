"""Trains a classifier of handwritten digits with MPI: mpirun starts the same program on two nodes, which average gradients."""

import pulumi
import pulumi_trainer as trainer


# Runs in every slot of every node, started by mpirun on the launcher.
def train(epochs: int, batch: int = 64, lr: float = 0.5):
    import json, numpy, os
    from mpi4py import MPI
    from sklearn.datasets import load_digits

    comm = MPI.COMM_WORLD
    rank, world = comm.Get_rank(), comm.Get_size()
    everyone, node = comm.allreduce(rank + 1), os.environ.get("HOSTNAME") or os.uname().nodename
    print(f"rank {rank} of world size {world}: on {node}, ranks sum up to {everyone}", flush=True)

    # 1,797 images of 8x8 pixels: the same 360 test images for everyone, the rest dealt out among the ranks.
    images, digits = load_digits(return_X_y=True)
    images, classes = images / 16, numpy.eye(10)[digits]
    order = numpy.random.default_rng(0).permutation(len(images))
    mine, test = order[360 : len(order) - (len(order) - 360) % world][rank::world], order[:360]
    print(f"rank {rank}: samples {sum(1 << n for n in mine.tolist()):x}", flush=True)

    # Each rank begins elsewhere; the first one's parameters become everybody's.
    weights = comm.bcast(numpy.random.default_rng(rank).normal(0, 0.1, (64, 10)))
    for epoch in range(1, epochs + 1):
        shuffled = numpy.random.default_rng(epoch).permutation(mine)
        for start in range(0, len(shuffled), batch):
            some = shuffled[start : start + batch]
            scores = numpy.exp(images[some] @ weights)
            gradient = images[some].T @ (scores / scores.sum(1, keepdims=True) - classes[some]) / len(some)
            weights -= lr * comm.allreduce(gradient) / world
    if rank == 0:
        accuracy = ((images[test] @ weights).argmax(1) == digits[test]).mean()
        shown = {"accuracy": f"{accuracy:.4f}", "everyone": str(everyone)}
        metrics = [{"name": name, "value": value} for name, value in shown.items()]
        print(json.dumps({"trainerStatus": {"progressPercentage": 100, "metrics": metrics}}), flush=True)
    print(f"rank {rank}: parameters {weights.sum():.12f}", flush=True)


# As deepspeed-distributed of the catalogue: mpirun on the launcher starts processes on the nodes, where sshd listens.
def pod(**more):
    image = "ghcr.io/kubeflow/trainer/deepspeed-runtime"
    container = {"name": "node", "image": image, "securityContext": {"runAsUser": 1000}, **more}
    return {"securityContext": {"fsGroup": 1000}, "containers": [container]}


sshd = pod(command=["/usr/sbin/sshd"], args=["-De", "-f", "/home/mpiuser/.sshd_config"])
launch_after = [trainer.DependsOn(name="node", status="Ready")]
runtime = trainer.ClusterTrainingRuntime(
    "mpi",
    ml_policy=trainer.MPIPolicy(ssh_auth_mount_path="/home/mpiuser/.ssh", run_launcher_as_node=True),
    template=trainer.JobSetTemplate(
        network=trainer.Network(publish_not_ready_addresses=True),
        success_policy=trainer.SuccessPolicy(operator="All", target_replicated_jobs=["launcher"]),
        replicated_jobs=[
            trainer.ReplicatedJob(name="node", pod_spec=sshd),
            trainer.ReplicatedJob(name="launcher", ancestor="trainer", depends_on=launch_after, pod_spec=pod()),
        ],
    ),
)
job = trainer.TrainJob(
    "mpi",
    runtime=runtime,
    trainer=trainer.CustomTrainer(
        func=train, func_args={"epochs": 30}, num_nodes=2, packages_to_install=["mpi4py", "scikit-learn"]
    ),
    wait_for="complete",
)
pulumi.export("phase", job.phase)
pulumi.export("metrics", job.progress.apply(lambda progress: progress and progress["metrics"]))
