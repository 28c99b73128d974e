"""SFT of a model by Unsloth, with LoRA or QLoRA, on GPUs of a cluster."""

import pulumi
import pulumi_trainer as trainer

config = pulumi.Config()

job = trainer.TrainJob(
    "sft",
    runtime="unsloth",
    trainer=trainer.UnslothTrainer(
        config={
            "max_seq_length": 2048,
            "max_length": 2048,
            "max_steps": config.get_int("steps") or 1000,
            "learning_rate": config.get_float("learningRate") or 2e-4,
            "per_device_train_batch_size": 4,
        },
        lora=trainer.LoraConfig(
            lora_rank=16, lora_alpha=32, apply_lora_to_mlp=True, quantize_base=config.get_bool("quantize") or False
        ),
        merge_adapter=True,
        num_nodes=config.get_int("nodes") or 1,
        resources_per_node={"gpu": config.get_int("gpus") or 1},
    ),
    initializer=trainer.Initializer(
        model=trainer.ModelInitializer("model", storage_uri=config.get("model") or "hf://Qwen/Qwen3-8B"),
        dataset=trainer.DatasetInitializer("data", storage_uri=config.get("dataset") or "hf://trl-lib/Capybara"),
    ),
    checkpoint=trainer.CheckpointPolicy(steps=config.get_int("checkpointSteps") or 100, grace=120),
    wait_for="complete",
)
pulumi.export("phase", job.phase)
pulumi.export("progress", job.progress)
