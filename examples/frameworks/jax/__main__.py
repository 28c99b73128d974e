"""Trains a classifier of handwritten digits with JAX on two nodes: one program on all their devices."""

import pulumi
import pulumi_trainer as trainer


# Runs on every node. XLA puts the sums over all nodes where the batch is sharded and the parameters are not.
def train(steps: int, batch: int = 256, lr: float = 0.5):
    import json, os, jax, jax.numpy as jnp, numpy as np
    from jax.experimental.multihost_utils import process_allgather
    from jax.sharding import NamedSharding, PartitionSpec
    from sklearn.datasets import load_digits

    count, index = int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"])
    jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], count, index)
    rank, world = jax.process_index(), jax.process_count()
    everyone = int(process_allgather(jnp.array(rank + 1)).sum())
    devices = f"{jax.device_count()} devices ({jax.default_backend()})"
    print(f"rank {rank} of world size {world}: {devices}, ranks sum up to {everyone}", flush=True)

    # 1,797 images of 8x8 pixels: the same 360 test images for everyone, the rest dealt out among the ranks.
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    mine = order[360 : len(order) - (len(order) - 360) % world][rank::world]
    print(f"rank {rank}: samples {sum(1 << n for n in mine.tolist()):x}", flush=True)

    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    sharded, same = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    draw = np.random.default_rng(0)
    sizes = [(64, 128), (128, 10)]
    parameters = [(draw.normal(0, n**-0.5, (n, m)).astype("f4"), np.zeros(m, "f4")) for n, m in sizes]
    parameters = jax.device_put(parameters, same)

    def logits(parameters, x):
        (w1, b1), (w2, b2) = parameters
        return jax.nn.relu(x / 16 @ w1 + b1) @ w2 + b2

    def loss(parameters, x, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits(parameters, x)), y[:, None], 1).mean()

    @jax.jit
    def step(parameters, x, y):
        value, gradients = jax.value_and_grad(loss)(parameters, x, y)
        return jax.tree.map(lambda p, g: p - lr * g, parameters, gradients), value

    for done in range(1, steps + 1):
        some = np.random.default_rng(done).choice(mine, batch // world, replace=False)
        x, y = (jax.make_array_from_process_local_data(sharded, a[some]) for a in (images.astype("f4"), digits))
        parameters, value = step(parameters, x, y)
    final = jax.tree.map(np.asarray, parameters)
    if rank == 0:
        accuracy = (np.asarray(logits(final, images[order[:360]])).argmax(1) == digits[order[:360]]).mean()
        shown = {"loss": f"{float(value):.4f}", "accuracy": f"{accuracy:.4f}", "everyone": str(everyone)}
        metrics = [{"name": name, "value": value} for name, value in shown.items()]
        print(json.dumps({"trainerStatus": {"progressPercentage": 100, "metrics": metrics}}), flush=True)
    print(f"rank {rank}: parameters {sum(a.astype('f8').sum() for a in jax.tree.leaves(final)):.12f}", flush=True)


gpus = pulumi.Config().get_int("gpus") or 0
job = trainer.TrainJob(
    "jax",
    runtime=trainer.ClusterTrainingRuntime("jax-distributed", release="2.3.0"),
    trainer=trainer.CustomTrainer(
        func=train, func_args={"steps": 300}, num_nodes=2, resources_per_node={"gpu": gpus} if gpus else {"cpu": 1},
        packages_to_install=["jax[cuda13]" if gpus else "jax", "scikit-learn"],
    ),
    wait_for="complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
pulumi.export("metrics", job.progress.apply(lambda progress: progress and progress["metrics"]))
