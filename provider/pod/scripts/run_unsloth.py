import inspect, sys

sys.path.insert(0, __file__.rpartition("/")[0])
import finish_tool, run_tool

job = run_tool.job()
config = run_tool.config(job["config"], "model_name", "dataset_name")  # ends the program on a node without a GPU
from unsloth import FastLanguageModel  # it changes what is imported after it
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

takes = inspect.signature(FastLanguageModel.from_pretrained).parameters
load = {name: config.pop(name) for name in list(config) if name in takes}
own: dict = {"dataset_config": None, "dataset_train_split": "train", "dataset_test_split": "test", "lora": None}
own |= {name: config.pop(name) for name in own if name in config}
dataset = config.pop("dataset_name")
arguments = SFTConfig(**config)
with finish_tool.result(job, {**load, **config}, "model_name"):
    model, tokenizer = FastLanguageModel.from_pretrained(**load)
    if own["lora"]:
        both = {name: load[name] for name in ("use_gradient_checkpointing", "random_state") if name in load}
        model = FastLanguageModel.get_peft_model(model, **both, **own["lora"])
    splits = load_dataset(dataset, own["dataset_config"])
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        processing_class=tokenizer,
        train_dataset=splits[own["dataset_train_split"]],
        eval_dataset=None if arguments.eval_strategy == "no" else splits[own["dataset_test_split"]],
        callbacks=run_tool.callbacks(),
    )
    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
    trainer.save_model(arguments.output_dir)
