"""Trains a forest of boosted trees with XGBoost on two workers, each of which sees half of the data."""

import pulumi
import pulumi_trainer as trainer


# Runs on every node. The first one is also the tracker, at which all of them meet.
def train(rounds: int, device: str = "cpu"):
    import hashlib, json, os, numpy, xgboost
    from sklearn.datasets import load_digits
    from xgboost.tracker import RabitTracker

    task, workers = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
    host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
    if task == 0:
        tracker = RabitTracker(n_workers=workers, host_ip="0.0.0.0", port=port, sortby="task")
        tracker.start()
    meeting = {"dmlc_tracker_uri": host, "dmlc_tracker_port": port, "dmlc_task_id": str(task), "dmlc_retry": 60}
    with xgboost.collective.CommunicatorContext(dmlc_communicator="rabit", **meeting):
        rank, world = xgboost.collective.get_rank(), xgboost.collective.get_world_size()
        everyone = int(xgboost.collective.allreduce(numpy.array([rank + 1.0]), xgboost.collective.Op.SUM)[0])
        print(f"rank {rank} of world size {world}: ranks sum up to {everyone}", flush=True)

        # 1,797 images of 8x8 pixels: the same 360 test images for everyone, the rest dealt out among the ranks.
        images, digits = load_digits(return_X_y=True)
        order = numpy.random.default_rng(0).permutation(len(images))
        mine, test = order[360:][rank::world], xgboost.DMatrix(images[order[:360]], digits[order[:360]])
        print(f"rank {rank}: samples {sum(1 << n for n in mine.tolist()):x}", flush=True)

        settings = {"objective": "multi:softmax", "num_class": 10, "max_depth": 4, "eta": 0.3, "device": device}
        part = xgboost.DMatrix(images[mine], digits[mine])
        booster = xgboost.train({**settings, "nthread": 1}, part, num_boost_round=rounds)
        model = hashlib.sha256(bytes(booster.save_raw("json"))).hexdigest()
        if rank == 0:
            accuracy = (booster.predict(test) == digits[order[:360]]).mean()
            shown = {"accuracy": f"{accuracy:.4f}", "everyone": str(everyone)}
            metrics = [{"name": name, "value": value} for name, value in shown.items()]
            print(json.dumps({"trainerStatus": {"progressPercentage": 100, "metrics": metrics}}), flush=True)
        print(f"rank {rank}: model {model}", flush=True)
    if task == 0:
        tracker.wait_for()


gpus = pulumi.Config().get_int("gpus") or 0
job = trainer.TrainJob(
    "xgboost",
    runtime=trainer.ClusterTrainingRuntime("xgboost-distributed", release="2.3.0"),
    trainer=trainer.CustomTrainer(
        func=train, func_args={"rounds": 40, "device": "cuda" if gpus else "cpu"}, num_nodes=2,
        resources_per_node={"gpu": gpus} if gpus else {"cpu": 1},
        packages_to_install=["xgboost>=3" if gpus else "xgboost-cpu>=3", "scikit-learn"],
    ),
    wait_for="complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
pulumi.export("metrics", job.progress.apply(lambda progress: progress and progress["metrics"]))
