"""Fine-tuning by TRL: SFT, DPO or GRPO of a model, with LoRA, on any number of nodes."""

import pulumi
import pulumi_trainer as trainer

config = pulumi.Config()
method = config.get("method") or "sft"
files = config.get("files") or ".."  # `python ../tiny_model.py ..` writes them
gpus = config.get_int("gpus") or 0


# Scores what the model generates, for GRPO. Put your own in its place: one number for each completion.
def letters(completions, **kwargs):
    texts = [each if isinstance(each, str) else each[0]["content"] for each in completions]
    return [sum(letter.isalpha() for letter in text) / max(len(text), 1) for text in texts]


data = {"sft": "chat", "dpo": "preference", "grpo": "prompts"}[method]
fields = {
    "sft": {"max_length": 1024},
    "dpo": {"max_length": 1024, "beta": 0.1},
    "grpo": {"max_completion_length": 32, "num_generations": 8, "per_device_train_batch_size": 16},
}

resources = {"gpu": gpus} if gpus else {"cpu": 1}
served = method == "grpo" and config.get_bool("server")

job = trainer.TrainJob(
    method,
    runtime="trl-distributed",
    trainer=trainer.TRLTrainer(
        method=method,
        reward=letters if method == "grpo" else None,
        generation=trainer.GenerationServer(resources_per_node=resources) if served else None,
        config={
            "max_steps": config.get_int("steps") or 30,
            "learning_rate": config.get_float("learningRate") or (2e-2 if method == "grpo" else 5e-3),
            "per_device_train_batch_size": 4,
            "logging_steps": 1,
            **fields[method],
        },
        lora=trainer.LoraConfig(
            lora_rank=16,
            lora_alpha=32,
            apply_lora_to_mlp=True,
            lora_attn_modules=["q_proj", "k_proj", "v_proj", "output_proj"],
        ),
        num_nodes=config.get_int("nodes") or 2,
        resources_per_node=resources,
    ),
    initializer=trainer.Initializer(
        model=trainer.ModelInitializer("model", storage_uri=config.get("model") or f"file://{files}/model"),
        dataset=trainer.DatasetInitializer(data, storage_uri=config.get("dataset") or f"file://{files}/data/{data}"),
    ),
    checkpoint=trainer.CheckpointPolicy(steps=config.get_int("checkpointSteps") or 10, grace=120),
    wait_for="complete",
)
pulumi.export("phase", job.phase)
pulumi.export("progress", job.progress)
