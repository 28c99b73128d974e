"""The text beside each runtime of the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest
from pulumi_trainer import runtimes

FOLDER = Path(__file__).parents[2] / "runtimes"


@pytest.mark.parametrize("name", runtimes.names())
def test_begins_with_what_the_list_says(name: str) -> None:
    first, empty, *how = (FOLDER / name / "README.md").read_text("utf-8").splitlines()
    assert first == f"{runtimes.about(name)['purpose']}."
    assert empty == ""
    assert 3 <= len(how) <= 10


@pytest.mark.parametrize("name", runtimes.names())
def test_tells_sizes_as_they_are(name: str) -> None:
    """GPUs and volumes of the newest release, where it has any."""
    text = " ".join((FOLDER / name / "README.md").read_text("utf-8").split())
    spec = runtimes.load(name)["spec"]["template"]["spec"]
    containers = [c for s in spec["replicatedJobs"] for c in s["template"]["spec"]["template"]["spec"]["containers"]]
    for gpus in [c["resources"]["limits"]["nvidia.com/gpu"] for c in containers if "resources" in c]:
        assert f"asks for {gpus} GPUs" in text
    for claim in [t["spec"] for p in spec.get("volumeClaimPolicies", []) for t in p["templates"]]:
        assert f"`{claim['resources']['requests']['storage']}`" in text
        assert ("ReadWriteMany" in text) == ("ReadWriteMany" in claim["accessModes"])
    assert ("One node only" in text) == (runtimes.about(name)["nodes"] == "one")
