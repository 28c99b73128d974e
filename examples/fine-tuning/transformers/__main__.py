"""Further training of a language model on text by transformers.Trainer."""

import pulumi
import pulumi_trainer as trainer

config = pulumi.Config()
files = config.get("files") or ".."  # `python ../tiny_model.py ..` writes them
gpus = config.get_int("gpus") or 0

job = trainer.TrainJob(
    "text",
    runtime="transformers-distributed",
    trainer=trainer.TransformersTrainer(
        config={
            "max_steps": config.get_int("steps") or 30,
            "learning_rate": config.get_float("learningRate") or 5e-3,
            "per_device_train_batch_size": 4,
            "logging_steps": 1,
            "text_column": "text",
            "max_length": 1024,
        },
        num_nodes=config.get_int("nodes") or 2,
        resources_per_node={"gpu": gpus} if gpus else {"cpu": 1},
    ),
    initializer=trainer.Initializer(
        model=trainer.ModelInitializer("model", storage_uri=config.get("model") or f"file://{files}/model"),
        dataset=trainer.DatasetInitializer("data", storage_uri=config.get("dataset") or f"file://{files}/data/text"),
    ),
    checkpoint=trainer.CheckpointPolicy(steps=config.get_int("checkpointSteps") or 10, grace=120),
    wait_for="complete",
)
pulumi.export("phase", job.phase)
pulumi.export("progress", job.progress)
