"""`JobPolicy`: the rules of a platform team, as infrastructure code of the API server."""

from __future__ import annotations

from tests.documented import blocks

from .conftest import Project
from .test_cluster_refusals import api  # noqa: F401
from .test_object_owners import Store, store  # noqa: F401

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MADE = {
    f"{ADMISSION}/{kind}/{name}"
    for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    for name in ("rules", "rules-trainjobs")
}
PROGRAM = """
import pulumi_trainer as trainer

rules = trainer.JobRules(registries=["ghcr.io/acme"], gpus={"": 16}, queue=True)
trainer.JobPolicy("rules", rules=rules, namespaces=["nlp"])
"""


def test_rules_are_policies_of_the_cluster(project: Project, store: Store) -> None:  # noqa: F811
    project.program(PROGRAM, head="")
    project.up()
    assert {*store.stored} == MADE
    project.preview("--expect-no-changes")
    (project.folder / "policy.yaml").write_text("gpus: {'': 8}\n")
    project.program(PROGRAM.replace("rules=rules", 'rules="policy.yaml"'), head="")
    project.up()
    assert {*store.stored} == {path for path in MADE if "-trainjobs" not in path}
    (policy,) = (store.stored[path]["spec"] for path in store.stored if "policies/" in path)
    assert [each["message"] for each in policy["validations"]] == ["gpus: a job may have at most 8 GPUs"]
    project.destroy()
    assert not store.stored


def test_the_guide(project: Project, store: Store) -> None:  # noqa: F811
    (page,) = (block.text for block in blocks("docs/policies.md", __file__))
    (project.folder / "policy.yaml").write_text("gpus: {'': 8}\n")
    project.program(page, head="")
    project.up()
    bindings = {path.rpartition("/")[2]: each["spec"] for path, each in store.stored.items() if "bindings/" in path}
    assert {name: spec["validationActions"] for name, spec in bindings.items()} == {
        "rules": ["Deny"],
        "images": ["Warn", "Audit"],
    }
    assert len(store.stored) == 4


def test_rules_that_no_server_can_judge_are_refused(project: Project, store: Store) -> None:  # noqa: F811
    project.program(
        PROGRAM.replace('registries=["ghcr.io/acme"], gpus={"": 16}, queue=True', 'channels=["stable"]')
        + 'trainer.JobPolicy("other", rules=trainer.JobRules(registries="ghcr.io", team_gpus={"a": -1}))\n'
        + 'trainer.JobPolicy("none", rules="none.yaml", namespaces=["A"])\n',
        head="",
    )
    said = project.preview(ok=False).out
    for line in (
        'JobPolicy("rules") (__main__.py:5).rules: a server can judge none of them: channels. Hint: set trainer:policy',
        "rules.registries: must be a list, not 'ghcr.io'",
        "namespaces[0]: 'A' is not a valid name: a lowercase",
        "none.yaml: cannot be read: No such file or directory",
    ):
        assert line in said, said
    assert not store.stored
