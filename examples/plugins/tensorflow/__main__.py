"""A framework of one's own: TensorFlow's roles, run here. `pulumi up` needs no TensorFlow: the program only talks."""

import pulumi
import pulumi_trainer as trainer
from tensorflow_plugin import TensorFlow, TensorFlowPolicy

trainer.register_plugin(TensorFlow())


def role(name: str, **more) -> trainer.ReplicatedJob:
    containers = [{"name": "node", "image": "python:3.12-slim"}]
    pod = {"restart_policy": "Never", "termination_grace_period_seconds": 1, "containers": containers}
    return trainer.ReplicatedJob(name=name, backoff_limit=0, pod_spec=pod, **more)


runtime = trainer.ClusterTrainingRuntime(
    "tensorflow",
    ml_policy=TensorFlowPolicy(num_nodes=2, parameter_servers=2),
    template=trainer.JobSetTemplate(
        replicated_jobs=[
            role("worker", ancestor="trainer"), role("chief", ancestor="trainer"), role("ps"), role("evaluator"),
        ],
        # Parameter servers never end by themselves.
        success_policy=trainer.SuccessPolicy(
            operator="All", target_replicated_jobs=["worker", "chief", "evaluator"],
        ),
    ),
)  # fmt: skip


# Each task of the cluster knows one number. It asks all others for theirs; their sum is what all know in the end. The
# evaluator, which is no part of the cluster, asks the parameter servers for the sum.
def train():
    import json, os, socket, socketserver, threading, time

    config = json.loads(os.environ["TF_CONFIG"])
    me = (config["task"]["type"], config["task"]["index"])
    cluster = {(role, i): at for role, all_ in config["cluster"].items() for i, at in enumerate(all_)}
    assert me in cluster or me == ("evaluator", 0), f"{me} is not in {cluster}"
    asked_by, total, all_known = set(), 0, threading.Event()

    class Answer(socketserver.StreamRequestHandler):
        def handle(self):
            asker, question = json.loads(self.rfile.readline())
            if question == "sum":
                all_known.wait()
            self.wfile.write(b"%d\n" % (total if question == "sum" else number))
            asked_by.add(tuple(asker))

    def ask(address, question):
        host, port = address.split(":")
        while True:
            try:
                with socket.create_connection((host, int(port))) as peer:
                    peer.sendall(json.dumps([me, question]).encode() + b"\n")
                    return int(peer.makefile().readline())
            except OSError:  # it is not there yet
                time.sleep(0.1)

    if me not in cluster:
        sums = {ask(address, "sum") for (role, _), address in cluster.items() if role == "ps"}
        print(*me, "hears of", *sums, flush=True)
        return
    number = 10 ** list(cluster).index(me)
    host, port = cluster[me].split(":")
    server = socketserver.ThreadingTCPServer((host, int(port)), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    total = number + sum(ask(address, "number") for other, address in cluster.items() if other != me)
    all_known.set()
    print(*me, "knows of", total, flush=True)
    while me[0] == "ps" or len(asked_by) < len(cluster) - 1:
        time.sleep(0.1)


job = trainer.TrainJob(
    "roles", runtime=runtime, trainer=trainer.CustomTrainer(func=train), wait_for="complete",
)  # fmt: skip
pulumi.export("phase", job.phase)
