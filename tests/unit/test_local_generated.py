"""Secrets whose values nobody has written: made when a job is started, and nowhere on a disk."""

from __future__ import annotations

from typing import Any

from local_support import jobset, log, python, run, step, submission, wait
from pulumi_trainer.provider.targets.local import LocalTarget
from pulumi_trainer.provider.trainer.generated import SSH_PRIVATE_KEY, SSH_PUBLIC_KEY

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "keys"},
    "data": {"private": SSH_PRIVATE_KEY, "public": SSH_PUBLIC_KEY},
}
SHOW = """
import os, stat, sys
for name in ("id", "id.pub"):
    path = sys.argv[1] + "/" + name
    print(name, oct(stat.S_IMODE(os.stat(path).st_mode)), open(path).read().splitlines()[0][:30])
print(os.environ["PUBLIC"] == open(path).read(), len(open(sys.argv[1] + "/id").read()) > 200)
"""


def job(key: str = "public", **spec: Any) -> dict[str, Any]:
    items = [{"key": "private", "path": "id", "mode": 0o640}, {"key": "public", "path": "id.pub", "mode": 0o644}]
    volume = {"name": "keys", "secret": {"secretName": "keys", "items": items, "defaultMode": 0o400}}
    env = [{"name": "PUBLIC", "valueFrom": {"secretKeyRef": {"name": "keys", "key": key}}}]
    fields = {"env": env, "volumeMounts": [{"name": "keys", "mountPath": "/root/.ssh"}]}
    return jobset(step(command=python(SHOW, "/root/.ssh"), container_fields=fields, pod={"volumes": [volume]}), **spec)


SHOWN = """id 0o640 -----BEGIN EC PRIVATE KEY-----
id.pub 0o644 ecdsa-sha2-nistp521 AAAAE2VjZH
True True
"""


def test_they_are_in_their_volume_and_their_variables(local: LocalTarget) -> None:
    run(local, job(), SECRET)
    assert log(local) == SHOWN


def test_they_are_on_no_disk(local: LocalTarget) -> None:
    run(local, job(), SECRET)
    texts = [p.read_bytes() for p in local.root.rglob("*") if p.is_file() and "logs" not in p.parts]
    assert texts and not any(b"BEGIN EC" in text or b"ecdsa-sha2" in text for text in texts)


def test_a_resumed_job_has_them_too(local: LocalTarget) -> None:
    local.jobs.create(submission(job(suspend=True), SECRET))
    local.jobs.update(submission(job(), SECRET))
    assert wait(local).phase == "Succeeded" and log(local) == SHOWN


def test_they_are_part_of_the_job_in_a_review(local: LocalTarget) -> None:
    objects = submission(job(), SECRET).objects
    assert local.jobs.review(objects, {}) == ([], [])
    (refused,), _ = local.jobs.review(submission(job("other"), SECRET).objects, {})
    assert "Secret keys has no key other" in refused.why
    without = [p.why for p in local.jobs.review(submission(job()).objects, {})[0]]
    assert all("Secret keys is not part of the job" in why for why in without) and len(without) == 2


def test_a_secret_of_the_user_wins(local: LocalTarget) -> None:
    run(local, job(), SECRET, secrets={"keys": {"private": "x" * 300, "public": "mine"}})
    assert log(local).splitlines()[1:] == ["id.pub 0o644 mine", "True True"]
