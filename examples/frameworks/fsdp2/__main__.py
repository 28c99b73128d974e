"""Trains a small transformer with FSDP2 on two nodes: each holds half of the parameters, of the gradients, of Adam's state."""

import pulumi
import pulumi_trainer as trainer


# Runs on every node, started by torchrun. The model learns to sort the digits of a number of four.
def train(steps: int, batch: int = 128, width: int = 64):
    import hashlib, json, os, torch
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu", int(os.environ["LOCAL_RANK"]))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    class Sorter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.digit, self.place = torch.nn.Embedding(10, width), torch.nn.Embedding(4, width)
            blocks = [torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0, batch_first=True) for _ in range(2)]
            self.blocks, self.out = torch.nn.Sequential(*blocks), torch.nn.Linear(width, 10)

        def forward(self, digits):
            return self.out(self.blocks(self.digit(digits) + self.place.weight))

    torch.manual_seed(0)
    model = Sorter().to(device)
    for layer in (*model.blocks, model):
        fully_shard(layer)
    held, size = sum(p.to_local().numel() for p in model.parameters()), sum(p.numel() for p in model.parameters())
    print(f"rank {rank} of world size {world}: holds {held} of {size} parameters, on {device.type}", flush=True)

    # All 10,000 numbers: the same 1,000 to test for everyone, the rest dealt out among the ranks.
    order = torch.randperm(10_000, generator=torch.Generator().manual_seed(0))
    mine = order[1000:][rank::world]
    print(f"rank {rank}: samples {sum(1 << n for n in mine.tolist()):x}", flush=True)
    digits = (torch.arange(10_000)[:, None] // torch.tensor([1000, 100, 10, 1]) % 10).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    draw = torch.Generator().manual_seed(rank)
    for step in range(1, steps + 1):
        x = digits[mine[torch.randint(len(mine), (batch // world,), generator=draw)]]
        loss = torch.nn.functional.cross_entropy(model(x).transpose(1, 2), x.sort(1).values)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    test = digits[order[:1000]]
    accuracy = (model(test).argmax(2) == test.sort(1).values).all(1).double().mean()
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    digest = hashlib.sha256(str([p.tolist() for p in whole.values()]).encode()).hexdigest()
    if rank == 0:
        metrics = [{"name": "accuracy", "value": f"{accuracy:.4f}"}, {"name": "loss", "value": f"{loss:.4f}"}]
        print(json.dumps({"trainerStatus": {"progressPercentage": 100, "metrics": metrics}}), flush=True)
    print(f"rank {rank}: parameters {digest}", flush=True)
    dist.destroy_process_group()


gpus = pulumi.Config().get_int("gpus") or 0
job = trainer.TrainJob(
    "fsdp2",
    runtime=trainer.ClusterTrainingRuntime("torch-distributed", release="2.3.0"),
    trainer=trainer.CustomTrainer(
        func=train, func_args={"steps": 200}, num_nodes=2, packages_to_install=["torch>=2.6,<3", "numpy"],
        resources_per_node={"gpu": gpus} if gpus else {"cpu": 1},
    ),
    wait_for="complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
pulumi.export("metrics", job.progress.apply(lambda progress: progress and progress["metrics"]))
