"""SFT of a model by LLaMA-Factory, with LoRA."""

import pulumi
import pulumi_trainer as trainer

config = pulumi.Config()
files = config.get("files") or ".."  # `python ../tiny_model.py ..` writes them
gpus = config.get_int("gpus") or 0

job = trainer.TrainJob(
    "sft",
    runtime="llamafactory",
    trainer=trainer.LlamaFactoryTrainer(
        stage="sft",
        config={
            "dataset": config.get("datasetName") or "tiny",  # described in dataset_info.json of the dataset's folder
            "template": config.get("template") or "qwen",
            "cutoff_len": 1024,
            "max_steps": config.get_int("steps") or 30,
            "learning_rate": config.get_float("learningRate") or 5e-3,
            "per_device_train_batch_size": 4,
            "logging_steps": 1,
        },
        lora=trainer.LoraConfig(lora_rank=16, lora_alpha=32),
        num_nodes=config.get_int("nodes") or 2,
        resources_per_node={"gpu": gpus} if gpus else {"cpu": 1},
    ),
    initializer=trainer.Initializer(
        model=trainer.ModelInitializer("model", storage_uri=config.get("model") or f"file://{files}/model"),
        dataset=trainer.DatasetInitializer("data", storage_uri=config.get("dataset") or f"file://{files}/data/alpaca"),
    ),
    checkpoint=trainer.CheckpointPolicy(steps=config.get_int("checkpointSteps") or 10, grace=120),
    wait_for="complete",
)
pulumi.export("phase", job.phase)
pulumi.export("progress", job.progress)
