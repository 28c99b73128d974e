"""Fine-tuning of a model by torchtune."""

import pulumi
import pulumi_trainer as trainer

config = pulumi.Config()
files = config.get("files") or ".."  # `python ../tiny_model.py ..` writes them
gpus = config.get_int("gpus") or 0

tiny = {
    "model": {
        "_component_": "torchtune.models.llama2.llama2",
        "vocab_size": 320,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 4,
        "embed_dim": 64,
        "intermediate_dim": 128,
        "max_seq_len": 512,
        "norm_eps": 1e-6,
    },
    "tokenizer": {
        "_component_": "torchtune.models.qwen2.qwen2_tokenizer",
        "path": "vocab.json",  # in the folder of the model
        "merges_file": "merges.txt",
        "special_tokens_path": "tokenizer.json",
        "max_seq_len": 64,
    },
}
base = config.get("base")  # brings a model and a tokenizer of its own

job = trainer.TrainJob(
    "full",
    runtime="torchtune-distributed",
    trainer=trainer.TorchTuneTrainer(
        recipe="full_finetune_distributed",
        base=base or "llama2/7B_full",
        config={
            **({} if base else tiny),
            "dataset": {
                "_component_": "torchtune.datasets.chat_dataset",
                "conversation_column": "messages",
                "conversation_style": "openai",
            },
            "batch_size": 2,
            "epochs": 3,
            "max_steps_per_epoch": config.get_int("stepsPerEpoch") or 10,
            "optimizer.lr": config.get_float("learningRate") or 5e-3,
        },
        num_nodes=config.get_int("nodes") or 2,
        resources_per_node={"gpu": gpus} if gpus else {"cpu": 1},
    ),
    initializer=trainer.Initializer(
        model=trainer.ModelInitializer("model", storage_uri=config.get("model") or f"file://{files}/model"),
        dataset=trainer.DatasetInitializer("data", storage_uri=config.get("dataset") or f"file://{files}/data/chat"),
    ),
    checkpoint=trainer.CheckpointPolicy(),
    wait_for="complete",
)
pulumi.export("phase", job.phase)
pulumi.export("progress", job.progress)
