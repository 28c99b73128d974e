"""Trains a small GPT on bytes: `torchrun train.py config/small.py --steps=60`."""

import json
import os
import sys

import torch
import torch.distributed as dist
from data.rhymes.prepare import prepare
from gpt.model import GPT
from settings import replaced

values = replaced(
    {"layers": 4, "heads": 4, "width": 64, "length": 32, "batch": 16, "steps": 200, "learning_rate": 1e-3, "seed": 1},
    sys.argv[1:],
)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    tokens = torch.frombuffer(bytearray(prepare().read_bytes()), dtype=torch.uint8).long()
    length, batch = values["length"], values["batch"]

    torch.manual_seed(values["seed"])
    net = GPT(values["layers"], values["heads"], values["width"], length)
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), values["learning_rate"])
    draw = torch.Generator().manual_seed(rank)
    for step in range(1, values["steps"] + 1):
        starts = torch.randint(len(tokens) - length - 1, (batch,), generator=draw)
        rows = torch.stack([tokens[start : start + length + 1] for start in starts])
        loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            metrics = [{"name": "loss", "value": f"{loss:.4f}"}]
            status = {"progressPercentage": 100 * step // values["steps"], "metrics": metrics}
            print(json.dumps({"trainerStatus": status}), flush=True)
    print(f"rank {rank} of {world} in {os.path.basename(os.getcwd())}: lr {values['learning_rate']}", flush=True)
    print(f"rank {rank}: parameters {sum(p.double().sum().item() for p in net.parameters()):.9f}", flush=True)
    if rank == 0 and (folder := os.environ.get("TRAINER_OUTPUT_DIR")):
        torch.save(net.state_dict(), os.path.join(folder, "model.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
