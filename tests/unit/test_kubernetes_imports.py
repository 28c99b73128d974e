"""The client's modules are imported when they are needed, by whichever threads need them first."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys, threading
from pulumi_trainer.provider.kubernetes.client import access
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
sys.setswitchinterval(1e-6)
content = sys.argv[1]
barrier, wrong = threading.Barrier(8), []
def opened(user):
    given = json.loads(content)
    given["users"][0]["user"] = user
    barrier.wait()
    try:
        open_client({"content": json.dumps(given), "cluster": "x"}).within(0.1).cluster_id()
    except TrainerError:
        pass
    except BaseException as error:
        wrong.append(repr(error))
users = [{"token": "t"}, {}] * 4
threads = [threading.Thread(target=opened, args=(user,)) for user in users]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit("\\n".join(wrong) or 0)
"""
KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "a", "user": {}}],
}  # fmt: skip


def test_threads_that_begin_at_once() -> None:
    for _ in range(3):
        argv = [sys.executable, "-c", PROGRAM, json.dumps(KUBECONFIG)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
