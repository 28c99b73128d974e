"""DDP on 4 nodes of 8 GPUs: 32 ranks that go on from the last checkpoint, whatever ends a rank, a Pod or a node."""

import pulumi
import pulumi_trainer as trainer


# Runs once a GPU, started by torchrun. A transformer that learns to sort: put your own model and data in its place.
def train(steps: int, batch: int, width: int, depth: int, every: int):
    import json, os, time, torch
    import torch.distributed as dist

    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of world size {world} on {device}", flush=True)

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        width, max(width // 64, 1), 4 * width, 0, batch_first=True, norm_first=True
    )
    blocks = torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
    place = torch.nn.Embedding(16, width)
    net = torch.nn.ModuleList([torch.nn.Embedding(64, width), place, blocks, torch.nn.Linear(width, 64)]).to(device)

    class Sorter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            word, place, blocks, out = self.net
            return out(blocks(word(x) + place.weight))

    model = torch.nn.parallel.DistributedDataParallel(Sorter(), device_ids=[device.index] if gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    checkpoint, done = os.environ["TRAINER_OUTPUT_DIR"] + "/checkpoint.pt", 0
    if os.path.exists(checkpoint):  # this run was interrupted, or is a longer one
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["step"]
        print(f"rank {rank} goes on after step {done}", flush=True)

    begun = time.time()
    for step in range(done + 1, steps + 1):
        draw = torch.Generator().manual_seed(step * world + rank)  # no rank sees what another one does
        x = torch.randint(64, (batch, 16), generator=draw).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=gpu):
            loss = torch.nn.functional.cross_entropy(model(x).transpose(1, 2), x.sort(1).values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0 or step == steps:
            if rank == 0:
                state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state, checkpoint + ".part")
                os.replace(checkpoint + ".part", checkpoint)
                speed = (step - done) * batch * world / (time.time() - begun)
                shown = {"step": f"{step}/{steps}", "loss": f"{loss:.4f}", "samples/s": f"{speed:.0f}"}
                eta = round((steps - step) * batch * world / speed)
                progress = {"progressPercentage": 100 * step // steps, "estimatedRemainingSeconds": eta}
                metrics = [{"name": name, "value": value} for name, value in shown.items()]
                print(json.dumps({"trainerStatus": {**progress, "metrics": metrics}}), flush=True)
    dist.destroy_process_group()


config = pulumi.Config()
gpus = config.get_int("gpus")
gpus = 8 if gpus is None else gpus

# What a platform team would write once: how PyTorch runs on this cluster's nodes.
runtime = trainer.ClusterTrainingRuntime(
    "torch-gpu",
    ml_policy=trainer.TorchPolicy(num_nodes=4),
    template=trainer.JobSetTemplate(
        failure_policy=trainer.FailurePolicy(max_restarts=3),  # all ranks begin anew together
        replicated_jobs=[
            trainer.ReplicatedJob(
                name="node",
                backoff_limit=0,
                pod_spec={
                    "restart_policy": "Never",
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                    "volumes": [{"name": "shm", "empty_dir": {"medium": "Memory"}}],
                    "containers": [
                        {
                            "name": "node",
                            "image": config.get("image") or "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime",
                            "volume_mounts": [{"name": "shm", "mount_path": "/dev/shm"}],
                        }
                    ],
                },
            )
        ],
    ),
)
job = trainer.TrainJob(
    "sorter",
    runtime=runtime,
    trainer=trainer.CustomTrainer(
        func=train,
        func_args={
            "steps": config.get_int("steps") or 20_000, "batch": config.get_int("batch") or 512, "every": 100,
            "width": config.get_int("width") or 512, "depth": 6,
        },
        num_nodes=config.get_int("nodes") or 4,
        resources_per_node={"gpu": gpus, "memory": config.get("memory") or "256Gi"} if gpus else {"cpu": 1, "memory": "2Gi"},
        env={"NCCL_DEBUG": "WARN"},
    ),
    queue=config.get("queue"),
    priority=config.get("priority"),
    output=trainer.OutputVolume(storage_class=config.get("storageClass")),
    resume=True,  # with more steps, a run that has succeeded goes on as well
    wait_for=config.get("waitFor") or "complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
pulumi.export("metrics", job.progress.apply(lambda progress: progress and progress["metrics"]))
pulumi.export("checkpoint", job.output_path.apply(lambda folder: folder and f"{folder}/checkpoint.pt"))
