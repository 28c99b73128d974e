"""Where datasets and models come from: the arguments of an initializer.

Environment names are Trainer's initializer contract (pkg/initializers of kubeflow/trainer v2.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pulumi
from pulumi_trainer.provider.api.errors import Problem

from .arguments import Args

if TYPE_CHECKING:
    from .datasets import DatasetInitializer, ModelInitializer

Secret = pulumi.Output[str]
"""A secret Output, such as `config.require_secret("hfToken")`; a plain string is refused."""


class Source(Args):
    """One thing to fetch: `spec.initializer.dataset` or `.model`, by its URI.

    storage_uri: `hf://`, `s3://` or `file://` (a path on this machine, relative to the program's working directory;
    Local only). ignore_patterns: names that are left out. secret_ref: a Secret of the cluster with the credentials.
    """

    storage_uri: pulumi.Input[str] | None = None
    ignore_patterns: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    env: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    secret_ref: pulumi.Input[str] | None = None

    scheme: ClassVar[str] = ""
    credentials: ClassVar[Mapping[str, str]] = {}
    options: ClassVar[Mapping[str, str]] = {}

    def check(self) -> list[Problem]:
        found = super().check()
        uri = self.storage_uri
        if uri is None:
            found.append(Problem("storage_uri", "is required"))
        elif isinstance(uri, str) and self.scheme and not uri.startswith(self.scheme):
            found.append(Problem("storage_uri", f"must start with {self.scheme}, not {uri!r}"))
        for name in self.credentials:
            if isinstance(self.__dict__.get(name), str):
                mend = f'use pulumi.Config().require_secret("{name}"), or secret_ref= with a Secret of the cluster'
                found.append(Problem(name, "is a plain-text secret", mend))
        return found

    def document(self) -> dict[str, Any]:
        """`InitializerSource`: storageUri, env and secretRef."""
        env: dict[str, Any] = dict(self.env) if isinstance(self.env, Mapping) else {}
        for name, variable in (*self.options.items(), *self.credentials.items()):
            if (value := self.__dict__.get(name)) is not None:
                env[variable] = value
        if self.ignore_patterns is not None:
            env["IGNORE_PATTERNS"] = _joined(self.ignore_patterns)
        document: dict[str, Any] = {"storageUri": self.storage_uri}
        if env:
            document["env"] = [{"name": k, "value": v} for k, v in env.items()]
        if self.secret_ref is not None:
            document["secretRef"] = {"name": self.secret_ref}
        return document


class HuggingFaceDatasetInitializer(Source):
    """A dataset of the Hugging Face hub: `hf://OWNER/NAME[@REVISION][/PATH]`. access_token: a secret Output."""

    access_token: Secret | None = None

    scheme = "hf://"
    credentials = {"access_token": "ACCESS_TOKEN"}


class HuggingFaceModelInitializer(HuggingFaceDatasetInitializer):
    """A model of the Hugging Face hub; by default without weights in other formats than safetensors
    (`*.msgpack`, `*.h5`, `*.bin`, `*.pt`, `*.pth`)."""


class S3DatasetInitializer(Source):
    """A dataset below `s3://BUCKET/PREFIX`. access_key_id and secret_access_key: secret Outputs; without them the
    environment of the fetch decides (instance role, web identity)."""

    endpoint: pulumi.Input[str] | None = None
    region: pulumi.Input[str] | None = None
    role_arn: pulumi.Input[str] | None = None
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None

    scheme = "s3://"
    options = {"endpoint": "ENDPOINT", "region": "REGION", "role_arn": "ROLE_ARN"}
    credentials = {"access_key_id": "ACCESS_KEY_ID", "secret_access_key": "SECRET_ACCESS_KEY"}


class S3ModelInitializer(S3DatasetInitializer):
    """A model below `s3://BUCKET/PREFIX`."""


class Initializer(Args):
    """Dataset and model of a TrainJob (`spec.initializer`).

    A source is fetched inside the job, by the runtime's initializer steps; a `DatasetInitializer` or `ModelInitializer`
    is fetched once, before, and mounted at /workspace/dataset or /workspace/model.
    """

    dataset: Source | DatasetInitializer | None = None
    model: Source | ModelInitializer | None = None


def _joined(patterns: Any) -> Any:
    if isinstance(patterns, pulumi.Output):
        return patterns.apply(_joined)
    return patterns if isinstance(patterns, str) else ",".join(patterns)


def located(initializer: dict[str, Any]) -> dict[str, Any]:
    """`spec.initializer` with absolute file:// paths: they are the program's, and what fetches them runs elsewhere."""
    return {
        kind: {**source, "storageUri": absolute(source["storageUri"])} if "storageUri" in source else source
        for kind, source in initializer.items()
    }


def absolute(uri: Any) -> Any:
    """A relative file:// path as an absolute one; anything else stays."""
    if isinstance(uri, str) and uri.startswith("file://"):
        return f"file://{Path(uri.removeprefix('file://')).absolute()}"
    return uri
