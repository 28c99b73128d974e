"""What is refused in a `TeamNamespace`, and in a list of them for `GpuQueues`."""

from __future__ import annotations

from typing import Any

import pulumi_trainer as trainer
import pytest
from pulumi_trainer.queues.teams import read_teams
from test_podgroups import problems

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"share": 16}, "share: must be Team(...), not 16"),
    ({"share": trainer.Team(gpus=1, namespace="x")}, "share.namespace: has a namespace, which is the one that"),
    ({"groups": "nlp"}, "groups: must be a list, not str"),
    ({"groups": ["nlp", "nlp"]}, "groups[1]: nlp is a duplicate"),
    ({"users": [""]}, "users[0]: must be a name, not ''"),
    ({"quota": {"pods": "many"}}, "quota[pods]: "),
    ({"quota": {"p ods": 3}}, "quota[p ods]: 'p ods' is not a valid resource name"),
    ({"quota": 3}, "quota: must be a mapping"),
    ({"pod_security": "strict"}, "pod_security: "),
    ({"hardening": "baseline"}, "hardening: "),
    ({"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}, "pod_security= sets this label"),
    ({"name": "Team_A"}, "name: 'Team_A' is not a valid name of a namespace"),
    ({"name": 5}, "name: must be text, not 5"),
    ({"egress": ["10.0.0.0/8"]}, "egress[0]: must be Egress(...)"),
    ({"member": ["jane"]}, "member: "),
]


@pytest.mark.parametrize(("given", "why"), REFUSED)
def test_all_that_is_wrong_names_its_place(given: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = problems(lambda: trainer.TeamNamespace("nlp", **given), monkeypatch)
    assert found and any(why in line for line in found), found
    assert all('TeamNamespace("nlp") (test_team_namespaces.py' in line for line in found)


def test_a_list_of_teams(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> None:
        numbers: Any = trainer.TeamNamespace("numbers", share=16)  # type: ignore[arg-type]  # it says so itself
        nlp = trainer.TeamNamespace("nlp", share=trainer.Team(gpus=1, borrowing=2))
        shares, places, refused = read_teams([nlp, nlp, trainer.TeamNamespace("guests"), "vision", numbers])
        assert (shares["nlp"].gpus, shares["nlp"].borrowing, shares["nlp"].namespace) == (1, 2, "nlp")
        assert places == {"nlp": nlp}
        assert [*map(str, refused)] == [
            "teams[1]: nlp is a duplicate",
            "teams[2]: guests has no share of the GPUs. "
            "Hint: give TeamNamespace('guests', share=Team(gpus=...)), or leave it out here",
            "teams[3]: must be a TeamNamespace, not 'vision'",
        ]

    problems(make, monkeypatch)
    given = {"nlp": 8}
    assert read_teams(given) == (given, {}, [])
