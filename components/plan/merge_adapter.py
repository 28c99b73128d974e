import json, os, sys, threading

threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()  # the rank has ended

import torch
from peft import PeftConfig, PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

base, adapter, target, options = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])


def embedded():
    with safe_open(adapter + "/adapter_model.safetensors", framework="pt") as weights:
        names = [name for name in weights.keys() if name.endswith("embed_tokens.weight")]
        return weights.get_slice(names[0]).get_shape()[0] if names else None


kind, labels = AutoModelForCausalLM, {}
if PeftConfig.from_pretrained(adapter).task_type == "SEQ_CLS":
    kind, labels = AutoModelForSequenceClassification, {"num_labels": 1}
model = kind.from_pretrained(base, dtype="auto", **labels, **options)
if (rows := embedded()) and rows != model.get_input_embeddings().weight.shape[0]:
    model.resize_token_embeddings(rows)
with torch.no_grad():
    merged = PeftModel.from_pretrained(model, adapter).merge_and_unload()
merged.save_pretrained(target)
AutoTokenizer.from_pretrained(adapter).save_pretrained(target)
