"""What a cluster has against a job, found before anything is sent: each fault with the words that a user reads.

`review` is asked by programs, in previews and in an `up`; `create` asks once more for what must be there by then.
"""

from __future__ import annotations

import copy
import itertools
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as official
from kubernetes.client import ApiClient
from pulumi_trainer.provider.jobs.submission import Draft
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.schema import openapi
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.api_resources import LOCAL_QUEUE
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

from tests.engine.conftest import Project, project, pulumi_home  # noqa: F401 (fixtures)
from tools.cluster import Cluster

from .jobs import DEFINITION, Document, jobset, left, pod_template, submission, until

POD = "JobSet/a.spec.replicatedJobs[0].template.spec.template.spec"
CREATE = "create it, or let the TrainJob depend on it (depends_on)"
Change = Callable[[Document], Any]
Ask = Callable[[Document], tuple[list[str], list[str]]]


def opened(kubeconfig: Path) -> KubernetesTarget:
    """As in a process of its own: nothing is remembered."""
    return KubernetesTarget(open_client({"kubeconfig": str(kubeconfig)}), cluster=lambda: "")


@pytest.fixture
def target(cluster: Any, tmp_path: Path) -> KubernetesTarget:
    """With all rights: what may not be read is not judged."""
    return opened(Path(shutil.copy(cluster.kubeconfig, tmp_path / "all-rights")))


def draft(namespace: Any, document: Document, **more: Any) -> Draft:
    name = document["metadata"]["name"]
    return Draft(namespace, name, more.pop("digest", "digest"), {f"JobSet/{name}": document}, **more)


def told(target: KubernetesTarget, asked: Draft) -> tuple[list[str], list[str]]:
    refusals, warnings = target.jobs.review(asked)
    return [str(p) for p in refusals], [str(p) for p in warnings]


def spec(**fields: Any) -> Change:
    return lambda document: document["spec"].update(fields)


def pod(**fields: Any) -> Change:
    return lambda document: pod_template(document)["spec"].update(fields)


def labels(**values: str) -> Change:
    return lambda document: document["metadata"].update(labels={k.replace("__", "/"): v for k, v in values.items()})


def queued(document: Document, name: str) -> None:
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": name}


def in_order(document: Document) -> None:
    second = {**copy.deepcopy(document["spec"]["replicatedJobs"][0]), "name": "second"}
    second["dependsOn"] = [{"name": "node", "status": "Complete"}]
    document["spec"]["replicatedJobs"].append(second)
    document["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}


NO_FIELD = (
    "the cluster's JobSet has no such field. "
    "Hint: a newer JobSet may have it: upgrade JobSet in the cluster, or leave the field out"
)
DENIED = 'admission webhook "vjobset.kb.io" denied the request: '
REFUSED: list[tuple[str, Change, list[str]]] = [
    (
        "unknown fields and wrong types at once",
        spec(one=1, two=2, suspend="x", ttlSecondsAfterFinished=-5),
        [
            f"JobSet/a.spec.one: {NO_FIELD}",
            f"JobSet/a.spec.two: {NO_FIELD}",
            'JobSet/a.spec.suspend: spec.suspend in body must be of type boolean: "string"',
            "JobSet/a.spec.ttlSecondsAfterFinished: spec.ttlSecondsAfterFinished in body should be greater than or equal to 0",
        ],
    ),
    ("a rule of the CRD", in_order, ["JobSet/a.spec: StartupPolicy and DependsOn APIs are mutually exclusive"]),
    (
        "JobSet's webhook",
        spec(successPolicy={"operator": "All", "targetReplicatedJobs": ["nobody"]}),
        [
            'JobSet/a: admission webhook "vjobset.kb.io" denied the request: Internal error: invalid replicatedJob name'
            " 'nobody' does not appear in .spec.ReplicatedJobs"
        ],
    ),
    (
        "a webhook that names fields",
        spec(network={"subdomain": "x_y"}),
        [
            f'JobSet/a.spec.network.subdomain: {DENIED}Invalid value: "x_y": a lowercase RFC 1123 subdomain must',
            f'JobSet/a.spec.network.subdomain: {DENIED}Invalid value: "x_y": a DNS-1035 label must',
        ],
    ),
    (
        "what only the API server checks",
        labels(team="no pe"),
        ['JobSet/a.metadata.labels: Invalid value: "no pe": a valid label must be an empty string or consist of'],
    ),
]


@pytest.mark.parametrize(("change", "refusals"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_the_server_would_refuse(
    target: KubernetesTarget, namespace: str, change: Change, refusals: list[str]
) -> None:
    document = jobset("a")
    change(document)
    found, warnings = told(target, draft(namespace, document))
    assert len(found) == len(refusals) and not warnings
    assert all(text.startswith(start) for text, start in zip(found, refusals, strict=True)), found
    assert not left(target.client, namespace), "a dry run leaves nothing"


REFERENTS: list[tuple[Change, str, str]] = [
    (pod(runtimeClassName="kata"), f"{POD}.runtimeClassName", "RuntimeClass kata does not exist"),
    (pod(priorityClassName="high"), f"{POD}.priorityClassName", "PriorityClass high does not exist"),
    (
        pod(serviceAccountName="robot"),
        f"{POD}.serviceAccountName",
        "ServiceAccount robot does not exist in namespace {}",
    ),
    (
        pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]),
        f"{POD}.volumes[0].persistentVolumeClaim.claimName",
        "PersistentVolumeClaim data does not exist in namespace {}",
    ),
    (
        pod(volumes=[{"name": "v", "secret": {"secretName": "key"}}]),
        f"{POD}.volumes[0].secret.secretName",
        "Secret key does not exist in namespace {}",
    ),
    (
        pod(volumes=[{"name": "v", "configMap": {"name": "settings"}}]),
        f"{POD}.volumes[0].configMap.name",
        "ConfigMap settings does not exist in namespace {}",
    ),
    (
        labels(**{"kueue.x-k8s.io__queue-name": "team", "kueue.x-k8s.io__priority-class": "default"}),
        "JobSet/a.metadata.labels[kueue.x-k8s.io/queue-name]",
        "LocalQueue team does not exist in namespace {}",
    ),
]


@pytest.mark.parametrize(("change", "where", "why"), REFERENTS, ids=[row[2].split()[0] for row in REFERENTS])
def test_what_pods_refer_to_is_an_error_of_the_plan_and_of_the_creation(
    target: KubernetesTarget, namespace: str, change: Change, where: str, why: str
) -> None:
    document = jobset("a")
    change(document)
    queue = "set trainer:namespace to the namespace of that queue, or create it (depends_on)"
    expected = f"{where}: {why.format(namespace)}. Hint: {queue if 'LocalQueue' in why else CREATE}"
    refusals, warnings = told(target, draft(namespace, document))
    assert expected in refusals and warnings == []
    kind, name = why.split()[:2]
    for made in ({"promised": [f"{kind}/{name}"]}, {"awaited": [f"{kind}/{name}"]}, {"awaited": [f"{kind}/"]}):
        refusals, warnings = told(target, draft(namespace, document, **made))
        assert expected not in refusals and warnings == [], "what the program makes"
    refusals, warnings = told(target, draft(namespace, document, awaited=["*"]))
    assert refusals == [] and expected in warnings, "which it may make"
    with pytest.raises(Invalid) as error:
        target.jobs.create(submission(namespace, document))
    assert expected in map(str, error.value.problems)
    assert not left(target.client, namespace), "nothing was sent"


def test_what_is_there_is_no_matter(target: KubernetesTarget, admin: ApiClient, namespace: str) -> None:
    core = official.CoreV1Api(admin)
    document = jobset("a")
    pod(
        serviceAccountName="robot",
        volumes=[
            {"name": "v", "secret": {"secretName": "key"}},
            {"name": "w", "configMap": {"name": "nowhere", "optional": True}},
        ],
    )(document)
    with pytest.raises(Invalid):
        target.jobs.create(submission(namespace, document))
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "robot"}})
    core.create_namespaced_secret(namespace, {"metadata": {"name": "key"}})
    target.jobs.create(submission(namespace, document))  # what was missing before is looked for again
    assert told(target, draft(namespace, document, digest="another")) == ([], [])


def test_a_pull_secret_may_be_missing(target: KubernetesTarget, namespace: str) -> None:
    document = jobset("a")
    pod(imagePullSecrets=[{"name": "pull"}])(document)
    why = f"Secret pull does not exist in namespace {namespace}. Hint: without it only public images can be pulled"
    assert told(target, draft(namespace, document)) == ([], [f"{POD}.imagePullSecrets[0].name: {why}"])
    target.jobs.create(submission(namespace, document))


def test_a_queue_that_takes_no_jobs(target: KubernetesTarget, namespace: str) -> None:
    meta = {"name": "team", "namespace": namespace}
    queue = {"apiVersion": LOCAL_QUEUE.api_version, "kind": "LocalQueue", "metadata": meta}
    target.client.create(LOCAL_QUEUE, {**queue, "spec": {"clusterQueue": "nowhere"}})
    until(lambda: (target.client.get(LOCAL_QUEUE, namespace, "team") or {}).get("status", {}).get("conditions"))
    document = jobset("a")
    queued(document, "team")
    assert told(target, draft(namespace, document)) == (
        [],
        [
            "JobSet/a.metadata.labels[kueue.x-k8s.io/queue-name]: LocalQueue team admits no jobs now: Can't submit new"
            " workloads to clusterQueue (ClusterQueueDoesNotExist)"
        ],
    )
    target.jobs.create(submission(namespace, document))
    assert (target.client.get(JOBSET, namespace, "a") or {})["spec"]["suspend"] is True


def test_a_namespace_that_is_not_there_yet(target: KubernetesTarget) -> None:
    why = f"namespace: namespace nowhere-yet does not exist. Hint: {CREATE}"
    assert told(target, draft("nowhere-yet", jobset("a"))) == ([why], [])
    assert told(target, draft("nowhere-yet", jobset("a"), awaited=["Namespace/nowhere-yet"])) == ([], [])
    with pytest.raises(Invalid) as error:
        target.jobs.create(submission("nowhere-yet", jobset("a")))
    assert str(error.value) == why


def test_what_is_not_known_yet_is_not_judged(target: KubernetesTarget, namespace: str) -> None:
    document = jobset("a")
    pod_template(document)["spec"]["containers"][0]["image"] = Unknown("1")
    spec(one=1)(document)
    assert told(target, draft(namespace, document)) == ([f"JobSet/a.spec.one: {NO_FIELD}"], [])
    assert told(target, draft(Unknown("2"), document)) == ([f"JobSet/a.spec.one: {NO_FIELD}"], [])


def test_a_policy_of_the_cluster(target: KubernetesTarget, namespace: str, policy: str) -> None:
    refusals, _ = told(target, draft(namespace, jobset("a")))
    assert refusals == [
        f"JobSet/a: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: a label team is required"
    ]
    document = jobset("a")
    labels(team="vision")(document)
    assert told(target, draft(namespace, document)) == ([], [])


@pytest.fixture
def policy(admin: ApiClient, namespace: str) -> Iterator[str]:
    """JobSets of the namespace must have a label."""
    rules = {"apiGroups": [JOBSET.group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["jobsets"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    wanted = {"expression": "has(object.metadata.labels) && 'team' in object.metadata.labels"}
    api = official.AdmissionregistrationV1Api(admin)
    meta = {"metadata": {"name": namespace}}
    api.create_validating_admission_policy(
        {
            **meta,
            "spec": {
                "matchConstraints": {"namespaceSelector": here, "resourceRules": [rules]},
                "validations": [{**wanted, "message": "a label team is required"}],
            },
        }
    )
    api.create_validating_admission_policy_binding(
        {**meta, "spec": {"policyName": namespace, "validationActions": ["Deny"]}}
    )
    jobs = official.CustomObjectsApi(admin)

    def denied() -> bool:
        try:
            jobs.create_namespaced_custom_object(
                JOBSET.group, "v1alpha2", namespace, "jobsets", jobset("probe"), dry_run="All"
            )
        except official.ApiException as error:
            return "denied request" in str(error.body)
        return False

    until(denied)
    yield namespace
    api.delete_validating_admission_policy_binding(namespace)
    api.delete_validating_admission_policy(namespace)


class TestNamesInUse:
    def test_by_somebody_else(self, target: KubernetesTarget, admin: ApiClient, namespace: str) -> None:
        jobs = official.CustomObjectsApi(admin)
        jobs.create_namespaced_custom_object(
            JOBSET.group, "v1alpha2", namespace, "jobsets", jobset("a"), field_manager="kubectl-create"
        )
        other = jobset("a", pods=2)
        (refusal,), _ = told(target, draft(namespace, other))
        assert refusal.startswith("JobSet/a: exists since ") and re.search(
            "was created by (jobset, )?kubectl-create", refusal
        )
        assert refusal.endswith(". Hint: give the TrainJob another name, or take the job over with adopt=True")
        assert told(target, draft(namespace, jobset("a"), adopt=True)) == ([], [])

    def test_by_the_run_that_this_one_replaces(self, target: KubernetesTarget, namespace: str) -> None:
        """Fields that cannot change in place are no matter: the change is a replacement."""
        target.jobs.create(submission(namespace, jobset("a")))
        fresh = KubernetesTarget(target.client, cluster=lambda: "")
        assert told(fresh, draft(namespace, jobset("a", pods=2), digest="another")) == ([], [])
        refusals, _ = told(fresh, draft(namespace, jobset("a", network={"subdomain": "x_y"}), digest="another"))
        assert "JobSet/a.spec.network.subdomain" in refusals[0]


class TestRequests:
    @staticmethod
    def counted(target: KubernetesTarget, drafts: list[Draft]) -> int:
        before = target.client.requests
        for each in drafts:
            assert target.jobs.review(each) == ([], [])
        return target.client.requests - before

    def test_unchanged_jobs_make_none_of_their_own(self, target: KubernetesTarget, namespace: str) -> None:
        for i in range(3):
            target.jobs.create(submission(namespace, jobset(f"job-{i}", suspend=True)))
        fresh = KubernetesTarget(target.client, cluster=lambda: "")
        drafts = [draft(namespace, jobset(f"job-{i}", suspend=True)) for i in range(3)]
        assert self.counted(fresh, drafts[:1]) == 2, "the records and the jobs of the namespace"
        assert self.counted(fresh, drafts) == 0

    def test_jobs_that_differ_in_their_names_share_all(self, target: KubernetesTarget, namespace: str) -> None:
        drafts = [draft(namespace, jobset(f"job-{i:02}")) for i in range(20)]
        first = self.counted(target, drafts[:1])
        assert self.counted(target, drafts) == 0 and first <= 12
        assert self.counted(target, [draft(namespace, jobset(f"job-{i:02}", pods=2)) for i in range(20)]) == 1


class TestWithoutACluster:
    def test_one_warning_and_no_second_try(self, tmp_path: Path) -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            target = opened(kubeconfig(tmp_path, f"http://127.0.0.1:{closed.getsockname()[1]}"))
            refusals, (warning,) = told(target, draft("default", jobset("a")))
            assert refusals == [] and warning.startswith("checked without the cluster: ")
            assert "Connection refused" in warning and "is the cluster up" in warning
            sent = target.client.requests
            assert told(target, draft("default", jobset("b"))) == ([], [warning])
            assert told(target, draft(Unknown("1"), jobset("b")))[0] == []
            again = target.client.requests
            assert told(target, draft(Unknown("1"), jobset("c")))[0] == [] and target.client.requests == again >= sent

    def test_a_server_that_does_not_answer(self, tmp_path: Path) -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            target = opened(kubeconfig(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}"))
            refusals, (warning,) = told(target, draft("default", jobset("a")))
            assert refusals == [] and "timed out" in warning

    def test_no_kubeconfig(self, tmp_path: Path) -> None:
        refusals, (warning,) = told(opened(tmp_path / "none"), draft("default", jobset("a")))
        assert (
            refusals == [] and warning.startswith("checked without the cluster: ") and str(tmp_path / "none") in warning
        )


PROGRAM = """
def work():
    pass

def job(name, **more):
    return trainer.TrainJob(name, name=name, runtime=plain, trainer=trainer.CustomTrainer(func=work), **more)

job("right", labels={"team": "vision"}, output=True)
job("one", queue="team", runtime_patches=[trainer.RuntimePatch(
    manager="me.dev/me", jobs=[trainer.JobPatch(name="node", pod=trainer.PodPatch(service_account_name="robot"))],
)])
job("two", labels={"team": "vision"})
"""


class TestPrograms:
    @pytest.fixture
    def stack(self, request: pytest.FixtureRequest, user_kubeconfig: Path, namespace: str) -> Project:
        made: Project = request.getfixturevalue("project")
        made.program(PROGRAM)
        made.config("trainer:target", "kubernetes")
        made.config("trainer:kubeconfig", str(user_kubeconfig))
        made.config("trainer:namespace", namespace)
        return made

    def test_all_problems_of_all_jobs_at_once(
        self, stack: Project, admin: ApiClient, namespace: str, policy: str, target: KubernetesTarget
    ) -> None:
        jobs = official.CustomObjectsApi(admin)
        theirs = jobset("two")
        labels(team="vision")(theirs)
        jobs.create_namespaced_custom_object(JOBSET.group, "v1alpha2", namespace, "jobsets", theirs)
        before = left(target.client, namespace)
        out = stack.preview(ok=False).out
        assert "4 problems found. These resources were not created or changed:" in out
        assert 'TrainJob("one") (__main__.py:' in out and "denied request: a label team is required" in out
        assert 'TrainJob("two") (__main__.py:' in out and ".JobSet/two: exists since" in out
        assert f"LocalQueue team does not exist in namespace {namespace}. Hint: set trainer:namespace to" in out
        assert f"ServiceAccount robot does not exist in namespace {namespace}. Hint: {CREATE}" in out
        assert "PersistentVolumeClaim" not in out, "the volume is the program's own"
        assert "Traceback" not in out and left(target.client, namespace) == before

    def test_without_the_cluster_there_is_a_plan(self, stack: Project, tmp_path: Path) -> None:
        stack.config("trainer:kubeconfig", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
        out = stack.preview().out
        said = out.partition("Diagnostics:")[2]
        assert said.count("checked without the cluster") == 1 and "to create" in said, out


def kubeconfig(folder: Path, server: str) -> Path:
    file = folder / "kubeconfig"
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    content = {
        "current-context": "c",
        "contexts": [context],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    file.write_text(str(content).replace("'", '"'))
    return file


def test_permissions_that_are_missing(cluster: Any, namespace: str) -> None:
    target = opened(cluster.kubeconfig_for(f"nobody-{namespace}"))
    (refusal,), warnings = told(target, draft(namespace, jobset("a")))
    assert refusal.startswith("permissions: the credentials may not ")
    assert "create, " in refusal and "jobsets.jobset.x-k8s.io" in refusal and f"in namespace {namespace}" in refusal
    assert refusal.endswith("`pulumi-trainer rbac` prints the Role and its binding") and not warnings


def test_the_least_role_is_enough(user_kubeconfig: Path, namespace: str) -> None:
    assert told(opened(user_kubeconfig), draft(namespace, jobset("a"))) == ([], [])


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster.start(tmp_path_factory.mktemp("changed"), components=("kcm", "jobset", "kueue"))
    yield made
    made.stop()


class TestChangedClusters:
    """Newer, older and broken ones."""

    @pytest.fixture
    def root(self, changed: Cluster, tmp_path: Path) -> Client:
        return opened(Path(shutil.copy(changed.kubeconfig, tmp_path / "root"))).client

    @pytest.fixture
    def ask(self, changed: Cluster, tmp_path: Path) -> Callable[[Document], tuple[list[str], list[str]]]:
        """What another process is told."""
        count = itertools.count()

        def ask(document: Document) -> tuple[list[str], list[str]]:
            target = opened(Path(shutil.copy(changed.kubeconfig, tmp_path / f"process-{next(count)}")))
            return told(target, draft("default", document))

        return ask

    def test_newer_fields_and_stricter_rules(self, root: Client, ask: Ask) -> None:
        def newer(spec: Document) -> None:
            spec["properties"]["flavour"] = {"type": "string", "maxLength": 4}
            rule = {"rule": "self.replicatedJobs.all(r, r.replicas <= 2)", "message": "two replicas at most"}
            spec["x-kubernetes-validations"].append(rule)

        many = jobset("a")
        many["spec"]["replicatedJobs"][0]["replicas"] = 3
        with changed_definition(root, newer):
            assert ask(jobset("a", flavour="mint")) == ([], [])
            assert ask(many) == (["JobSet/a.spec: two replicas at most"], [])
            long = "JobSet/a.spec.flavour: may not be more than 4 bytes"
            assert ask(jobset("a", flavour="vanilla")) == ([long], [])
        assert ask(many) == ([], [])

    def test_rules_that_only_a_server_can_work_out(self, root: Client, ask: Ask) -> None:
        def stricter(spec: Document) -> None:
            rule = {"rule": "ip('10.0.0.1').family() == 6", "message": "never"}
            spec["x-kubernetes-validations"].append(rule)

        with changed_definition(root, stricter):
            (refusal,), _ = ask(jobset("a"))
            assert refusal.startswith("JobSet/a.spec: Invalid value: ") and refusal.endswith("never")

    def test_a_webhook_that_is_down(self, changed: Cluster, tmp_path: Path) -> None:
        target = opened(Path(shutil.copy(changed.kubeconfig, tmp_path / "all-rights")))
        changed.kill("jobset")
        try:
            refusals, (warning,) = told(target, draft("default", jobset("a")))
            assert refusals == [] and warning.startswith(
                "JobSet/a: could not be checked in the cluster: Internal error"
            )
            assert "failed calling webhook" in warning
            assert warning.endswith(". Hint: is the controller running that this webhook belongs to?")
            sent = target.client.requests
            assert told(target, draft("default", jobset("b", pods=2))) == ([], []), "it is told once"
            assert target.client.requests <= sent + 2, "and not tried again: at most the lists of all jobs"
        finally:
            changed.restart("jobset")

    def test_a_queue_in_a_cluster_where_kueue_leaves_jobsets_alone(self, root: Client, ask: Ask) -> None:
        def unmanaged() -> list[str]:
            return [warning for warning in ask(document)[1] if "Kueue" in warning]

        document = jobset("a")
        queued(document, "team")
        assert unmanaged() == []
        webhooks = Kind("admissionregistration.k8s.io/v1", "", "mutatingwebhookconfigurations", False)
        kueue = next(h["metadata"]["name"] for h in root.list(webhooks)[0] if "kueue" in h["metadata"]["name"])
        root.delete(webhooks, "", kueue)
        assert until(unmanaged) == [
            "JobSet/a.metadata.labels[kueue.x-k8s.io/queue-name]: Kueue does not manage JobSets in this cluster: the job would"
            " start at once, without a quota. "
            "Hint: add jobset.x-k8s.io/jobset to integrations.frameworks of Kueue's configuration"
        ]

    def test_no_trainer_in_the_cluster(self, changed: Cluster, tmp_path: Path) -> None:
        """Nobody has installed it here."""
        spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {}}
        job = {"apiVersion": TRAIN_JOB.api_version, "kind": "TrainJob", "metadata": {"name": "a"}, "spec": spec}
        target = opened(Path(shutil.copy(changed.kubeconfig, tmp_path / "all-rights")))
        why = "TrainJob/a: the cluster has no Kubeflow Trainer (trainer.kubeflow.org/v1alpha1). "
        why += "Hint: install Kubeflow Trainer 2.2"
        refusals, warnings = told(target, Draft("default", "a", "digest", {"TrainJob/a": job}))
        assert warnings == [] and [r for r in refusals if r.startswith(why) and r.endswith("before the job")], refusals
        with pytest.raises(Invalid) as error:
            target.jobs.create(submission("default", job, code=False))
        assert str(error.value).startswith(why)


@contextmanager
def changed_definition(root: Client, change: Callable[[Document], None]) -> Iterator[None]:
    """JobSet's CRD with another schema of `spec`, from when the server describes it so until it has the old one again."""
    name = "jobsets.jobset.x-k8s.io"
    before = (root.get(DEFINITION, "", name) or {})["spec"]["versions"]
    after = copy.deepcopy(before)
    change(after[0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    described = root.read(openapi.path(JOBSET))
    root.patch(DEFINITION, "", name, {"spec": {"versions": after}})
    until(lambda: root.read(openapi.path(JOBSET)) != described)
    try:
        yield
    finally:
        root.patch(DEFINITION, "", name, {"spec": {"versions": before}})
        until(lambda: root.read(openapi.path(JOBSET)) == described)
