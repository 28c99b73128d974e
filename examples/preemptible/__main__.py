"""A queue like one of spot machines: a job of low priority gives way to an urgent one, and goes on from its checkpoint."""

import pulumi
import pulumi_trainer as trainer


# Runs on both nodes. Put your own training in its place: load TRAINER_RESUME_FROM, save below TRAINER_CHECKPOINT_DIR.
def train(steps: int, seconds_per_step: float):
    import json, os, signal, time

    folder, node, stopped = os.environ["TRAINER_CHECKPOINT_DIR"], os.environ["JOB_COMPLETION_INDEX"], []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    state = {"step": 0, "sum": 0}
    if newest := os.environ.get("TRAINER_RESUME_FROM"):
        with open(newest) as file:
            state = json.load(file)
    print(f"node {node} starts at step {state['step']} of {steps}", flush=True)
    while state["step"] < steps and not stopped:
        time.sleep(seconds_per_step)
        state = {"step": state["step"] + 1, "sum": state["sum"] + state["step"]}
        if node == "0" and (state["step"] % 50 == 0 or stopped):
            with open(f"{folder}/.part", "w") as file:
                json.dump(state, file)
            os.replace(f"{folder}/.part", f"{folder}/step-{state['step']}.json")  # whole, or not at all
            metrics = [{"name": name, "value": value} for name, value in state.items()]
            progress = {"progressPercentage": 100 * state["step"] // steps, "metrics": metrics}
            print(json.dumps({"trainerStatus": progress}), flush=True)
    print(f"node {node} stops at step {state['step']}, sum {state['sum']}", flush=True)


config = pulumi.Config()
nodes, cpu = 2, config.get("cpu") or "1"

# What a platform team would write once: quota for one of the two jobs, and who gives way to whom.
flavor = trainer.ResourceFlavor("spot")
quota = trainer.FlavorQuotas(flavor=flavor, resources={"cpu": config.get("quota") or str(nodes)})
cluster_queue = trainer.ClusterQueue(
    "spot",
    resource_groups=[trainer.ResourceGroup(flavors=[quota])],
    preemption=trainer.Preemption(within_cluster_queue="LowerPriority"),
    on_delete="drain",
)
queue = trainer.LocalQueue("spot", cluster_queue=cluster_queue)
low = trainer.WorkloadPriorityClass("low", value=100)
high = trainer.WorkloadPriorityClass("high", value=1000)


def job(name: str, priority: trainer.WorkloadPriorityClass, steps: int, wait_for: str) -> trainer.TrainJob:
    """Return a training of two nodes that survives interruptions."""
    return trainer.TrainJob(
        name,
        runtime="plain",
        trainer=trainer.CustomTrainer(
            func=train,
            func_args={"steps": steps, "seconds_per_step": 0.05},
            num_nodes=nodes,
            resources_per_node={"cpu": cpu},
        ),
        queue=queue,
        priority=priority,
        checkpoint=trainer.CheckpointPolicy(
            every="1m", grace=30, to=trainer.OutputVolume(storage_class=config.get("storageClass"))
        ),
        wait_for=wait_for,
    )


background = job("background", low, config.get_int("steps") or 2000, "created")
if config.get_bool("urgent"):
    job("urgent", high, 100, "complete")
pulumi.export("background", background.phase)
