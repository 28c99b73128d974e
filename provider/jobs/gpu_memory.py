"""What a training needs of the memory of each of its GPUs: an estimate from the size of its model, by published formulas.

Sources: bytes of weights, gradients and optimizer, and how ZeRO divides them: https://arxiv.org/abs/1910.02054; activations:
https://arxiv.org/abs/2205.05198; adapters: https://arxiv.org/abs/2106.09685; 4 bits: https://arxiv.org/abs/2305.14314.
docs/guides/gpu-memory.md explains the formulas, and compares them with what models allocate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from pulumi_trainer.provider.kubernetes.values.wording import plural

Method = Literal["full", "lora", "qlora"]
Precision = Literal["fp32", "bf16", "mixed"]
Optimizer = Literal["adamw", "adamw_8bit", "sgd"]
Sharding = Literal["ddp", "zero1", "zero2", "zero3"]

GIB = 2**30
ADAPTER_RANK = 16
"""Rank of the LoRA that a hint proposes."""
_MOST_GPUS = 1024
_COUNTED = 0.8
"""Share of a GPU's memory that an estimate may fill if it does not count everything, such as activations."""
_COUNT = re.compile(r"(?P<number>\d{1,4}(?:\.\d{1,3})?)(?P<unit>[bBmM])")
_NAMED = re.compile(rf"(?<![A-Za-z0-9.]){_COUNT.pattern}(?![A-Za-z0-9])")
_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9._])(\d{1,2})_(\d[bBmM])(?![A-Za-z0-9])")
"""A decimal point as in "stablelm-2-1_6b"; in "llama_2_7b" and "qwen2_5_7b" the underscore only separates."""
_EXPERTS = re.compile(r"(?<![A-Za-z0-9])\d{1,3}E(?![A-Za-z0-9])", re.IGNORECASE)
_QUANTIZED = re.compile(r"[48]-?bit|int[48]|fp8|nf4|mxfp4|gptq|awq|gguf|quant|gpt-oss", re.IGNORECASE)
"""Names of models whose files have fewer bits than 16."""
_UNITS = {"b": 10**9, "m": 10**6}


@dataclass(frozen=True)
class Range:
    """A number between two bounds."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, low: float, high: float | None = None) -> Range:
        """Return the product with a number, or with one between two bounds."""
        return Range(self.low * low, self.high * (low if high is None else high))

    @classmethod
    def around(cls, ranges: Iterable[Range]) -> Range:
        """Return the smallest range that contains all of some ranges."""
        found = [*ranges]
        return cls(min(each.low for each in found), max(each.high for each in found))

    def __str__(self) -> str:
        low, high = f"{self.low / GIB:.1f}", f"{self.high / GIB:.1f}"
        return low if low == high else f"{low} to {high}"


def read_parameters(text: str) -> int | None:
    """Return the number of parameters that a text such as "8B", "1.5b" or "350M" states; None for another text."""
    found = _COUNT.fullmatch(text)
    return None if found is None else round(float(found["number"]) * _UNITS[found["unit"].lower()])


def parameters_in_name(name: str) -> Range | None:
    """Return the parameters that the name of a model states, such as "Qwen/Qwen3-8B"; None if it states none.

    Names round: Llama-2-7b has 6.74 billions, gemma-7b 8.54, Llama-3.2-1B 1.24, opt-350m 331 millions. Of "8x7B" the sum is not
    known, nor of "17B-16E" (16 experts); "A3B" are the active ones of 30B, and "1M" beside "7B" is a length.
    """
    if _QUANTIZED.search(name) or _EXPERTS.search(name):
        return None
    found: dict[str, set[float]] = {"b": set(), "m": set()}
    for each in _NAMED.finditer(_UNDERSCORE.sub(r"\1.\2", name)):
        found[each["unit"].lower()].add(float(each["number"]))
    unit = "b" if found["b"] else "m"
    if len(found[unit]) != 1:
        return None
    number = found[unit].pop() * _UNITS[unit]
    return Range(number * 0.9, number * 1.3)


@dataclass(frozen=True)
class Training:
    """What decides about the memory of a GPU. None: not known.

    Args:
        source: What states the number of parameters, such as `parameters="8B"`.
        sequence_length: Tokens of a sample.
        pads: Whether samples may be shorter than that, or their activations be kept elsewhere.
        fixed: What cannot be changed: `sharding`, `qlora`.
        uncounted: Further models that the training loads, in words.
    """

    parameters: Range
    source: str
    method: Method = "full"
    lora_rank: int | None = None
    precision: Precision | None = None
    optimizer: Optimizer | None = "adamw"
    sharding: Sharding | None = None
    gpus: int = 1
    batch_size: int | None = None
    sequence_length: int | None = None
    pads: bool = False
    hidden_size: int | None = None
    num_layers: int | None = None
    vocabulary: int | None = None
    checkpointing: bool | None = None
    fixed: frozenset[str] = frozenset()
    uncounted: str = ""


Parts = Mapping[str, Range]
WEIGHTS, GRADIENTS, STATES, ACTIVATIONS = "weights", "gradients", "optimizer", "activations"


@dataclass(frozen=True)
class Estimate:
    """The bytes of each GPU.

    Args:
        parts: Bytes by part; a part that cannot be estimated is left out.
        total: What is allocated at the peak: gradients are freed before the activations of the next batch are made.
        missing: What is not counted -> the unknown numbers that it needs.
    """

    parts: Parts
    total: Range
    missing: Mapping[str, Sequence[str]]

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {amount}" for name, amount in self.parts.items() if amount.high)
        text = f"{self.total} GiB ({parts}"
        if self.missing:
            text += f"; not counted: {', '.join(self.missing)}"
        return f"{text})"

    def fits(self, memory: float) -> bool:
        """Return whether a GPU has the memory, with a margin if something is not counted."""
        if self.missing:
            memory *= _COUNTED
        return self.total.high <= memory

    @property
    def without(self) -> str:
        """Words that follow what fits: what is not counted."""
        if not self.missing:
            return ""
        return f" without {', '.join(self.missing)}"


@dataclass(frozen=True)
class _Bytes:
    """Bytes of a parameter that is trained. master: Of a copy in fp32 that the optimizer keeps. state: Of each state of AdamW."""

    weight: float
    gradient: float
    master: float
    state: float


_FP32, _BF16 = _Bytes(4, 4, 0, 4), _Bytes(2, 2, 0, 2)
_AUTOCAST = (_FP32, _Bytes(6, 4, 0, 4))
"""torch.autocast computes with copies of the weights in 16 bit, and keeps them during a step."""
_ZERO = (_Bytes(2, 2, 4, 4), _Bytes(2, 4, 4, 4), _FP32)
"""DeepSpeed's mixed precision keeps weights in 16 bit and their copy in the optimizer; FSDP shards weights in fp32."""
_FROZEN: Mapping[Precision, float] = {"fp32": 4, "mixed": 4, "bf16": 2}
_SIZES: Mapping[Precision, Range] = {"fp32": Range(4, 4), "mixed": Range(2, 4), "bf16": Range(2, 2)}
"""Bytes of a number that a layer keeps for its backward pass."""
_QUANTIZED_BYTES = (4.127 / 8, 1.0)
"""Of a weight in NF4 with double quantization; and if 30% of the parameters are embeddings, which stay in 16 bit."""
_SHARDED: Mapping[Sharding, tuple[bool, bool, bool]] = {
    "ddp": (False, False, False),
    "zero1": (False, False, True),
    "zero2": (False, True, True),
    "zero3": (True, True, True),
}
"""Whether weights, gradients and states are divided among the GPUs."""
_KEPT = {"full": 12, "lora": 8, "qlora": 8}
"""Numbers that a layer keeps for its backward pass, at least, for each token and unit of `hidden_size`: queries, keys, values and
the inputs of its matrices. The frozen matrices of LoRA need no inputs. The paper has 17 (34 bytes)."""
_MOST_KEPT = 48
"""With an MLP with a gate, norms in fp32 and activation functions of several operations; with fused attention."""
_LOGITS = 3
"""Numbers in fp32 for each logit, besides itself: a copy, its log-softmax and its gradient."""


@dataclass(frozen=True)
class _Case:
    """A training of which everything is known, or assumed."""

    training: Training
    precision: Precision
    sharding: Sharding
    checkpoints: bool

    def parts(self) -> Iterator[Parts]:
        """Yield the bytes of each GPU, for each way to train so."""
        given, activations = self.training, {}
        kept = self._activations()
        if kept is not None:
            activations[ACTIVATIONS] = kept
        if given.method == "full":
            for each in self._kinds():
                yield from ({**parts, **activations} for parts in self._trained(given.parameters, each))
            return
        frozen = given.parameters.times(_FROZEN[self.precision])
        if given.method == "qlora":
            frozen = given.parameters.times(*_QUANTIZED_BYTES)
        frozen = frozen.times(1 / self._divisors[0])
        for kind in (_BF16, _FP32) if self.precision == "bf16" else (_FP32,):
            for parts in self._trained(adapter_parameters(given) or Range(0, 0), kind):
                yield {**parts, WEIGHTS: frozen + parts[WEIGHTS], **activations}

    @property
    def _divisors(self) -> list[int]:
        return [self.training.gpus if divided else 1 for divided in _SHARDED[self.sharding]]

    def _kinds(self) -> Sequence[_Bytes]:
        if self.precision == "mixed":
            return _AUTOCAST if self.sharding == "ddp" else _ZERO
        return (_FP32,) if self.precision == "fp32" else (_BF16,)

    def _trained(self, count: Range, each: _Bytes) -> Iterator[dict[str, Range]]:
        """Yield the bytes of parameters that are trained, for each optimizer."""
        weights, gradients, states = self._divisors
        kept: Sequence[tuple[float, float]]
        match self.training.optimizer:
            case "adamw":
                kept = [(each.gradient, 2 * each.state)]
            case "adamw_8bit":
                kept = [(each.gradient, 2)]
            case "sgd":
                kept = [(each.gradient, 0), (each.gradient, each.state)]
            case _:  # some free each gradient during the backward pass
                kept = [(0, 0), (each.gradient, 2 * each.state)]
        for gradient, state in kept:
            yield {
                WEIGHTS: count.times(each.weight / weights),
                GRADIENTS: count.times(gradient / gradients),
                STATES: count.times((each.master + state) / states),
            }

    def _activations(self) -> Range | None:
        """Return the bytes of activations and logits; None if a number that they need is not known."""
        given = self.training
        if not (given.batch_size and given.sequence_length and given.hidden_size and given.num_layers):
            return None
        tokens = given.batch_size * given.sequence_length
        size = _SIZES[self.precision]
        layers = Range(_KEPT[given.method] * given.num_layers, _MOST_KEPT * given.num_layers)
        if self.checkpoints:
            layers = Range(given.num_layers + _KEPT[given.method], 2 * given.num_layers + _MOST_KEPT)
        found = layers.times(tokens * given.hidden_size).times(size.low, size.high)
        logits = (given.vocabulary or 0) * tokens
        found += Range(0, logits * (size.high + 4 * _LOGITS))
        return Range(0, found.high) if given.pads else found


def adapter_parameters(training: Training) -> Range | None:
    """Return the parameters of an adapter: a matrix of n x m gets rank * (n + m); None if its rank is not known.

    At least two projections of the attention have one, at most all matrices of a layer. Where the size of the layers is not
    known, `hidden_size` is between 512 and 16384, the parameters between 12 and 16 * hidden_size ** 2 in each layer.
    """
    rank = training.lora_rank
    if rank is None:
        return None
    least, most = 3 * rank, 23 * rank
    if training.hidden_size and training.num_layers:
        size = training.hidden_size * training.num_layers
        return Range(least * size, most * size)
    return training.parameters.times(least / (16 * 16384), most / (12 * 512))


def estimate(training: Training) -> Estimate:
    """Return the memory of each GPU: the least and the most of all that unknown settings may be."""
    precisions: Sequence[Precision] = [training.precision] if training.precision else ["bf16", "fp32", "mixed"]
    shardings: Sequence[Sharding] = [training.sharding] if training.sharding else [*_SHARDED]
    if training.gpus == 1:
        shardings = ["ddp"]
    checkpoints = [True, False] if training.checkpointing is None else [training.checkpointing]
    found = list[Parts]()
    for case in product(precisions, shardings, checkpoints):
        found += _Case(training, *case).parts()
    parts = {name: Range.around(each[name] for each in found) for name in found[0]}
    return Estimate(parts, Range.around(map(_total, found)), dict(_missing(training)))


def _total(parts: Parts) -> Range:
    """Return what is allocated at the peak."""
    activations = parts.get(ACTIVATIONS, Range(0, 0))
    kept, freed = parts[WEIGHTS] + parts[STATES], parts[GRADIENTS]
    return Range(kept.low + max(freed.low, activations.low), (kept + freed + activations).high)


def _missing(training: Training) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what is not counted, with the numbers that it needs."""
    names = [
        name for name in ("batch_size", "sequence_length", "hidden_size", "num_layers") if not getattr(training, name)
    ]
    if names:
        yield ACTIVATIONS, names
    elif training.vocabulary is None:
        yield "logits", ["vocabulary"]
    if training.method != "full" and training.lora_rank is None:
        yield "the adapter", ["lora_rank"]
    if training.uncounted:
        yield training.uncounted, []


_METHODS = {"full": "full training", "lora": "LoRA", "qlora": "QLoRA"}


def describe(training: Training) -> str:
    """Return what an estimate rests on, in words."""
    method = _METHODS[training.method]
    if training.method != "full" and training.lora_rank:
        method += f" of rank {training.lora_rank}"
    precision = {None: "unknown precision", "mixed": "mixed precision"}.get(training.precision, training.precision)
    how = f"{method} in {precision} with {training.optimizer or 'an unknown optimizer'}"
    words = [f"{_count(training.parameters)} parameters ({training.source})", how]
    if training.batch_size and training.sequence_length:
        words.append(f"{training.batch_size} * {training.sequence_length} tokens")
    where = plural(training.gpus, "GPU")
    if training.gpus > 1:
        where += f" with {training.sharding or 'unknown sharding'}"
    return ", ".join([*words, where])


def _count(parameters: Range) -> str:
    low, high = _short(parameters.low), _short(parameters.high)
    return low if low == high else f"{low} to {high}"


def _short(number: float) -> str:
    return f"{number / 1e9:.3g}B" if number >= 1e9 else f"{number / 1e6:.3g}M"


def changes_that_fit(training: Training, memory: float) -> list[str]:
    """Return the changes with which a training fits, each with its memory and what that does not count."""
    found = []
    for steps in (_sharded(training), _smaller_method(training), _recomputed(training), _smaller_batch(training)):
        for words, changed in steps:
            made = estimate(changed)
            if made.fits(memory):
                found.append(f"{words} ({made.total} GiB{made.without})")
                break
    return found


Changes = Iterator[tuple[str, Training]]


def _sharded(training: Training) -> Changes:
    if "sharding" in training.fixed or training.method == "qlora":  # 4 bits of bitsandbytes need more settings for that
        return
    gpus = training.gpus
    if gpus > 1 and training.sharding != "zero3":
        yield f"FSDP or ZeRO-3 on the {gpus} GPUs", replace(training, sharding="zero3")
    while gpus < _MOST_GPUS:
        gpus *= 2
        yield f"{gpus} GPUs with FSDP or ZeRO-3", replace(training, gpus=gpus, sharding="zero3")


def _smaller_method(training: Training) -> Changes:
    rank = training.lora_rank or ADAPTER_RANK
    if training.method == "full":
        yield f"LoRA of rank {rank}", replace(training, method="lora", lora_rank=rank)
    if training.method != "qlora" and "qlora" not in training.fixed:
        # sharding that divides other weights may leave those of 4 bits whole
        yield f"QLoRA of rank {rank}", replace(training, method="qlora", lora_rank=rank, sharding="ddp")


def _recomputed(training: Training) -> Changes:
    if not training.checkpointing and ACTIVATIONS not in dict(_missing(training)):
        yield "gradient checkpointing", replace(training, checkpointing=True)


def _smaller_batch(training: Training) -> Changes:
    size = training.batch_size or 1
    while size > 1 and ACTIVATIONS not in dict(_missing(training)):
        size //= 2
        yield f"a batch size of {size}", replace(training, batch_size=size)
