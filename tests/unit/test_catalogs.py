"""A user's own catalogue: its lock, what is refused of a folder, of a package and of a git repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer import runtimes
from pulumi_trainer.channel import _offer
from pulumi_trainer.plan.offer import Offer
from pulumi_trainer.plan.runtime_ref import _followed
from pulumi_trainer.provider.cli import releases as commands
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.trainer.catalog import git
from pulumi_trainer.provider.trainer.labels import FRAMEWORK, RELEASE
from pulumi_trainer.provider.trainer.releases import DEFAULT
from pulumi_trainer.provider.trainer.runtime_releases import CARRIED
from pulumi_trainer.runtime import RuntimeArgs, runtime_document
from pulumi_trainer.runtimes import RuntimeCatalog


def written(folder: Path, release: str, name: str = "mine", **changes: Any) -> Path:
    """A file of a catalogue. changes: image, env."""
    document = runtimes.load("torch-distributed")
    metadata = document["metadata"]
    metadata["name"] = name
    for part in ("labels", "annotations"):
        metadata[part][RELEASE] = release
    step = document["spec"]["template"]["spec"]["replicatedJobs"][0]
    container = step["template"]["spec"]["template"]["spec"]["containers"][0]
    container.update(changes)
    file = folder / name / f"{release}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(document))
    return file


def variables(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "value": "1"} for name in names]


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """1.0.0 and 1.1.0, released."""
    made = tmp_path / "catalogue"
    written(made, "1.0.0")
    written(made, "1.1.0", env=variables("A"))
    assert commands.check(str(made), "text", DEFAULT, lock=True) == 0
    capsys.readouterr()
    return made


def refused(catalog: RuntimeCatalog, *call: Any) -> str:
    with pytest.raises(Invalid) as caught:
        catalog.load(*(call or ("mine", "1.0.0")))
    return str(caught.value)


@pytest.mark.parametrize("given", [(), ("x",), ("x", "url"), (Path("x"), "v1", 3)])
def test_a_catalogue_that_says_no_place_is_refused_where_it_is_used(given: tuple[Any, ...]) -> None:
    for made, shown in ((RuntimeCatalog(*given), given), (RuntimeCatalog(url="x"), ())):
        said = refused(made)
        assert "not the location of a catalogue. Hint: use RuntimeCatalog.from_dir(folder), from_git(url, ref)" in said
        assert "from_package(package)" in said and all(repr(value) in said for value in shown)
    assert "url='x'" in refused(RuntimeCatalog(url="x"))


def test_a_folder(folder: Path) -> None:
    catalog = RuntimeCatalog.from_dir(folder)
    assert (catalog.names(), catalog.releases("mine")) == (["mine"], ["1.0.0", "1.1.0"])
    assert catalog.load("mine")["metadata"]["labels"][RELEASE] == "1.1.0"
    catalog.load("mine")["metadata"].clear()
    assert catalog.load("mine")["metadata"]["name"] == "mine"
    assert "'mien' is not a runtime of the catalogue" in refused(catalog, "mien")
    assert "did you mean 1.1.0 or 1.0.0" in refused(catalog, "mine", "1.0")


@pytest.mark.parametrize("hidden", ["\x1b[1A\x1b[2K", "\u202e", "\r", "\x9b"])
def test_control_characters_could_hide_a_part_of_a_plan(tmp_path: Path, hidden: str) -> None:
    written(tmp_path, "1.0.0", env=[{"name": "A", "value": f"first\n{hidden}last"}])
    with pytest.raises(
        Invalid, match=r"containers\[0\]\.env\[0\]\.value: contains the control character '\\"
    ) as caught:
        RuntimeCatalog.from_dir(tmp_path).load_unlocked("mine", "1.0.0")
    assert hidden not in str(caught.value)
    written(tmp_path, "1.0.0", env=[{"name": "A", "value": "first\n\tlast \N{GREEK SMALL LETTER ALPHA}"}])
    RuntimeCatalog.from_dir(tmp_path).load_unlocked("mine", "1.0.0")


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    catalog = RuntimeCatalog.from_dir(tmp_path / "runtims")
    assert "runtims: is not a folder. Hint: a catalogue has" in refused(catalog)
    (tmp_path / "runtimes").mkdir()
    assert "runtims: is not a folder. Hint: did you mean runtimes?" in refused(catalog)


def test_a_release_that_was_edited(folder: Path) -> None:
    file = folder / "mine" / "1.0.0.yaml"
    file.write_text(file.read_text() + "# a better comment\n")
    assert "mine/1.0.0.yaml: was changed after its release" in refused(RuntimeCatalog.from_dir(folder))
    assert RuntimeCatalog.from_dir(folder).load("mine", "1.1.0")


def test_a_release_that_is_not_locked(folder: Path) -> None:
    written(folder, "1.2.0", env=variables("A", "B"))
    assert "is not released. Hint: `pulumi-trainer runtime check --lock`" in refused(
        RuntimeCatalog.from_dir(folder), "mine"
    )


@pytest.mark.parametrize(
    ("lock", "text"),
    [
        ("nonsense\n", "line 1: not a valid line of sha256sum"),
        (f"{'0' * 64}  ../../etc/passwd.yaml\n{'0' * 64}  mine/1.0.0.yaml\n", "was changed after its release"),
        (f"{'0' * 64}  mine/1.0.0.yaml\n" * 2, "line 2: duplicate entry mine/1.0.0.yaml"),
        ("", "is not in catalogue.lock"),
    ],
)
def test_a_lock_that_does_not_match(folder: Path, lock: str, text: str) -> None:
    (folder / "catalogue.lock").write_text(lock)
    assert text in refused(RuntimeCatalog.from_dir(folder))


def test_no_lock_at_all(folder: Path) -> None:
    (folder / "catalogue.lock").unlink()
    said = refused(RuntimeCatalog.from_dir(folder))
    assert "catalogue.lock: cannot be read: No such file" in said and "check --lock` creates the first one" in said


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "not valid YAML"),
        (b"\xff", "is not UTF-8"),
        (b"a: &a [*a]\n", "mine/2.0.0.yaml"),
        (b"- 1\n", "not an object of the API"),
        (b"apiVersion: v1\nkind: ConfigMap\n", "must hold one ClusterTrainingRuntime"),
        (b"apiVersion: v1\nkind: ClusterTrainingRuntime\n", "metadata.name: must be mine, like the name of its folder"),
        (b"apiVersion: v1\nkind: ClusterTrainingRuntime\nmetadata: {name: mine}\n", "metadata.labels: must have"),
        (b"x" * (2**20 + 1), "is longer than 1024 KiB"),
    ],
)
def test_a_file_that_is_no_release(folder: Path, content: bytes, text: str) -> None:
    (folder / "mine" / "2.0.0.yaml").write_bytes(content)
    with pytest.raises(Invalid) as caught:
        RuntimeCatalog.from_dir(folder).load_unlocked("mine", "2.0.0")
    assert text in str(caught.value)


def test_what_is_no_file_does_not_block(folder: Path) -> None:
    os.mkfifo(folder / "mine" / "2.0.0.yaml")
    with pytest.raises(Invalid, match="not a regular file"):
        RuntimeCatalog.from_dir(folder).load_unlocked("mine", "2.0.0")


def test_a_deprecated_release_whose_date_has_passed_is_not_offered(folder: Path) -> None:
    about = folder / "about.yaml"
    for date, over in (("2020-01-31", True), ("2999-01-31", False)):
        about.write_text(f'mine: {{deprecated: {{"1.0.0": {{date: {date}, successor: 1.1.0}}}}}}\n')
        catalog = RuntimeCatalog.from_dir(folder)
        found = catalog.deprecation("mine", "1.0.0")
        assert found is not None and found.is_over() is over
        assert ("1.0.0" in catalog.offered("mine")) is not over and "1.0.0" in catalog.releases("mine")
        assert catalog.load("mine", "1.0.0")["metadata"]["name"] == "mine", "jobs that have it keep it"
        passed = "runtime: mine@1.0.0 is deprecated and has not been offered since 2020-01-31. Hint: use 1.1.0"
        assert (str(found.warning()) == passed) is over
        assert ("1.0.0" in refused(catalog, "mine", "9.0.0").partition("available: ")[2]) is not over


def test_a_channel_carries_the_newest_patch_of_an_old_line(tmp_path: Path) -> None:
    newer = [f"1.1.{patch}" for patch in range(11)]
    for release in ("1.0.0", "1.0.1", *newer):
        file = written(tmp_path, release)
        document = yaml.safe_load(file.read_text())
        document["metadata"]["labels"]["example.com/fix"] = release
        file.write_text(yaml.safe_dump(document))
    assert commands.check(str(tmp_path), "text", DEFAULT, lock=True) == 0
    offer, known = _offer("stable", "mine@1.1.10", RuntimeCatalog.from_dir(tmp_path))
    assert known == ["1.0.0", "1.0.1", *newer] and [*offer.documents] == ["1.0.1", *newer[1:]]
    taken, note = _followed(offer, "patch", "1.0.0")
    assert taken == "1.0.1" and "this job has 1.0.0, and takes 1.0.1" in note
    assert len(offer.documents) <= 2 * CARRIED and Offer.read(offer.output) == offer


def test_a_draft_beside_the_release_of_a_channel_is_not_offered(folder: Path) -> None:
    written(folder, "1.2.0")
    catalog = RuntimeCatalog.from_dir(folder)
    offer, known = _offer("stable", "mine@1.1.0", catalog)
    assert known == ["1.0.0", "1.1.0"] == [*offer.documents]
    with pytest.raises(Invalid, match=r"is not in catalogue\.lock"):
        _offer("stable", "mine@1.2.0", catalog)


def test_credentials_in_an_address_are_not_printed() -> None:
    url = "https://oauth2:glpat-0123456789@gitlab.example/runtimes.git"
    for made in (
        RuntimeCatalog(url, "v1"), RuntimeCatalog(url=url), RuntimeCatalog.from_dir(url), RuntimeCatalog.from_package(url),
    ):  # fmt: skip
        said = refused(made)
        assert "gitlab.example" in said and "glpat" not in said


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ("mien: {deprecated: {1.0.0: {}}}", "about.yaml: mien"),
        ("mine: {deprecated: {1.0.9: {date: 2020-01-31}}}", "about.yaml: mine.deprecated"),
        ("mine: {deprecated: [1.0.0]}", "about.yaml: mine.deprecated: must be a mapping of releases"),
        ("mine: {withdrawn: {1.0.9: {reason: slow}}}", "about.yaml: mine.withdrawn"),
        ("mine: {withdrawn: {1.0.0: slow}}", "mine.withdrawn.1.0.0: must be {since: DATE, reason: TEXT}"),
        ("mine: {withdrawn: {1.0.0: {since: soon}}}", "mine.withdrawn.1.0.0.since: 'soon' is not a date"),
        ("mine: {withdrawn: {1.0.0: {since: 2026-01-31}}}", "mine.withdrawn.1.0.0.reason: must be one line"),
        ("mine: old", "about.yaml: mine: must be a mapping"),
    ],
)
def test_a_deprecation_of_nothing_is_a_problem(folder: Path, about: str, says: str) -> None:
    (folder / "about.yaml").write_text(about + "\n")
    (problem,) = RuntimeCatalog.from_dir(folder).problems()
    assert says in str(problem), str(problem)


def test_a_withdrawn_release_is_not_the_newest_one(folder: Path) -> None:
    catalog = RuntimeCatalog.from_dir(folder)
    newest = catalog.releases("mine")[-1]
    assert catalog.load("mine")["metadata"]["labels"][RELEASE] == newest
    (folder / "about.yaml").write_text(
        f"mine: {{withdrawn: {{{newest}: {{since: 2026-01-31, reason: it is slow}}}}}}\n"
    )
    catalog = RuntimeCatalog.from_dir(folder)
    assert str(catalog.withdrawal("mine", newest)) == f"mine@{newest} is withdrawn since 2026-01-31: it is slow"
    assert newest not in catalog.offered("mine")
    assert catalog.load("mine")["metadata"]["labels"][RELEASE] == catalog.releases("mine")[-2]


def test_a_release_gets_the_labels_of_the_program() -> None:
    given = RuntimeArgs("torch-distributed", release="2.3.0", labels={"team": "nlp"}, annotations={"owner": "x"})
    document, problems = runtime_document("ClusterTrainingRuntime", given)
    about = document["metadata"]
    assert problems == [] and about["labels"]["team"] == "nlp" and about["annotations"]["owner"] == "x"
    assert about["labels"][FRAMEWORK] == "torch"
    given = RuntimeArgs("torch-distributed", release="2.3.0", labels={FRAMEWORK: "jax"})
    _, (problem,) = runtime_document("ClusterTrainingRuntime", given)
    assert str(problem) == f"labels[{FRAMEWORK}]: is set by the release. Hint: leave it out"


def test_deprecation_is_no_part_of_a_release(folder: Path) -> None:
    about = folder / "about.yaml"
    about.write_text('mine: {purpose: to try, deprecated: {"1.0.0": {date: 2026-12-01, successor: 1.1.0}}}\n')
    catalog = RuntimeCatalog.from_dir(folder)
    told = str(catalog.deprecation("mine", "1.0.0"))
    assert told == "mine@1.0.0 is deprecated, and no longer offered from 2026-12-01 on; take 1.1.0"
    assert catalog.deprecation("mine", "1.1.0") is None and catalog.about("mine")["purpose"] == "to try"
    assert commands.check(str(folder), "text", DEFAULT, lock=False) == 0
    for wrong, text in {
        "{date: someday}": "'someday' is not a date", "{successor: 3.0.0}": "'3.0.0' is not a release",
        "soon": "must be {date: DATE",
    }.items():  # fmt: skip
        about.write_text(f'mine: {{deprecated: {{"1.0.0": {wrong}}}}}\n')
        with pytest.raises(Invalid) as caught:
            RuntimeCatalog.from_dir(folder).deprecation("mine", "1.0.0")
        assert text in str(caught.value)
    about.write_text("- a list\n")
    with pytest.raises(Invalid, match="must be one mapping"):
        RuntimeCatalog.from_dir(folder).about("mine")


def test_a_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder.parent))
    (folder / "__init__.py").touch()
    assert RuntimeCatalog.from_package("catalogue").load("mine", "1.0.0")["metadata"]["name"] == "mine"
    assert RuntimeCatalog.from_package("pulumi_trainer.runtimes").names() == runtimes.names()
    assert "is not a package of this environment" in refused(RuntimeCatalog.from_package("not_there"))
    assert "is not a package" in refused(RuntimeCatalog.from_package("nowhere.below"))


# The command


def check(folder: Path, capsys: pytest.CaptureFixture[str], lock: bool = False) -> tuple[int, str]:
    code = commands.check(str(folder), "text", DEFAULT, lock=lock)
    done = capsys.readouterr()
    return code, done.out + done.err


@pytest.mark.parametrize(
    ("release", "changes", "text"),
    [
        ("1.1.1", {"env": variables("A", "B")}, "the number of a patch release after 1.1.0, but its changes are minor"),
        ("1.2.0", {"env": variables()}, "the number of a minor release after 1.1.0, but its changes are major"),
        ("1.2.0", {"env": variables("A"), "command": ["x"]}, "number it 2.0.0 or higher"),
        ("1.1.0-1", {"env": variables("A"), "ports": [{"containerPort": 1}]}, "number it 1.2.0 or higher"),
        ("2.0.0", {"env": variables("A")}, "2.0.0.yaml: is equal to 1.1.0"),
        ("2.0.0", {"env": [{"value": "1"}]}, "env[0].name"),
    ],
)
def test_a_release_that_is_not_what_its_number_says(
    folder: Path, capsys: pytest.CaptureFixture[str], release: str, changes: dict[str, Any], text: str
) -> None:
    before = (folder / "catalogue.lock").read_text()
    written(folder, release, **changes)
    code, told = check(folder, capsys, lock=True)
    assert code == 1 and text in told
    assert (folder / "catalogue.lock").read_text() == before


def test_check_says_all_that_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(folder, "1.2.0", env=variables("A", "B"))
    (folder / "mine" / "1.0.0.yaml").write_text("x: 1\n")
    (folder / "mine" / "01.3.0.yaml").touch()
    (folder / "mine" / "1.3.0.yml").touch()
    (folder / "Mine").mkdir()
    (folder / "Mine" / "1.0.0.yaml").touch()
    code, told = check(folder, capsys)
    assert code == 1
    for text in (
        "1.0.0.yaml: was changed after its release",
        "'01.3.0' is not a release",
        "1.3.0.yml",
        "1.2.0.yaml: is not in catalogue",
        "/Mine: 'Mine' is not a valid runtime name",
    ):
        assert text in told
    (folder / "mine" / "1.0.0.yaml").unlink()
    assert "mine/1.0.0.yaml: is listed in catalogue.lock, but its file is missing" in check(folder, capsys)[1]


def test_a_wrong_release_is_told_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And not again by those that come after it."""
    other = {"env": variables("A"), "command": ["x"]}
    written(folder, "1.2.0", **other)
    for env, more in ((variables("A", "B"), {}), (variables("A", "B"), {"command": ["x"]})):
        written(folder, "1.3.0", env=env, **more)
        told = check(folder, capsys)[1]
        assert "1.2.0.yaml: has the number of a minor release after 1.1.0, but its changes are major" in told
        assert told.count("has the number of a") == 1, told
    written(folder, "1.3.0", env=variables())
    assert (
        "1.3.0.yaml: has the number of a minor release after 1.2.0, but its changes are major"
        in check(folder, capsys)[1]
    )


def test_an_edited_release_is_told_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(folder, "1.2.0", env=variables("A", "B"))
    assert check(folder, capsys, lock=True)[0] == 0
    written(folder, "1.1.0", command=["x"])
    code, told = check(folder, capsys)
    assert code == 1 and "1.1.0.yaml: was changed after its release" in told
    assert "has the number of a" not in told and "1.2.0: minor after 1.0.0" in told
    written(folder, "1.0.0", command=["x"])
    assert "1.2.0: the first without problems" in check(folder, capsys)[1]


def test_new_check_and_diff(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.new("team@1.0.0", "torch-distributed", "runtimes", DEFAULT) == 0
    assert commands.check("runtimes", "text", DEFAULT, lock=True) == 0
    assert commands.new("team@1.0.1", "", "runtimes", DEFAULT) == 0
    file = Path("runtimes/team/1.0.1.yaml")
    file.write_text(file.read_text().replace("-runtime", "-runtime@sha256:" + "0" * 64))
    assert commands.default_folder() == "runtimes"
    assert commands.check("runtimes", "text", DEFAULT, lock=True) == 0
    assert "team 1.0.1: patch after 1.0.0" in capsys.readouterr().out
    assert commands.diff("team@1.0.0", str(file), "runtimes", "text", DEFAULT) == 0
    assert "patch  step[node].containers[node].image: another digest" in capsys.readouterr().out
    assert commands.diff("team@1.0.0", "team@1.0.1", "runtimes", "json", DEFAULT) == 0
    told = json.loads(capsys.readouterr().out)
    assert {**told, "effects": [(e["level"], e["path"]) for e in told["effects"]]} == {
        "from": "team@1.0.0", "to": "team@1.0.1", "level": "patch",
        "effects": [("patch", "step[node].containers[node].image")],
    }  # fmt: skip
    file.with_name("1.0.2.yaml").write_text(file.read_text())
    assert commands.check("runtimes", "json", DEFAULT, lock=False) == 1
    told = json.loads(capsys.readouterr().out)
    assert [(r["from"], r["to"], r["level"], r["locked"]) for r in told["releases"]] == [
        ("", "1.0.0", "none", True), ("1.0.0", "1.0.1", "patch", True)
    ]  # fmt: skip
    assert "1.0.2.yaml: metadata.labels: must have" in told["problems"][0]
    file.with_name("1.0.2.yaml").unlink()
    for again, text in (
        ("team@1.0.1", "exists already"),
        ("team", "team: has no release \\(expected NAME@RELEASE\\). Hint: for example team@1.0.0"),
        ("team@1", "team@1: invalid release .1. \\(expected X.Y.Z or X.Y.Z-N\\). Hint: for example team@1.0.0"),
        ("../x@1.0.0", "'../x' is not a valid runtime name"),
        (
            "My Torch@1.0.0",
            "'My Torch' is not a valid runtime name .expected lower-case letters.*RFC 1123.*. Hint: write my-torch",
        ),
        ("@1.0.0", "such as torch-team"),
        ("other@1.0.0", "other@1.0.0: other has no release to copy from.*--from torch-distributed"),
    ):
        with pytest.raises(Invalid, match=text):
            commands.new(again, "", "runtimes", DEFAULT)
    for source in ("torch-distribute", "torch-distribute@2.3.0"):
        for catalogue in ("runtimes", "nowhere"):
            with pytest.raises(Invalid) as caught:
                commands.new("other@1.0.0", source, catalogue, DEFAULT)
            said = str(caught.value)
            assert (
                f"is not a runtime of the catalogue {catalogue} or the built-in one, or a .yaml or .json file" in said
            )
            assert "did you mean torch-distributed" in said and "jax-distributed" not in said
            with pytest.raises(Invalid) as caught:
                commands.new("other@1.0.0", "zzz", catalogue, DEFAULT)
            assert ("team" in str(caught.value).partition("available: ")[2]) == (catalogue == "runtimes")
    with pytest.raises(Invalid, match=r"'2.3.O' is not a release of torch-distributed .*did you mean 2.3.0"):
        commands.new("other@1.0.0", "torch-distributed@2.3.O", "runtimes", DEFAULT)
    assert not Path("runtimes/other").exists()
    Path("runtimes/other").mkdir()
    with pytest.raises(Invalid, match="other has no release to copy from"):
        commands.new("other@1.0.0", "", "runtimes", DEFAULT)
    assert commands.new("torch-distributed@9.0.0", "", "runtimes", DEFAULT) == 0
    assert commands.diff("torch-distributed@2.3.0", "torch-distributed@9.0.0", "runtimes", "text", DEFAULT) == 0
    assert "torch-distributed@2.3.0 => torch-distributed@9.0.0: nothing changes" in capsys.readouterr().out


# git


def in_git(folder: Path, *arguments: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=me", "-c", "user.email=me@localhost", "-c", "init.defaultBranch=main"]
    argv = ["git", *who, *arguments]
    return subprocess.run(argv, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the catalogue, with a tag; the program runs in a folder of its own, with a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "program").mkdir()
    monkeypatch.chdir(tmp_path / "program")
    in_git(folder, "init", "-q")
    in_git(folder, "add", "-A")
    in_git(folder, "commit", "-qm", "first")
    in_git(folder, "tag", "v1")
    git._folder.cache_clear()
    return folder


def again(url: Path | str, ref: str) -> RuntimeCatalog:
    """As another run of the program."""
    git._folder.cache_clear()
    return RuntimeCatalog.from_git(str(url), ref)


def test_a_tag_and_a_branch_and_a_commit(repository: Path) -> None:
    commit = in_git(repository, "rev-parse", "HEAD")
    for ref in ("v1", "main", commit):
        assert again(repository, ref).load("mine", "1.0.0")["metadata"]["name"] == "mine"
    assert Path("runtimes.lock").read_text() == "".join(f"{commit}  {repository}@{ref}\n" for ref in ("main", "v1"))
    assert again(f"file://{repository}", "v1").names() == ["mine"]


def test_an_annotated_tag(repository: Path) -> None:
    in_git(repository, "tag", "-a", "-m", "second", "v2")
    assert again(repository, "v2").names() == ["mine"]
    assert in_git(repository, "rev-parse", "HEAD") in Path("runtimes.lock").read_text()


def test_a_ref_that_has_moved(repository: Path) -> None:
    again(repository, "v1").names()
    written(repository, "1.2.0", env=variables("A", "B"))
    in_git(repository, "add", "-A")
    in_git(repository, "commit", "-qm", "second")
    in_git(repository, "tag", "-f", "v1")
    before = Path("runtimes.lock").read_text()
    assert "@v1: has moved: runtimes.lock pins commit" in refused(again(repository, "v1"))
    assert Path("runtimes.lock").read_text() == before
    Path("runtimes.lock").unlink()
    assert again(repository, "v1").releases("mine") == ["1.0.0", "1.1.0", "1.2.0"]


def test_without_the_network(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again(repository, "v1").names()
    repository.rename(repository.with_name("away"))
    assert again(repository, "v1").names() == ["mine"]
    assert "cannot be fetched" in (told := capsys.readouterr().err) and "from runtimes.lock is used" in told
    assert "cannot be fetched" in refused(again(repository, "main"))


@pytest.mark.parametrize(
    ("url", "ref"),
    [
        ("ext::sh -c touch% owned", "v1"),
        ("--upload-pack=touch owned", "v1"),
        ("-oProxyCommand=touch owned", "v1"),
        ("me@-oProxyCommand=touch:x", "v1"),
        ("http://localhost/x", "v1"),
        ("git://localhost/x", "v1"),
        ("fd::17/foo", "v1"),
        ("https://me:secret@localhost/x", "v1"),
        ("https://secret@localhost/x", "v1"),
        ("https://me:p@secret@localhost/x", "v1"),
        ("ssh://me:secret@localhost/x", "v1"),
        ("https://me:p/secret@localhost/x", "v1"),
        ("https://localhost/x.git?private_token=secret", "v1"),
        ("ssh://me:p/secret@localhost/x", "v1"),
        ("ssh://localhost/x?token=secret", "v1"),
        ("git+https://me:p/secret@localhost/x", "v1"),
        ("https://localhost/x\n", "v1"),
        ("/tmp", "--upload-pack=touch"),
        ("/tmp", "-x"),
        ("/tmp", "a..b"),
        ("/tmp", "v1:refs/heads/x"),
        ("/tmp", "v1 v2"),
        ("/tmp", ""),
        ("/tmp", "@{-1}"),
    ],
)
def test_addresses_and_refs_that_are_something_else(
    url: str, ref: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refused(again(url, ref))
    assert (
        "not a valid address" in said
        or "has credentials" in said
        or "not a valid tag, branch or full commit hash" in said
    )
    assert "secret" not in said and not list(tmp_path.iterdir())


def test_links_and_other_files_of_a_repository_are_not_taken(repository: Path, tmp_path: Path) -> None:
    (repository / "secrets.txt").write_text("x")
    (repository / "mine" / "setup.sh").write_text("touch owned")
    (repository / ".gitattributes").write_text("*.yaml filter=evil export-subst\n")
    in_git(repository, "add", "-A")
    in_git(repository, "commit", "-qm", "more")
    found = again(repository, "main").folder
    assert sorted(str(p.relative_to(found)) for p in found.rglob("*") if p.is_file()) == [
        "catalogue.lock", "mine/1.0.0.yaml", "mine/1.1.0.yaml"
    ]  # fmt: skip
    (repository / "mine" / "1.2.0.yaml").symlink_to("/etc/passwd")
    in_git(repository, "add", "-A")
    in_git(repository, "commit", "-qm", "a link")
    Path("runtimes.lock").unlink()
    assert "mine/1.2.0.yaml: must be a file, not a link or a submodule" in refused(again(repository, "main"))


def test_hooks_and_settings_of_whoever_calls_do_not_matter(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction", "post-merge"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/owned\n")
        (hooks / name).chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(hooks))
    assert again(repository, "v1").names() == ["mine"]
    assert not (tmp_path / "owned").exists()


def test_the_lock_is_not_written_through_a_link(repository: Path, tmp_path: Path) -> None:
    """Neither in its own place nor in that of a temporary file, whose name somebody could guess."""
    for name in ("runtimes.lock", f".runtimes.lock.{os.getpid()}"):
        (tmp_path / "mine").write_text("")
        Path(name).symlink_to(tmp_path / "mine")
    assert again(repository, "v1").names() == ["mine"]
    assert not Path("runtimes.lock").is_symlink() and (tmp_path / "mine").read_text() == ""


def test_a_repository_that_is_too_large(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "MAX_FILES", 2)
    assert "is too large" in refused(again(repository, "v1"))
    assert not Path("runtimes.lock").exists()


def tree_bomb(repository: Path, width: int, depth: int) -> None:
    """A commit with folders that hold the same folder many times over; all of it is a few objects."""
    blob = in_git(repository, "hash-object", "-w", "catalogue.lock")
    entry = f"100644 blob {blob}\t1.0.0.yaml\n"
    for _ in range(depth):
        made = subprocess.run(
            ["git", "mktree"], cwd=repository, input=entry, capture_output=True, text=True, check=True
        )
        tree = made.stdout.strip()
        entry = "".join(f"040000 tree {tree}\t{each}\n" for each in sorted(map(str, range(width))))
    commit = in_git(repository, "commit-tree", "-m", "bomb", tree)
    in_git(repository, "update-ref", "refs/heads/bomb", commit)


def test_a_commit_with_too_many_files(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 times 1,000 times 1,000 files in a few KiB: git's listing of it has 60 GB."""
    monkeypatch.setattr(git, "MAX_OUTPUT", 2**21)
    tree_bomb(repository, width=1000, depth=4)
    assert "is too large" in refused(again(repository, "bomb"))
    assert sum(p.stat().st_size for p in (tmp_path / "home").rglob("*")) < 2**20


def test_what_git_prints_is_bounded(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "MAX_OUTPUT", 200)
    assert "is too large" in refused(again(repository, "v1"))


def test_a_server_that_does_not_answer_is_not_waited_for(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "SECONDS", 0.3)
    monkeypatch.setenv("GIT_SSH_COMMAND", f"{sys.executable} -c 'import time; time.sleep(60)'")
    assert "did not arrive within" in refused(again("ssh://localhost/x", "v1"))


def test_a_lock_of_commits_that_is_none(repository: Path) -> None:
    Path("runtimes.lock").write_text("main is fine\n")
    assert "runtimes.lock, line 1" in refused(again(repository, "v1"))
