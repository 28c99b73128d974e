"""Trains a classifier of handwritten digits with MLX: two ranks, each with half of the data, average their gradients."""

import pulumi
import pulumi_trainer as trainer


# Runs in every slot of every node, started by mpirun on the launcher.
def train(steps: int, batch: int = 256, lr: float = 3e-3):
    import json, mlx.core as mx, numpy, os
    from mlx import nn
    from mlx.optimizers import Adam
    from mlx.utils import tree_flatten
    from sklearn.datasets import load_digits

    ranks = mx.distributed.init(
        strict=True, backend="mpi"
    )  # without strict, each rank would train alone where MPI is missing
    rank, world, node = ranks.rank(), ranks.size(), os.environ.get("HOSTNAME") or os.uname().nodename
    everyone = mx.distributed.all_sum(mx.array(rank + 1)).item()
    print(f"rank {rank} of world size {world}: on {node}, ranks sum up to {everyone}", flush=True)

    # 1,797 images of 8x8 pixels: the same 360 test images for everyone, the rest dealt out among the ranks.
    images, digits = load_digits(return_X_y=True)
    order = numpy.random.default_rng(0).permutation(len(images))
    mine, test = order[360 : len(order) - (len(order) - 360) % world][rank::world], mx.array(order[:360])
    print(f"rank {rank}: samples {sum(1 << n for n in mine.tolist()):x}", flush=True)
    x, y = mx.array(images / 16, mx.float32), mx.array(digits)

    mx.random.seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = Adam(lr)
    step_of = nn.value_and_grad(model, lambda x, y: nn.losses.cross_entropy(model(x), y, reduction="mean"))
    for step in range(1, steps + 1):
        some = mx.array(numpy.random.default_rng(step).choice(mine, batch // world, replace=False))
        loss, gradients = step_of(x[some], y[some])
        optimizer.update(model, nn.average_gradients(gradients))
        mx.eval(model.parameters(), optimizer.state)
    if rank == 0:
        accuracy = (model(x[test]).argmax(1) == y[test]).mean().item()
        shown = {"loss": f"{loss.item():.4f}", "accuracy": f"{accuracy:.4f}", "everyone": str(everyone)}
        metrics = [{"name": name, "value": value} for name, value in shown.items()]
        print(json.dumps({"trainerStatus": {"progressPercentage": 100, "metrics": metrics}}), flush=True)
    total = sum(numpy.array(p, "f8").sum() for _, p in tree_flatten(model.parameters()))
    print(f"rank {rank}: parameters {total:.12f}", flush=True)


gpus = pulumi.Config().get_int("gpus") or 0
job = trainer.TrainJob(
    "mlx",
    runtime=trainer.ClusterTrainingRuntime("mlx-distributed", release="2.3.0"),
    trainer=trainer.CustomTrainer(
        func=train, func_args={"steps": 200}, num_nodes=2, resources_per_node={"gpu": gpus} if gpus else {"cpu": 1},
        packages_to_install=["mlx[cuda]" if gpus else "mlx[cpu]", "scikit-learn"],
    ),
    wait_for="complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
pulumi.export("metrics", job.progress.apply(lambda progress: progress and progress["metrics"]))
