"""hf://, against a stand-in for the hub on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from initializers_support import QUICK, Answer, Hub, command, environment, tree
from pulumi_trainer.provider.kubernetes.errors import Invalid, TargetFault
from pulumi_trainer.provider.pod.initializers import Kind, Manifest, fetch, fetching, hf, manifest
from pulumi_trainer.provider.pod.initializers.file_names import STAGING

TOKEN = "hf_canaryCANARYcanary"
WEIGHTS = os.urandom(3 * QUICK.part + 5)
FILES = {
    "README.md": b"# data\n",
    "data/train.csv": b"1,2\n",
    "data/test.csv": b"3,4\n",
    "data/more/empty": b"",
    "data/weights.bin": WEIGHTS,
    "a name+&%#?.txt": b"odd",
}
NAME = "datasets/owner/some-data.v1"


@pytest.fixture
def hub() -> Iterator[Hub]:
    found = Hub()
    found.add(NAME, FILES, lfs={"data/weights.bin"})
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface_hub waits for seconds before it repeats a request."""
    sleep = time.sleep
    monkeypatch.setattr("time.sleep", lambda seconds: sleep(min(seconds, 0.01)))


def get(hub: Hub, output: Path, uri: str = "hf://owner/some-data.v1", kind: Kind = "dataset", **env: str) -> Manifest:
    return fetch(kind, uri, output, env={"HF_ENDPOINT": hub.url, **env}, tuning=QUICK)


def nothing(output: Path) -> bool:
    return manifest.read(output) is None and all(k.startswith(STAGING) for k in tree(output))


def test_a_dataset(hub: Hub, tmp_path: Path) -> None:
    done = get(hub, tmp_path)
    assert tree(tmp_path) == FILES
    assert done.revision == hub.repositories[NAME].refs["main"]
    assert {f.path: f.sha256 for f in done.files} == {k: hashlib.sha256(v).hexdigest() for k, v in FILES.items()}


def test_the_home_folder_is_left_alone(hub: Hub, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    env = {**environment("hf://owner/some-data.v1", tmp_path / "out", HF_ENDPOINT=hub.url), "HOME": str(home)}
    done = subprocess.run(command(), env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "out") == FILES
    assert list(home.rglob("*")) == []
    assert json.loads(done.stdout.splitlines()[-1])["trainerStatus"]["progressPercentage"] == 100


def test_models_come_as_upstream_asks_for_them(hub: Hub, tmp_path: Path) -> None:
    names = ["config.json", "a/model.safetensors", "tokenizer.model", "vocab.txt", "x.bin", "x.h5", "x.py", "README.md"]
    hub.add("models/owner/net", {n: n.encode() for n in names})
    get(hub, tmp_path / "all", "hf://owner/net", "model")
    assert set(tree(tmp_path / "all")) == set(names[:4])
    get(hub, tmp_path / "some", "hf://owner/net", "model", IGNORE_PATTERNS="*.txt, a/*")
    assert set(tree(tmp_path / "some")) == {"config.json", "tokenizer.model"}
    get(hub, tmp_path / "less", "hf://owner/net", "model", IGNORE_PATTERNS="a/")
    assert set(tree(tmp_path / "less")) == {"config.json", "tokenizer.model", "vocab.txt"}
    get(hub, tmp_path / "one", "hf://owner/net/x.bin", "model")
    assert set(tree(tmp_path / "one")) == {"x.bin"}


def test_a_model_has_its_chat_template_and_its_tokenizer(hub: Hub, tmp_path: Path) -> None:
    names = ["config.json", "chat_template.jinja", "qwen.tiktoken", "vocab.bpe"]
    hub.add("models/owner/net", {n: n.encode() for n in [*names, "x.py"]})
    get(hub, tmp_path / "all", "hf://owner/net", "model")
    assert set(tree(tmp_path / "all")) == set(names)


def test_a_path_keeps_its_place(hub: Hub, tmp_path: Path) -> None:
    """torchtune's arguments name it: `data_dir=/workspace/dataset/data`."""
    get(hub, tmp_path / "folder", "hf://owner/some-data.v1/data/")
    assert set(tree(tmp_path / "folder")) == {k for k in FILES if k.startswith("data/")}
    get(hub, tmp_path / "file", "hf://owner/some-data.v1/data/train.csv")
    assert set(tree(tmp_path / "file")) == {"data/train.csv"}
    with pytest.raises(TargetFault, match=r"hf://owner/some-data\.v1@.*/nowhere: 404 nowhere does not exist"):
        get(hub, tmp_path / "none", "hf://owner/some-data.v1/nowhere")


def test_revisions(hub: Hub, tmp_path: Path) -> None:
    first = hub.repositories[NAME].refs["main"]
    hub.repositories[NAME].refs.update({"v1": first, "refs/convert/parquet": first, "a/branch": first})
    second = hub.add(NAME, {"new": b"new"})
    assert get(hub, tmp_path / "main").revision == second
    for number, revision in enumerate(["v1", first, "refs/convert/parquet", "a%2Fbranch"]):
        uri = f"hf://owner/some-data.v1@{revision}/README.md"
        assert get(hub, tmp_path / str(number), uri).revision == first
        assert tree(tmp_path / str(number)) == {"README.md": FILES["README.md"]}
    with pytest.raises(TargetFault, match=r"404 Invalid rev id: v9. Hint: check owner, name, revision"):
        get(hub, tmp_path / "none", "hf://owner/some-data.v1@v9")


def test_the_recorded_revision_is_kept(hub: Hub, tmp_path: Path) -> None:
    first = get(hub, tmp_path)
    hub.add(NAME, {"README.md": b"newer"})
    hub.server.requests.clear()
    hub.storage.requests.clear()
    assert get(hub, tmp_path) == first
    assert hub.server.requests == hub.storage.requests == []
    (tmp_path / "README.md").unlink()
    assert get(hub, tmp_path) == first
    assert (tmp_path / "README.md").read_bytes() == FILES["README.md"]
    assert len(hub.contents) == 1
    get(hub, tmp_path, IGNORE_PATTERNS="*.csv")
    assert set(tree(tmp_path)) == {k for k in FILES if not k.endswith(".csv")}
    assert len(hub.contents) == 1


def test_an_interrupted_fetch_keeps_its_revision(hub: Hub, tmp_path: Path) -> None:
    refused = hub.server.fault("train.csv", times=99, answer=Answer(500))
    with pytest.raises(TargetFault):
        get(hub, tmp_path)
    assert nothing(tmp_path)
    refused.times = 0
    first = hub.repositories[NAME].refs["main"]
    hub.add(NAME, {"README.md": b"newer"})
    assert get(hub, tmp_path).revision == first
    assert tree(tmp_path) == FILES


def test_a_token_is_sent_to_the_hub_only(hub: Hub, tmp_path: Path) -> None:
    hub.repositories[NAME].token = TOKEN
    get(hub, tmp_path / "out", ACCESS_TOKEN=TOKEN + "\n")
    assert tree(tmp_path / "out") == FILES
    assert all(r.headers["authorization"] == f"Bearer {TOKEN}" for r in hub.server.requests)
    assert hub.storage.requests
    assert not any("authorization" in r.headers for r in hub.storage.requests)
    get(hub, tmp_path / "other", HF_TOKEN=TOKEN)
    with pytest.raises(
        TargetFault, match=r"403 Access is restricted; you sent None. Hint: no token is given: give access_token="
    ):
        get(hub, tmp_path / "none")


def test_no_token_of_the_machine_is_used(hub: Hub, tmp_path: Path) -> None:
    saved = tmp_path / "home" / ".cache" / "huggingface" / "token"
    saved.parent.mkdir(parents=True)
    saved.write_text(TOKEN)
    env = environment("hf://owner/some-data.v1/README.md", tmp_path / "out", HF_ENDPOINT=hub.url)
    subprocess.run(command(), env={**env, "HOME": str(tmp_path / "home")}, check=True, capture_output=True)
    assert not any("authorization" in r.headers for r in hub.server.requests)


def test_a_wrong_token_is_not_shown(hub: Hub, tmp_path: Path) -> None:
    hub.repositories[NAME].token = "another"
    env = environment("hf://owner/some-data.v1", tmp_path / "out", HF_ENDPOINT=hub.url, ACCESS_TOKEN=TOKEN)
    done = subprocess.run(command(), env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "403 Access is restricted; you sent Bearer [secret]. Hint: the token may not read it" in done.stderr
    assert done.stderr.count("\n") == 2
    assert TOKEN not in done.stderr + done.stdout
    assert len(hub.server.requests) == 1


def test_401_and_404(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(
        TargetFault, match=r"hf://owner/none@main: 401 Repository not found. Hint: no token.*it was requested as"
    ):
        get(hub, tmp_path, "hf://owner/none")
    with pytest.raises(TargetFault, match=r"404 Repository not found. Hint: check owner, name, .* as a model"):
        get(hub, tmp_path, "hf://owner/some-data.v1", "model", ACCESS_TOKEN=TOKEN)
    assert len(hub.server.requests) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["/revision/", "/tree/", "/resolve/"])
def test_busy_then_well(hub: Hub, tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    hub.server.fault(place, times=2, answer=Answer(500, b"<html>sorry</html>"))
    hub.server.fault(place, answer=Answer(429, b'{"error": "slow down"}'))
    hub.storage.fault("weights", answer=Answer(503, b""))
    get(hub, tmp_path)
    assert tree(tmp_path) == FILES
    assert not any(fault.times for fault in hub.server.faults)
    if place != "/resolve/":  # there the library repeats requests of its own, and says so only if its log is on
        assert "slow down; again in" in caplog.text or "thrown while requesting" in caplog.text
    assert "weights.bin: 503 Service Unavailable; again in" in caplog.text
    assert "signed" not in caplog.text


@pytest.mark.parametrize(("path", "algorithm"), [("data/train.csv", "git"), ("data/weights.bin", "sha256")])
def test_changed_bytes_are_seen(hub: Hub, tmp_path: Path, path: str, algorithm: str) -> None:
    server = hub.storage if algorithm == "sha256" else hub.server
    fault = server.fault(path, times=1, change=lambda b: b[:-1] + b"?")
    get(hub, tmp_path / "once")
    assert tree(tmp_path / "once") == FILES
    fault.times = 99
    with pytest.raises(
        TargetFault, match=rf"{path}: the downloaded data has another checksum.*{algorithm} .*\(4 attempts\)"
    ):
        get(hub, tmp_path / "always")
    assert nothing(tmp_path / "always")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "x" * 300, ".incomplete/x", "a\0b", "a/" * 64 + "b"])
def test_hostile_names(hub: Hub, tmp_path: Path, name: str) -> None:
    hub.add(NAME, {"good": b"good", name: b"hostile"})
    with pytest.raises(TargetFault, match="so it is not fetched"):
        get(hub, tmp_path / "deep" / "out")
    assert tree(tmp_path) == {}
    assert hub.contents == []


def test_a_listing_with_too_many_files(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf, "MAX_FILES", 4)
    monkeypatch.setattr(fetching, "MAX_FILES", 4)
    with pytest.raises(TargetFault, match="has more than 4 files"):
        get(hub, tmp_path)


def test_no_token_over_http(hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Invalid, match="HF_ENDPOINT: is an http:// address, so others on the network"):
        get(hub, tmp_path, HF_ENDPOINT="http://hub.example", ACCESS_TOKEN=TOKEN)
    get(hub, tmp_path, ACCESS_TOKEN=TOKEN)
    assert "HF_ENDPOINT: the token is sent unencrypted, though not beyond this machine" in caplog.text
    assert TOKEN not in caplog.text


def test_no_telemetry() -> None:
    code = (
        "import os\nfrom pulumi_trainer.provider.pod.initializers import hf, source\nfrom pathlib import Path\n"
        "hf.connect(source.FetchRequest('model', 'o/n', Path('/x'), {}))\n"
        "from huggingface_hub import constants\nprint(constants.HF_HUB_DISABLE_TELEMETRY)"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True) == "True\n"


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://hub.example/api", True),
        ("https://hub.example:443/api", True),
        ("http://hub.example/api", False),
        ("http://hub.example:443/api", False),
        ("https://hub.example:8443/api", False),
        ("https://hub.example.org/api", False),
        ("https://huggingface.co/api", False),
    ],
)
def test_the_session_sends_the_token_to_the_hub_alone(url: str, sent: bool) -> None:
    client = hf._create_client("https://hub.example", 1.0)
    request = client.build_request("GET", url, headers={"authorization": f"Bearer {TOKEN}"})
    for hook in client.event_hooks["request"]:
        hook(request)
    assert ("authorization" in request.headers) is sent


def test_no_token_to_the_server_of_a_next_page(hub: Hub, tmp_path: Path) -> None:
    hub.repositories[NAME].token, hub.next_page = TOKEN, hub.storage.url
    with pytest.raises(TargetFault):
        get(hub, tmp_path, ACCESS_TOKEN=TOKEN)
    assert hub.storage.requests
    assert not any("authorization" in r.headers for r in hub.storage.requests)


def test_no_token_to_where_the_hub_redirects(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if huggingface_hub counts the other server among the hubs, as it does with huggingface.co for a mirror."""
    origin = ("http", *hub.storage.url.removeprefix("http://").split(":"))
    origins = {(origin[0], origin[1], int(origin[2]))}
    monkeypatch.setattr("huggingface_hub.utils._http._HUB_ORIGINS", origins, raising=False)
    hub.repositories[NAME].token = TOKEN
    elsewhere = Answer(302, b"", {"Location": f"{hub.storage.url}/elsewhere"})
    for place in ("/revision/", "/tree/", "/resolve/"):
        hub.server.faults.clear()
        hub.server.fault(place, times=99, answer=elsewhere)
        with pytest.raises(TargetFault):
            get(hub, tmp_path / place.strip("/"), ACCESS_TOKEN=TOKEN)
    assert hub.storage.requests
    assert not any("authorization" in r.headers for r in hub.storage.requests)


@pytest.mark.parametrize("header", ["X-Xet-Refresh-Route", "Link"])
def test_the_token_is_not_sent_to_an_address_for_xet(hub: Hub, tmp_path: Path, header: str) -> None:
    hub.repositories[NAME].token = TOKEN
    body = FILES["data/train.csv"]
    route = f"{hub.storage.url}/refresh"
    if header == "Link":
        route = f'<{route}>; rel="xet-auth"'
    named = {"X-Xet-Hash": "a" * 64, header: route, "X-Repo-Commit": hub.repositories[NAME].refs["main"], "ETag": '"x"'}
    hub.server.fault("train.csv", times=2, answer=Answer(200, body, named))
    get(hub, tmp_path, "hf://owner/some-data.v1/data/train.csv", ACCESS_TOKEN=TOKEN)
    assert tree(tmp_path) == {"data/train.csv": body}
    assert hub.storage.requests == []
