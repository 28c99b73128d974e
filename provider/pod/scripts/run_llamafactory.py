import os, sys

sys.path.insert(0, __file__.rpartition("/")[0])
import finish_tool, run_tool
import torch

# transformers 5.6 maps the optimizer of a checkpoint to "cpu:0", which torch.load does not know.
torch.serialization.register_package(
    50, lambda _: None, lambda stored, place: stored if place.startswith("cpu:") else None
)
from llamafactory.train.tuner import run_exp

job = run_tool.job()
config = run_tool.config(job["config"], "model_name_or_path", "dataset_dir")
run_tool.check_models(config)
if os.path.isdir(str(config.get("dataset_dir"))):
    for field, fault in run_tool.check_data.llamafactory_faults(config["dataset_dir"], config):
        run_tool.refuse(f"{field}: {fault[0]}", fault[1])
with finish_tool.result(job, config):
    run_exp({"do_train": True, "overwrite_output_dir": True, "stage": job["method"], **config}, run_tool.callbacks())
