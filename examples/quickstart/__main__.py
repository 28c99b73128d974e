"""Trains a classifier of handwritten digits on two nodes. `make up` runs it here, the same program runs on a cluster."""

import pulumi
import pulumi_trainer as trainer


# Runs on every node, started by torchrun. Its source travels as it is, so it imports what it needs itself.
def train(epochs: int, batch: int = 32, lr: float = 1e-3):
    import csv, gzip, json, os, time, torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    # 1,797 images of 8x8 pixels: the same 360 test images for everyone, the rest dealt out among the ranks.
    with gzip.open(os.environ["TRAINER_DATASET_DIR"] + "/digits.csv.gz", "rt") as file:
        rows = torch.tensor([[float(v) for v in row] for row in csv.reader(file)])
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    mine = order[360 : len(rows) - (len(rows) - 360) % world][rank::world]
    x, y, test = rows[mine, :64] / 16, rows[mine, 64].long(), rows[order[:360]]
    print(f"rank {rank} of world size {world}: {len(mine)} samples", flush=True)

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    checkpoint, done, begun = os.environ["TRAINER_OUTPUT_DIR"] + "/model.pt", 0, time.time()
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint, weights_only=True)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["epoch"]

    for epoch in range(done + 1, epochs + 1):
        for some in torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch)).split(batch):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x[some]), y[some])
            loss.backward()
            optimizer.step()
        if rank == 0:
            state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, checkpoint + ".part")
            os.replace(checkpoint + ".part", checkpoint)
            accuracy = (net(test[:, :64] / 16).argmax(1) == test[:, 64]).double().mean()
            shown = {"epoch": f"{epoch}/{epochs}", "loss": f"{loss:.4f}", "accuracy": f"{accuracy:.4f}"}
            eta = round((time.time() - begun) / (epoch - done) * (epochs - epoch))
            progress = {"progressPercentage": 100 * epoch // epochs, "estimatedRemainingSeconds": eta}
            metrics = [{"name": name, "value": value} for name, value in shown.items()]
            print(json.dumps({"trainerStatus": {**progress, "metrics": metrics}}), flush=True)
    print(f"rank {rank}: parameters {sum(p.double().sum().item() for p in net.parameters()):.12f}", flush=True)
    dist.destroy_process_group()


runtime = trainer.ClusterTrainingRuntime("torch-distributed", release="2.3.0")
digits = trainer.DatasetInitializer("digits", storage_uri=pulumi.Config().get("dataset") or "file://data/digits.csv.gz")
job = trainer.TrainJob(
    "classifier",
    runtime=runtime,
    initializer=trainer.Initializer(dataset=digits),
    trainer=trainer.CustomTrainer(
        func=train, func_args={"epochs": 40}, packages_to_install=["torch>=2.6,<3", "numpy"], num_nodes=2,
        resources_per_node={"cpu": 1, "memory": "1Gi"},
    ),
    output=True,
    wait_for="complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
pulumi.export("accuracy", job.progress.apply(lambda progress: progress and progress["metrics"].get("accuracy")))
pulumi.export("model", job.output_path.apply(lambda folder: folder and f"{folder}/model.pt"))
pulumi.export("seconds", job.seconds)
