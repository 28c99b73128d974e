"""Trains small models on the CPU, and prints what torch allocates for each, as JSON: the program of two jobs.

Weights, gradients and states of the optimizer are counted tensors; the peak is that of torch's profiler during a step.
"""

import itertools
import json
import os

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HIDDEN, LAYERS, VOCABULARY, LENGTH, RANK = 128, 4, 512, 64, 8


def made(kind):
    torch.manual_seed(0)
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(n_embd=HIDDEN, n_layer=LAYERS, n_head=4, vocab_size=VOCABULARY, n_positions=LENGTH)
        )
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=448, vocab_size=VOCABULARY, tie_word_embeddings=False,
        )
    )  # fmt: skip


def measured(kind, method, precision, batch, checkpointing):
    model = made(kind)
    if precision == "bf16":
        model.bfloat16()
    count = sum(each.numel() for each in model.parameters())
    if method == "lora":
        settings = LoraConfig(r=RANK, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, settings, autocast_adapter_dtype=False)
    if checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    tokens = torch.randint(VOCABULARY, (batch, LENGTH))

    def backward():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "mixed"):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()

    backward()
    optimizer.step()
    gradients = size(each.grad for each in trained)
    optimizer.zero_grad()
    states = size(each for state in optimizer.state.values() for each in state.values() if each.dim())
    weights = size(model.parameters())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        backward()
        optimizer.step()
    return {
        "model": kind, "method": method, "precision": precision, "batch_size": batch, "checkpointing": checkpointing,
        "parameters": count, "adapter": sum(each.numel() for each in trained) if method == "lora" else 0,
        "weights": weights, "gradients": gradients, "optimizer": states, "total": weights + states + peak(recorded),
    }  # fmt: skip


def size(tensors):
    return sum(each.numel() * each.element_size() for each in tensors)


def peak(recorded):
    """The most that is allocated at one time, beside what was there before."""
    events = [each for each in recorded.profiler.kineto_results.events() if each.name() == "[memory]"]
    events.sort(key=lambda each: each.start_ns())
    return max(itertools.accumulate(each.nbytes() for each in events))


def sharded(sharding):
    """What one of two ranks has of a model that they share, after a step."""
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64, bias=False) for _ in range(4)])
    count = sum(each.numel() for each in model.parameters())
    if sharding == "zero3":
        for layer in (*model, model):
            fully_shard(layer)
        optimizer = torch.optim.AdamW(model.parameters())
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    parameters = [*model.parameters()]
    states = getattr(optimizer, "optim", optimizer).state
    return {
        "sharding": sharding, "parameters": count, "weights": size(map(local, parameters)),
        "gradients": size(local(each.grad) for each in parameters),
        "optimizer": size(local(each) for state in states.values() for each in state.values() if each.dim()),
    }  # fmt: skip


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def report(row):
    print("row", json.dumps(row), flush=True)


torch.set_num_threads(1)
if os.environ["WORLD_SIZE"] == "2":
    dist.init_process_group("gloo")
    for each in ("zero1", "zero3"):
        report(sharded(each))
    dist.destroy_process_group()
else:
    for case in itertools.product(
        ("llama", "gpt2"), ("full", "lora"), ("fp32", "bf16", "mixed"), (2, 8), (False, True)
    ):
        report(measured(*case))
