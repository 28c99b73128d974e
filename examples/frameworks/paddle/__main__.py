"""Trains a classifier of handwritten digits with PaddlePaddle on two nodes, each of which sees half of the data."""

import pulumi
import pulumi_trainer as trainer


# Runs on every node, started by paddle.distributed.launch. The sums over all nodes go through gloo on CPUs, NCCL on GPUs.
def train(steps: int, batch: int = 64):
    import json, os, numpy, paddle, paddle.distributed as dist
    from sklearn.datasets import load_digits

    dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    everyone = paddle.to_tensor(rank + 1)
    dist.all_reduce(everyone)
    print(f"rank {rank} of world size {world}: ranks sum up to {int(everyone)}", flush=True)

    # 1,797 images of 8x8 pixels: the same 360 test images for everyone, the rest dealt out among the ranks.
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    order = numpy.random.default_rng(0).permutation(len(images))
    test, mine = order[:360], order[360 : len(order) - (len(order) - 360) % world][rank::world]
    print(f"rank {rank}: samples {sum(1 << n for n in mine.tolist()):x}", flush=True)

    paddle.seed(0)
    layers = paddle.nn.Linear(64, 64), paddle.nn.ReLU(), paddle.nn.Linear(64, 10)
    model = paddle.DataParallel(paddle.nn.Sequential(*layers))
    optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
    start, folder = 0, os.environ["TRAINER_CHECKPOINT_DIR"]
    if found := os.environ.get("TRAINER_RESUME_FROM"):  # the newest checkpoint, after a restart
        state = paddle.load(found)
        start = state["step"]
        model.set_state_dict(state["model"])
        optimizer.set_state_dict(state["optimizer"])
    for step in range(start + 1, steps + 1):
        some = numpy.random.default_rng(step).choice(mine, batch // world, replace=False)
        logits = model(paddle.to_tensor(images[some]))
        loss = paddle.nn.functional.cross_entropy(logits, paddle.to_tensor(digits[some]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if rank == 0 and step % 50 == 0:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            paddle.save(state, f"{folder}/.part")
            os.replace(f"{folder}/.part", f"{folder}/step-{step}.pdparams")
    if rank == 0:
        accuracy = (model(paddle.to_tensor(images[test])).numpy().argmax(1) == digits[test]).mean()
        shown = {"loss": f"{float(loss):.4f}", "accuracy": f"{accuracy:.4f}", "everyone": str(int(everyone))}
        metrics = [{"name": name, "value": value} for name, value in shown.items()]
        print(json.dumps({"trainerStatus": {"progressPercentage": 100, "metrics": metrics}}), flush=True)
    total = sum(float(p.astype("float64").sum()) for p in model.parameters())
    print(f"rank {rank}: parameters {total:.12f}", flush=True)


gpus = pulumi.Config().get_int("gpus") or 0
job = trainer.TrainJob(
    "paddle",
    runtime=trainer.ClusterTrainingRuntime("paddle", release="3.0.0"),
    trainer=trainer.CustomTrainer(
        func=train, func_args={"steps": 300}, num_nodes=2, resources_per_node={"gpu": gpus} if gpus else {"cpu": 1},
        packages_to_install=["paddlepaddle-gpu" if gpus else "paddlepaddle", "scikit-learn"],
    ),
    checkpoint=trainer.CheckpointPolicy(),
    wait_for="complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
pulumi.export("metrics", job.progress.apply(lambda progress: progress and progress["metrics"]))
