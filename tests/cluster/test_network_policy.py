"""A NetworkPolicy of a program on a real control plane: in the preview, made, changed in place, gone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client import ApiClient
from pulumi_trainer.provider.kubernetes.client.api_resources import NETWORK_POLICY
from pulumi_trainer.provider.trainer.labels import MADE_BY

from tests.documented import blocks
from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from .jobs import until
from .test_podgroups import stack  # noqa: F401 (a fixture)
from .test_up import Lab, lab  # noqa: F401 (a fixture)

(PROGRAM,) = (block.text for block in blocks("docs/security.md", __file__))


@pytest.fixture
def owner(stack: Lab, cluster: Any) -> Iterator[Lab]:  # noqa: F811
    """As somebody who may make NetworkPolicies."""
    stack.config("trainer:kubeconfig", str(cluster.kubeconfig))
    yield stack


def test_a_policy_of_a_job(owner: Lab, admin: ApiClient) -> None:
    owner.program(PROGRAM, "")
    preview = owner.preview("--diff").out
    assert "kubernetes:networking.k8s.io/v1:NetworkPolicy" in preview and '"10.20.0.0/16"' in preview, preview
    owner.up()
    (policy,) = client.NetworkingV1Api(admin).list_namespaced_network_policy(owner.namespace).items
    assert policy.spec.pod_selector.match_labels == {"jobset.sigs.k8s.io/jobset-name": "train-alone"}
    assert policy.metadata.annotations[MADE_BY].startswith("organization/lab/test/")
    pods = partial(client.CoreV1Api(admin).list_namespaced_pod, owner.namespace)
    until(lambda: len(pods(label_selector="jobset.sigs.k8s.io/jobset-name=train-alone").items) == 2)
    assert policy.spec.egress[-1].ports[0].port == 443 and policy.spec.egress[-1].to[0].ip_block._except
    owner.preview("--expect-no-changes")

    owner.program(PROGRAM.replace("[443]", "[443, 8443]"), "")
    owner.up()
    (changed,) = client.NetworkingV1Api(admin).list_namespaced_network_policy(owner.namespace).items
    assert changed.metadata.uid == policy.metadata.uid and len(changed.spec.egress[-1].ports) == 2

    hand = partial(client.NetworkingV1Api(admin).patch_namespaced_network_policy, field_manager="kubectl-edit")
    hand(changed.metadata.name, owner.namespace, {"spec": {"egress": [{}]}})
    owner.program(PROGRAM.replace("egress=", 'drift="refuse", egress='), "")
    said = " ".join(owner.preview(ok=False).out.split())
    assert f"NetworkPolicy {owner.namespace}/train was changed by hand (kubectl-edit at 20" in said
    assert "egress 3 items -> 1 item" in said and 'Hint: drift="restore" puts it back' in said
    owner.program(PROGRAM.replace("egress=", 'drift="restore", egress='), "")
    owner.up()
    (restored,) = client.NetworkingV1Api(admin).list_namespaced_network_policy(owner.namespace).items
    assert len(restored.spec.egress) == len(policy.spec.egress) and len(restored.spec.egress[-1].ports) == 1
    owner.preview("--expect-no-changes")
    owner.destroy()
    assert client.NetworkingV1Api(admin).list_namespaced_network_policy(owner.namespace).items == []


def test_a_policy_that_others_made_is_not_taken(owner: Lab) -> None:
    metadata = {"name": "train", "namespace": owner.namespace}
    theirs = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata}
    owner.root_client.create(NETWORK_POLICY, {**theirs, "spec": {"podSelector": {}}})
    owner.program(PROGRAM, "")
    refused = owner.preview(ok=False).out
    assert "NetworkPolicy train exists since" in refused and "was not created by this stack" in refused, refused
    assert f"networkpolicies.networking.k8s.io -n {owner.namespace} train" in " ".join(refused.split()), refused
