"""`hf://OWNER/NAME[@REVISION][/PATH]`: a dataset or a model (by the kind of initializer) of the Hugging Face hub.

Files are at their path in the repository, also below PATH, since Trainer's torchtune arguments count on it. The revision
is a commit; branches and tags are resolved to one. Of a model come the files that upstream asks for. Needs the extra
`hub` (huggingface_hub), which lists and downloads: `hf_hub_download` for each file, as `snapshot_download` calls it, since the
latter compares each name with each pattern, and here the pattern of a fetch may be thousands of names that are missing.

Its session is wrapped (`_create_client`), because a token must go to HF_ENDPOINT alone. By itself huggingface_hub 2.4.0 sends it

- to any address that a listing names as its next page, also over http,
- from a mirror to huggingface.co, if the mirror redirects there,
- with hf_xet, to any address that the server names for refreshing the access to a file.

It also waits for a listing without a limit, and its log shows signed addresses.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pulumi_trainer.provider.kubernetes.client.masking import hide_credentials, is_loopback
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.machine.extras import not_installed
from pulumi_trainer.provider.pod.initializers import contract
from pulumi_trainer.provider.pod.initializers.contract import STORAGE_URI, Kind
from pulumi_trainer.provider.pod.initializers.source import MAX_FILES, Count, Entry, FetchRequest, Listing, Patterns

log = logging.getLogger(__name__)

MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt")
"""What upstream fetches of a model: pkg/initializers/model/huggingface.py of kubeflow/trainer v2.3.0."""
TOKENIZER_FILES = ("*.jinja", "*.tiktoken", "*.bpe")
"""Chat templates, and tokenizers of other formats, which upstream leaves out: without them a model talks in another form."""
MODEL_IGNORED = ("*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth")
"""Its default for IGNORE_PATTERNS: pkg/initializers/types/types.py."""

DEFAULT_ENDPOINT = "https://huggingface.co"
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_LOCATION = re.compile(
    rf"(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>refs/(?:pr|convert)/[^/@]+|[^/@]+))?(?:/(?P<path>.*))?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_QUERY = re.compile(r"\?[^\s'\"]*")


def check(location: str, kind: Kind) -> list[Problem]:
    match = _LOCATION.fullmatch(location)
    first = location.partition("/")[0]
    if first in ("datasets", "models", "spaces"):
        why = f"hf://{first}/... is not supported, since the initializer already is one for a {kind}"
        return [Problem(STORAGE_URI, why, "write hf://OWNER/NAME")]
    if "@" in first:
        return [Problem(STORAGE_URI, "has text before the owner", "pass a token as ACCESS_TOKEN")]
    if not match:
        why = f"{hide_credentials(location)!r} is not a valid repository name"
        return [Problem(STORAGE_URI, why, "write hf://OWNER/NAME[@REVISION][/PATH]")]
    path = (match["path"] or "").rstrip("/")
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        return [Problem(STORAGE_URI, f"{hide_credentials(match['path'])!r} is not a valid path in a repository")]
    return []


def patterns(location: str, kind: Kind) -> Patterns:
    """Return the default patterns: none for a dataset or a PATH, upstream's and `TOKENIZER_FILES` for a model."""
    match = _LOCATION.fullmatch(location)
    if kind == "dataset" or (match and match["path"]):
        return Patterns()
    return Patterns((*MODEL_FILES, *TOKENIZER_FILES), MODEL_IGNORED)


def connect(request: FetchRequest) -> _Repository:
    """Return the source of a repository. Raise Invalid if HF_ENDPOINT or a credential is not valid, or huggingface_hub is not
    installed."""
    return _Repository(request)


class _Repository:
    def __init__(self, request: FetchRequest) -> None:
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        try:
            from huggingface_hub import HfApi, set_client_factory
        except ImportError:
            raise not_installed("huggingface_hub", "hf://") from None
        match = _LOCATION.fullmatch(request.location)
        assert match is not None  # `check` has accepted it
        self._repo, self._path = match["repo"], (match["path"] or "").strip("/")
        self._revision, self._kind = unquote(match["revision"] or "main"), request.kind
        self._commit = ""
        self._endpoint = (request.env.get(contract.HF_ENDPOINT) or DEFAULT_ENDPOINT).rstrip("/")
        if not self._endpoint.startswith(("http://", "https://")) or "@" in self._endpoint:
            raise Invalid(Problem(contract.HF_ENDPOINT, "is not an http(s) URL", "write https://HOST[:PORT]"))
        self._token = contract.read_credential(request.env, contract.ACCESS_TOKEN) or contract.read_credential(
            request.env, contract.HF_TOKEN
        )
        if self._token:
            self._require_https()
        set_client_factory(lambda: _create_client(self._endpoint, request.tuning.timeout))
        library = logging.getLogger("huggingface_hub")
        library.handlers, library.propagate = [_LibraryLog(contract.secret_mask(request.env))], False
        self._api = HfApi(self._endpoint, token=self._token or False, library_name="pulumi-trainer")

    def listing(self, recorded: str) -> Listing:
        self._commit = ""
        with self._errors(self._uri()):
            commit = recorded
            if not _COMMIT.fullmatch(recorded):
                commit = str(self._api.repo_info(self._repo, revision=self._revision, repo_type=self._kind).sha)
            self._commit = commit
            return Listing(commit, [*map(_entry, islice(self._files(), MAX_FILES + 1))])

    def download(self, entry: Entry, path: Path, count: Count) -> Mapping[str, str]:
        from huggingface_hub import hf_hub_download

        # A cache for each file: the file can be moved out of it, and its name may be as long as the file system allows.
        cache = path.with_suffix(".hub")
        with self._errors(self.address(entry)):
            downloaded = hf_hub_download(
                self._repo,
                entry.key,
                repo_type=self._kind,
                revision=self._commit,
                cache_dir=cache,
                endpoint=self._endpoint,
                token=self._token or False,
                library_name="pulumi-trainer",
                tqdm_class=_progress_bar(count),
            )
        Path(downloaded).resolve().replace(path)
        shutil.rmtree(cache)
        return entry.checks

    def address(self, entry: Entry) -> str:
        return f"hf://{self._repo}@{self._commit}/{entry.key}"

    def _require_https(self) -> None:
        if not self._endpoint.lower().startswith("http://"):
            return
        if not is_loopback(self._endpoint):
            why = "is an http:// address, so others on the network could read the token"
            raise Invalid(Problem(contract.HF_ENDPOINT, why, "write https://HOST[:PORT], or give no token"))
        log.warning("%s: the token is sent unencrypted, though not beyond this machine", contract.HF_ENDPOINT)

    def _files(self) -> Iterable[Any]:
        """Return all files at PATH, which may be a single file."""
        from huggingface_hub.hf_api import RepoFile

        at: dict[str, Any] = {"repo_type": self._kind, "revision": self._commit}
        found: Iterable[Any] = []
        if self._path:
            found = self._api.get_paths_info(self._repo, [self._path], **at)
        files = [item for item in found if isinstance(item, RepoFile)]
        if files:
            return files
        items = self._api.list_repo_tree(self._repo, self._path or None, recursive=True, **at)
        return (item for item in items if isinstance(item, RepoFile))

    def _uri(self) -> str:
        uri = f"hf://{self._repo}@{self._commit or self._revision}"
        if self._path:
            uri += f"/{self._path}"
        return uri

    @contextmanager
    def _errors(self, address: str) -> Iterator[None]:
        """Raise TargetFault for what the hub refuses; another error says in one line why the hub has not answered."""
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

        try:
            yield
        except (HfHubHTTPError, LocalEntryNotFoundError) as error:
            cause = error if isinstance(error, HfHubHTTPError) else error.__cause__ or error
            if not isinstance(cause, HfHubHTTPError):
                raise ConnectionError(str(cause)) from None
            raise self._refusal(cause, address) from None

    def _refusal(self, error: Any, address: str) -> Exception:
        """Return the exception for an error response, with the server's words."""
        status = error.response.status_code
        reason = f"{status} {' '.join((error.server_message or error.response.reason_phrase).split())[:300]}"
        if status >= 500 or status in (408, 425, 429):
            return ConnectionError(reason)
        hints = []
        if status in (401, 403):
            token = "the token may not read it" if self._token else "no token is given"
            hints.append(
                f"{token}: give access_token= (ACCESS_TOKEN), accept the terms of a gated repository on its page"
            )
        if status in (401, 404):
            hints.append(f"check owner, name, revision and path; it was requested as a {self._kind}")
        return TargetFault(Problem(address, reason, "; ".join(hints) or f"look at {self._endpoint}"))


def _entry(file: Any) -> Entry:
    """Return the entry of a file. The version is the SHA-256 of an LFS file, git's blob id of another one."""
    if file.lfs:
        return Entry(file.path, file.path, file.size, file.lfs.sha256, {"sha256": file.lfs.sha256})
    return Entry(file.path, file.path, file.size, file.blob_id, {"git": file.blob_id})


def _create_client(endpoint: str, timeout: float) -> Any:
    """Return the library's session, which sends the token to no other origin than that of the endpoint."""
    from huggingface_hub.utils._http import default_client_factory

    client = default_client_factory()

    def protect_token(request: Any) -> None:
        if _origin(str(request.url)) != _origin(endpoint):
            request.headers.pop("Authorization", None)
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), timeout)

    def refuse_other_xet(response: Any) -> None:
        """Have a file downloaded without hf_xet, which has a session of its own, if that would send the token elsewhere."""
        route = response.headers.get("X-Xet-Refresh-Route", "")
        for url in (route, response.links.get("xet-auth", {}).get("url", "")):
            # The library replaces the default endpoint by the given one.
            if url and _origin(url) != _origin(endpoint) and not url.startswith(f"{DEFAULT_ENDPOINT}/"):
                response.headers.pop("X-Xet-Hash", None)

    hooks = client.event_hooks
    client.event_hooks = {
        "request": [*hooks["request"], protect_token],
        "response": [*hooks["response"], refuse_other_xet],
    }
    return client


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


class _LibraryLog(logging.Handler):
    """Passes on the library's warnings, such as why it waits, without the signatures of addresses."""

    def __init__(self, mask_secrets: contract.Mask) -> None:
        super().__init__(logging.WARNING)
        self._mask = mask_secrets

    def emit(self, record: logging.LogRecord) -> None:
        log.warning("%s", self._mask(_QUERY.sub("", " ".join(record.getMessage().split()))))


def _progress_bar(count: Count) -> type[Any]:
    """Return a class of progress bars that count bytes and show nothing."""
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    class Bar(tqdm):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            count(int(n or 0))

        def update_transfer(self, n: float | None = 1) -> None:
            """Ignore what arrives from the network: `update` counts what is written."""

        def set_transfer_postfix_str(self, *_: Any, **__: Any) -> None:
            """Show nothing."""

    return Bar
