"""Trains a forest on two nodes without a framework: each grows its share of the trees on its share of the data; they vote."""

import pulumi
import pulumi_trainer as trainer


# Runs on every node. Nothing connects them but their number and the output folder.
def train(nodes: int, trees: int = 50):
    import json, os, time, numpy
    from pathlib import Path
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    index, output = int(os.environ["JOB_COMPLETION_INDEX"]), Path(os.environ["TRAINER_OUTPUT_DIR"])

    # 1,797 images of 8x8 pixels: the same 360 test images for everyone, the rest dealt out among the nodes.
    images, digits = load_digits(return_X_y=True)
    order = numpy.random.default_rng(0).permutation(len(images))
    mine, test = order[360:][index::nodes], order[:360]
    print(f"node {index} of {nodes}: samples {sum(1 << n for n in mine.tolist()):x}", flush=True)
    forest = RandomForestClassifier(trees, random_state=index).fit(images[mine], digits[mine])
    print(f"node {index}: alone it has accuracy {forest.score(images[test], digits[test]):.4f}", flush=True)

    votes = [output / f"votes-{i}.npy" for i in range(nodes)]
    with open(output / f".votes-{index}.npy", "wb") as file:
        numpy.save(file, forest.predict_proba(images[test]))
    os.replace(file.name, votes[index])
    if index == 0:
        while not all(file.exists() for file in votes):
            time.sleep(0.1)
        accuracy = (sum(numpy.load(file) for file in votes).argmax(1) == digits[test]).mean()
        shown = {"accuracy": f"{accuracy:.4f}", "voters": str(len(votes))}
        metrics = [{"name": name, "value": value} for name, value in shown.items()]
        print(json.dumps({"trainerStatus": {"progressPercentage": 100, "metrics": metrics}}), flush=True)


runtime = trainer.ClusterTrainingRuntime(
    "plain",
    ml_policy=trainer.PlainPolicy(),
    template=trainer.JobSetTemplate(
        replicated_jobs=[
            trainer.ReplicatedJob(name="node", pod_spec={"containers": [{"name": "node", "image": "python:3.12"}]})
        ]
    ),
)
job = trainer.TrainJob(
    "plain",
    runtime=runtime,
    trainer=trainer.CustomTrainer(
        func=train, func_args={"nodes": 2}, num_nodes=2, packages_to_install=["scikit-learn"],
        resources_per_node={"cpu": 1},
    ),
    output=True, resume=False, wait_for="complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
pulumi.export("metrics", job.progress.apply(lambda progress: progress and progress["metrics"]))
