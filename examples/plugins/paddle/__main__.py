"""A framework of one's own: PaddlePaddle's collective training, run here. `pulumi up` needs no Paddle: the program only
talks."""

import pulumi
import pulumi_trainer as trainer
from paddle_plugin import Paddle, PaddlePolicy

trainer.register_plugin(Paddle())

runtime = trainer.ClusterTrainingRuntime(
    "paddle",
    ml_policy=PaddlePolicy(port=6170),
    template=trainer.JobSetTemplate(
        replicated_jobs=[
            trainer.ReplicatedJob(
                name="node",
                backoff_limit=0,
                pod_spec={
                    "restart_policy": "Never",
                    "termination_grace_period_seconds": 1,
                    "containers": [{"name": "node", "image": "python:3.12-slim"}],
                },
            )
        ]
    ),
)


# Every trainer tells the next one what it has heard, until each number has gone round: a ring all-reduce. Before, all say
# to the master that they are there, as Paddle's trainers do.
def train():
    import os, socket, time

    rank, world = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"])
    endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert len(endpoints) == world and endpoints[rank] == os.environ["PADDLE_CURRENT_ENDPOINT"]

    def listen(endpoint):
        host, port = endpoint.split(":")
        return socket.create_server((host, int(port)))

    def connect(endpoint):
        host, port = endpoint.split(":")
        while True:
            try:
                return socket.create_connection((host, int(port)))
            except OSError:  # it is not there yet
                time.sleep(0.1)

    with listen(endpoints[rank]) as mine:
        if rank == 0:
            with listen(os.environ["PADDLE_MASTER"]) as store:
                there = [store.accept()[0] for _ in range(world - 1)]
                for trainer in there:
                    trainer.sendall(b"go")
        else:
            with connect(os.environ["PADDLE_MASTER"]) as store:
                assert store.recv(2) == b"go"
        following = connect(endpoints[(rank + 1) % world])
        lines = mine.accept()[0].makefile()
        total = heard = 10**rank
        for _ in range(world - 1):
            following.sendall(b"%d\n" % heard)
            heard = int(lines.readline())
            total += heard
    print("trainer", rank, "of", world, "knows of", total, flush=True)


job = trainer.TrainJob(
    "ring", runtime=runtime, trainer=trainer.CustomTrainer(func=train, num_nodes=3), wait_for="complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
