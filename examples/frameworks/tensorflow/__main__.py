"""Trains a classifier of handwritten digits with TensorFlow on two workers, each of which sees half of the data."""

import pulumi
import pulumi_trainer as trainer


# Runs on every worker. TensorFlow finds the others by TF_CONFIG; Keras 3 cannot train with this strategy, tf_keras can.
def train(epochs: int, batch: int = 64):
    import json, os, numpy, tensorflow as tf, tf_keras as keras
    from sklearn.datasets import load_digits

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, world = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync

    @tf.function
    def add_ranks():
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(rank + 1))

    everyone = int(strategy.run(add_ranks))
    print(f"rank {rank} of world size {world}: ranks sum up to {everyone}", flush=True)

    # 1,797 images of 8x8 pixels: the same 360 test images for everyone, the rest dealt out among the ranks.
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype("f4")
    order = numpy.random.default_rng(0).permutation(len(images))
    test, mine = order[:360], order[360 : len(order) - (len(order) - 360) % world][rank::world]
    print(f"rank {rank}: samples {sum(1 << n for n in mine.tolist()):x}", flush=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF  # these are its own
    data = tf.data.Dataset.from_tensor_slices((images[mine], digits[mine])).batch(batch).with_options(options)

    keras.utils.set_random_seed(0)
    with strategy.scope():
        layers = keras.layers.Dense(64, "relu", input_shape=(64,)), keras.layers.Dense(10)
        model = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss)
    # After a restart the training goes on with the epoch that was not complete.
    backup = keras.callbacks.BackupAndRestore(os.environ["TRAINER_CHECKPOINT_DIR"])
    history = model.fit(data, epochs=epochs, callbacks=[backup], verbose=0).history
    if rank == 0:
        accuracy = (model(images[test]).numpy().argmax(1) == digits[test]).mean()
        shown = {"loss": f"{history['loss'][-1]:.4f}", "accuracy": f"{accuracy:.4f}", "everyone": str(everyone)}
        metrics = [{"name": name, "value": value} for name, value in shown.items()]
        print(json.dumps({"trainerStatus": {"progressPercentage": 100, "metrics": metrics}}), flush=True)
    print(f"rank {rank}: parameters {sum(w.astype('f8').sum() for w in model.get_weights()):.12f}", flush=True)


gpus = pulumi.Config().get_int("gpus") or 0
job = trainer.TrainJob(
    "tensorflow",
    runtime=trainer.ClusterTrainingRuntime("tensorflow", release="2.3.0"),
    trainer=trainer.CustomTrainer(
        func=train, func_args={"epochs": 20}, num_nodes=2, resources_per_node={"gpu": gpus} if gpus else {"cpu": 1},
        packages_to_install=["tensorflow[and-cuda]" if gpus else "tensorflow-cpu", "tf-keras", "scikit-learn"],
    ),
    checkpoint=trainer.CheckpointPolicy(),
    wait_for="complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
pulumi.export("metrics", job.progress.apply(lambda progress: progress and progress["metrics"]))
