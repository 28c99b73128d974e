import json, os, sys, threading

threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()  # the rank has ended

import torch
import transformers
from peft import PeftConfig, PeftModel, get_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

base, adapter, target, options = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])


def embedded():
    with safe_open(adapter + "/adapter_model.safetensors", framework="pt") as weights:
        names = [name for name in weights.keys() if name.endswith("embed_tokens.weight")]
        return weights.get_slice(names[0]).get_shape()[0] if names else None


def classes():
    if PeftConfig.from_pretrained(adapter).task_type == "SEQ_CLS":
        return [AutoModelForSequenceClassification]
    # As TRL chooses it: a model of images and text is another class than the text model of the same configuration.
    name = (AutoConfig.from_pretrained(base, **options).architectures or [""])[0]
    trained = getattr(transformers, name, None) if name.endswith("ForConditionalGeneration") else None
    return [AutoModelForCausalLM] if trained is None else [trained, AutoModelForCausalLM]


def with_adapter(kind):
    labels = {"num_labels": 1} if kind is AutoModelForSequenceClassification else {}
    model = kind.from_pretrained(base, dtype="auto", **labels, **options)
    if (rows := embedded()) and rows != model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(rows)
    return PeftModel.from_pretrained(model, adapter)


def unused(model):
    saved, loaded = load_file(adapter + "/adapter_model.safetensors"), get_peft_model_state_dict(model)
    return sorted(name for name in saved.keys() - loaded.keys() if "lora_" in name)


left: list = []
for kind in classes():
    model = with_adapter(kind)
    if not (left := unused(model)):
        break
else:
    sys.exit(f"{len(left)} of the adapter's weights do not belong to the base model, such as {left[0]}")
with torch.no_grad():
    merged = model.merge_and_unload()
merged.save_pretrained(target)
AutoTokenizer.from_pretrained(adapter).save_pretrained(target)
