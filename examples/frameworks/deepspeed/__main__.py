"""Trains a classifier of handwritten digits with DeepSpeed: ZeRO shares optimizer, gradients and parameters among four ranks."""

import pulumi
import pulumi_trainer as trainer


# Runs in every slot of every node, started by mpirun on the launcher.
def train(stage: int, steps: int, batch: int = 256, lr: float = 3e-3):
    import json, deepspeed, numpy, torch
    from sklearn.datasets import load_digits

    deepspeed.init_distributed()
    rank, world = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    config = {
        "train_micro_batch_size_per_gpu": batch // world,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
    }
    size, adam = sum(p.numel() for p in model.parameters()), torch.optim.Adam(model.parameters(), lr)
    engine, *_ = deepspeed.initialize(model=model, optimizer=adam, config=config)

    # 1,797 images of 8x8 pixels: the same 360 test images for everyone, the rest dealt out among the ranks.
    images, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(digits)
    order = numpy.random.default_rng(0).permutation(len(x))
    mine, test = order[360 : len(order) - (len(order) - 360) % world][rank::world], order[:360]
    print(f"rank {rank}: samples {sum(1 << n for n in mine.tolist()):x}", flush=True)
    for step in range(1, steps + 1):
        some = numpy.random.default_rng(step).choice(mine, batch // world, replace=False)
        loss = torch.nn.functional.cross_entropy(engine(x[some]), y[some])
        engine.backward(loss)
        engine.step()
    held = sum(state["exp_avg"].numel() for state in adam.state.values())
    print(f"rank {rank} of world size {world}: optimizes {held} of {size} parameters", flush=True)
    with torch.no_grad():
        accuracy = (engine(x[test]).argmax(1) == y[test]).double().mean()
    if rank == 0:
        shown = {"loss": f"{loss.item():.4f}", "accuracy": f"{accuracy:.4f}"}
        metrics = [{"name": name, "value": value} for name, value in shown.items()]
        print(json.dumps({"trainerStatus": {"progressPercentage": 100, "metrics": metrics}}), flush=True)
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        print(f"rank {rank}: parameters {sum(p.double().sum() for p in model.parameters()):.12f}", flush=True)


gpus = pulumi.Config().get_int("gpus") or 0
job = trainer.TrainJob(
    "deepspeed",
    runtime=trainer.ClusterTrainingRuntime("deepspeed-distributed", release="2.3.0"),
    trainer=trainer.CustomTrainer(
        func=train, func_args={"stage": pulumi.Config().get_int("stage") or 2, "steps": 200},
        num_nodes=2, num_proc_per_node=gpus or 2, resources_per_node={"gpu": gpus} if gpus else {"cpu": 1},
        packages_to_install=["deepspeed", "scikit-learn"], env=None if gpus else {"DS_ACCELERATOR": "cpu"},
    ),
    wait_for="complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
pulumi.export("metrics", job.progress.apply(lambda progress: progress and progress["metrics"]))
