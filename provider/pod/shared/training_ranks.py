"""Agrees with the other ranks of a training, through torch.distributed if it is initialised."""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import os
import sys
from typing import Any


def group() -> Any:
    """Return `torch.distributed` if it connects several ranks, else None. Nothing imports torch for this."""
    if "torch" not in sys.modules:
        return None
    import torch.distributed as dist

    return dist if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 else None


def reduce_values(values: list[int], operation: str) -> list[int]:
    """Return the maximum (MAX) or minimum (MIN) of each value over all ranks."""
    dist = group()
    if dist is None:
        return values
    import torch

    tensor = torch.tensor(values, dtype=torch.int64, device=device(dist))
    dist.all_reduce(tensor, getattr(dist.ReduceOp, operation))
    return [*map(int, tensor.tolist())]


def device(dist: Any) -> str:
    """Return the type of device whose tensors the default process group takes: cpu where it can be."""
    try:
        types = [pair.partition(":")[0] for pair in str(dist.get_backend_config()).split(",")]
    except (AttributeError, RuntimeError):  # releases before 2.1
        types = ["cuda" if dist.get_backend() == "nccl" else "cpu"]
    return "cpu" if "cpu" in types else types[0]


def from_rank_0(value: Any) -> Any:
    """Return what rank 0 gives, as JSON, on all ranks. torch's own broadcast of objects requires NumPy."""
    dist = group()
    if dist is None:
        return value
    import torch

    data = json.dumps(value).encode() if dist.get_rank() == 0 else b""
    (size,) = reduce_values([len(data)], "MAX")
    tensor = torch.tensor(list(data) or [0] * size, dtype=torch.uint8, device=device(dist))
    dist.broadcast(tensor, src=0)
    return json.loads(bytes(tensor.tolist()))


def own_rank() -> int:
    """Return the number of this process in the job, whatever has started it."""
    if (dist := group()) is not None:
        return int(dist.get_rank())
    names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JAX_PROCESS_ID", "DMLC_TASK_ID")
    given = next((os.environ[name] for name in names if os.environ.get(name)), None)
    if given is not None:
        return _number(given)
    return _number(os.environ.get("JOB_COMPLETION_INDEX", "")) + _number(os.environ.get("TRAINER_NODE_OFFSET", ""))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def is_first_of_node() -> bool:
    names = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    return next((os.environ[name] for name in names if os.environ.get(name)), "0") == "0"
