"""`policy render` and `policy pack`: what judges jobs by a file of rules where no program does. Loads no client of a cluster."""

from __future__ import annotations

import json
from pathlib import Path

from pulumi_trainer.provider.cli import documents
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.accessors import Document
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_label, name_problems
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.machine.atomic_files import replace_file
from pulumi_trainer.provider.trainer.policy import rules as rules_module
from pulumi_trainer.provider.trainer.policy.admission_policies import (
    render_policies,
    render_user_policy,
    rules_elsewhere,
)
from pulumi_trainer.provider.trainer.policy.reading import read_rules, to_document

_PACK = '''"""A policy pack of Pulumi, made by `pulumi-trainer policy pack`: the rules are in rules.json."""

import json
from pathlib import Path

from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy

from rules import JobRules, find_broken

JOB = "pulumi-python:dynamic/trainer:JobSet"
RULES = JobRules(**json.loads(Path(__file__).with_name("rules.json").read_text()))
LISTS = ("images", "host_access")  # pulumi_policy has lists of its own, which stop at unknown values
LEVELS = {"deny": EnforcementLevel.MANDATORY, "warn": EnforcementLevel.ADVISORY}


def check(resource, report_violation):
    if resource.resource_type == JOB and "summary" in resource.props:
        given = resource.props["summary"]
        job = {name: [*given[name]] if name in LISTS else given[name] for name in given}
        for broken in find_broken(RULES, job):
            report_violation(f"{resource.name}: {broken.why} ({broken.rule}). Hint: {broken.hint}")


PolicyPack(
    "training-jobs",
    [ResourceValidationPolicy("job-rules", "Jobs keep the rules of the platform team.", check, LEVELS[RULES.action])],
)
'''
_SETTINGS = """description: Rules of the platform team about training jobs.
runtime:
  name: python
  options:
    virtualenv: venv
"""
_REQUIREMENTS = "pulumi-policy==1.21.0\n"


def print_policies(file: str | None, name: str, namespaces: list[str], *, users: bool = False) -> None:
    """Print the ValidatingAdmissionPolicies of a file of rules, and which rules no server can judge."""
    wrong = list[Problem]()
    for option, given in (("--name", name), *(("--namespace", each) for each in namespaces)):
        wrong += name_problems(option, given, dns_1123_label)
    if file is None and not users:
        wrong.append(Problem("FILE", "is missing", "name a file of rules, or --users"))
    if wrong:
        raise Invalid(*wrong)
    made = render_user_policy(f"{name}-users", namespaces) if users else []
    if file is not None:
        made = [*_policies_of_rules(file, name, namespaces), *made]
    documents.print_objects(made, "yaml")


def _policies_of_rules(file: str, name: str, namespaces: list[str]) -> list[Document]:
    rules = read_rules(Path(file))
    elsewhere, made = rules_elsewhere(rules), render_policies(rules, name, namespaces)
    if elsewhere:
        names = join_names([*map(rules_module.in_file, elsewhere)])
        print_line(f"# Not here, as one object does not show it: {names}. Plans check them.")
    if not made:
        raise Invalid(Problem(file, "has no rule that a server can judge"))
    return made


def write_pack(file: str, folder: str) -> None:
    """Write a policy pack of Pulumi with the rules of a file into a new folder, or over a pack that is there."""
    rules, place = read_rules(Path(file)), Path(folder)
    if place.exists() and not (place / "rules.json").is_file() and any(place.iterdir()):
        raise Invalid(Problem(folder, "has other files", "give a new folder"))
    files = {
        "PulumiPolicy.yaml": _SETTINGS,
        "requirements.txt": _REQUIREMENTS,
        "__main__.py": _PACK,
        "rules.py": Path(rules_module.__file__).read_text(encoding="utf-8"),
        "rules.json": f"{json.dumps(to_document(rules), indent=2)}\n",
    }
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            replace_file(place / name, content.encode())
    except OSError as error:
        raise Invalid(Problem(folder, f"cannot be written: {error.strerror or error}")) from None
    print_line(f"wrote {folder}; install what it needs, then use it:")
    print_line(f"  python -m venv {folder}/venv && {folder}/venv/bin/pip install -r {folder}/requirements.txt")
    print_line(f"  pulumi preview --policy-pack {folder}")
