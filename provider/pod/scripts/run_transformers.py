import sys

sys.path.insert(0, __file__.rpartition("/")[0])
import finish_tool, run_tool
import datasets
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

job = run_tool.job()
config = run_tool.config(job["config"], "model_name_or_path", "dataset_name")
run_tool.check_models(config)
run_tool.check_datasets("language-modeling", dict(config))
own: dict = {
    "dataset_config": None,
    "dataset_train_split": "train",
    "dataset_test_split": "test",
    "text_column": "text",
    "max_length": 1024,
}
own |= {name: config.pop(name) for name in (*own, "model_name_or_path", "dataset_name", "lora") if name in config}
arguments = TrainingArguments(**config)
tokenizer = AutoTokenizer.from_pretrained(own["model_name_or_path"])
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
splits = datasets.load_dataset(own["dataset_name"], own["dataset_config"])
model = AutoModelForCausalLM.from_pretrained(own["model_name_or_path"])
if "lora" in own:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **own["lora"]))


def tokens(split):
    rows = splits[split]
    texts = rows.select_columns([own["text_column"]])
    return texts.map(
        lambda each: tokenizer(each[own["text_column"]], truncation=True, max_length=own["max_length"]),
        batched=True,
        remove_columns=[own["text_column"]],
    )


trainer = Trainer(
    model=model,
    args=arguments,
    train_dataset=tokens(own["dataset_train_split"]),
    eval_dataset=None if arguments.eval_strategy == "no" else tokens(own["dataset_test_split"]),
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    processing_class=tokenizer,
    callbacks=run_tool.callbacks(),
)
with finish_tool.result(job, {**own, **config}):
    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
    trainer.save_model(arguments.output_dir)
    trainer.end()
