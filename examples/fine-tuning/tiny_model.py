"""Write a tiny random model with its tokenizer, and small data sets: `python tiny_model.py FOLDER`. Nothing is downloaded.

The model is a Llama of two layers and 123 thousand parameters, its tokens are bytes: enough to see that a training works.
"""

import array
import json
import random
import struct
import sys
from pathlib import Path

HIDDEN, MIDDLE, LAYERS, HEADS, VOCABULARY = 64, 128, 2, 4, 320
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = "red green blue cat dog bird one two three four sun moon star sea sky tree".split()
WORTH = {"chosen": "red", "rejected": "blue"}
DESCRIBED = {
    "alpaca": {},
    "text": {"columns": {"prompt": "text"}},
    "alpaca-preference": {
        "ranking": True,
        "columns": {"prompt": "instruction", "chosen": "chosen", "rejected": "rejected"},
    },
    "alpaca-kto": {"columns": {"prompt": "instruction", "response": "output", "kto_tag": "kto_tag"}},
}
"""What LLaMA-Factory reads in `dataset_info.json`."""


def byte_letters():
    """Return the letter that stands for each byte in the vocabulary of byte-level tokenizers."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + at) for at, byte in enumerate(others)}}


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def write_tokenizer(folder):
    letters = sorted(byte_letters().values())
    vocabulary = {letter: at for at, letter in enumerate([*SPECIAL, *letters])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [
        {"id": at, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for at, word in enumerate(SPECIAL)
    ]  # fmt: skip
    write_json(folder / "vocab.json", vocabulary)  # torchtune reads these two
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    none = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")
    model = {
        "type": "BPE",
        **dict.fromkeys(none),
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": vocabulary,
        "merges": [],
    }
    write_json(folder / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model,
    })  # fmt: skip
    names = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[2], "pad_token": SPECIAL[3]}
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, "chat_template": CHAT, **names,
    })  # fmt: skip
    write_json(folder / "special_tokens_map.json", names)


def shapes():
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        start = f"model.layers.{layer}"
        for name, rows in (("q", HIDDEN), ("k", HIDDEN), ("v", HIDDEN), ("o", HIDDEN)):
            yield f"{start}.self_attn.{name}_proj.weight", (rows, HIDDEN)
        yield f"{start}.mlp.gate_proj.weight", (MIDDLE, HIDDEN)
        yield f"{start}.mlp.up_proj.weight", (MIDDLE, HIDDEN)
        yield f"{start}.mlp.down_proj.weight", (HIDDEN, MIDDLE)
        yield f"{start}.input_layernorm.weight", (HIDDEN,)
        yield f"{start}.post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def write_model(folder, seed=0):
    """Write the weights in the format of safetensors: the length of a JSON header, the header, the numbers."""
    draw = random.Random(seed)
    header, parts, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, shape in shapes():
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array.array("f", (draw.gauss(0, 0.1) for _ in range(size)) if len(shape) > 1 else [1.0] * size)
        if sys.byteorder == "big":
            values.byteswap()
        parts.append(values.tobytes())
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * size]}
        at += 4 * size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(b"".join([struct.pack("<Q", len(text)), text, *parts]))
    write_json(folder / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
        "intermediate_size": MIDDLE, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 3, "dtype": "float32",
    })  # fmt: skip
    write_json(folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 3})
    write_tokenizer(folder)


def write_data(folder, count=64):
    """Write one folder for each kind of data set, with `train.jsonl`."""
    draw = random.Random(0)

    def line():
        return " ".join(draw.choices(WORDS, k=6))

    def judged():
        good = draw.random() < 0.5
        return f"{'red' if good else 'blue'} {line()}", good

    def paired():
        asked = says("user", line())
        return {kind: asked + says("assistant", f"{word} {line()}") for kind, word in WORTH.items()}

    def unpaired():
        text, good = judged()
        return {"prompt": says("user", line()), "completion": says("assistant", text), "label": good}

    def alpaca_kto():
        text, good = judged()
        return {"instruction": line(), "input": "", "output": text, "kto_tag": good}

    def says(role, text):
        return [{"role": role, "content": text}]

    kinds = {
        "chat": lambda: {"messages": says("user", line()) + says("assistant", line())},
        "text": lambda: {"text": f"{line()} {line()}"},
        "preference": lambda: {
            "prompt": says("user", line()),
            "chosen": says("assistant", f"red {line()}"),
            "rejected": says("assistant", f"blue {line()}"),
        },
        "paired": paired,
        "unpaired": unpaired,
        "prompts": lambda: {"prompt": says("user", line())},
        "alpaca": lambda: {"instruction": line(), "input": "", "output": line()},
        "alpaca-preference": lambda: {
            "instruction": line(), "input": "", "chosen": f"red {line()}", "rejected": f"blue {line()}"
        },
        "alpaca-kto": alpaca_kto,
    }  # fmt: skip
    for kind, row in kinds.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        rows = "".join(json.dumps(row()) + "\n" for _ in range(count))
        (folder / kind / "train.jsonl").write_text(rows, encoding="utf-8")
        if kind in DESCRIBED:
            write_json(folder / kind / "dataset_info.json", {"tiny": {"file_name": "train.jsonl", **DESCRIBED[kind]}})


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name, seed in (("model", 0), ("teacher", 1)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        write_model(folder / name, seed)
    write_data(folder / "data")
    print(f"wrote model, teacher and data into {folder}")


if __name__ == "__main__":
    main()
