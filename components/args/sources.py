"""Where datasets and models come from: the arguments of an initializer.

Environment names are Trainer's initializer contract (pkg/initializers of kubeflow/trainer v2.3.0); fields are the Kubeflow
SDK's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pulumi
from pulumi_trainer.args.arguments import Args
from pulumi_trainer.args.trainers import env_list, env_problems
from pulumi_trainer.provider.api.model import quantity_problems
from pulumi_trainer.provider.kube.client.masking import hide_credentials
from pulumi_trainer.provider.kube.errors import Problem

if TYPE_CHECKING:
    from pulumi_trainer.datasets import DatasetInitializer, ModelInitializer

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

    lists = frozenset({"ignore_patterns"})
    mappings = frozenset({"env"})
    scheme: ClassVar[str] = ""
    credentials: ClassVar[Mapping[str, str]] = {}
    options: ClassVar[Mapping[str, str]] = {}

    def check(self) -> list[Problem]:
        found = super().check() + env_problems(self.env)
        uri = self.storage_uri
        if uri is None:
            found.append(Problem("storage_uri", "is required"))
        elif isinstance(uri, str) and self.scheme and not uri.startswith(self.scheme):
            found.append(Problem("storage_uri", f"must start with {self.scheme}, not {hide_credentials(uri)!r}"))
        for name in ("secret_ref", *self.options):
            value = self.__dict__.get(name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, (str, int, float, pulumi.Output))
            ):
                found.append(Problem(name, f"must be a string, not {type(value).__name__}"))
        for i, pattern in enumerate(self.ignore_patterns if isinstance(self.ignore_patterns, (list, tuple)) else ()):
            if isinstance(pattern, str) and "," in pattern:
                found.append(
                    Problem(f"ignore_patterns[{i}]", "must not contain a comma", "give each pattern by itself")
                )
            elif not isinstance(pattern, (str, pulumi.Output)):
                found.append(Problem(f"ignore_patterns[{i}]", f"must be a string, not {type(pattern).__name__}"))
        for name in self.credentials:
            if isinstance(self.__dict__.get(name), str):
                mend = f'use pulumi.Config().require_secret("{name}"), or secret_ref= with a Secret of the cluster'
                found.append(Problem(name, "is a plain-text secret", mend))
        return found

    def document(self) -> dict[str, Any]:
        """`InitializerSource`: storageUri, env and secretRef."""
        own = self.variables()
        document: dict[str, Any] = {"storageUri": self.storage_uri}
        if isinstance(self.env, pulumi.Output):
            document["env"] = pulumi.Output.all(self.env, own).apply(lambda both: _variables(*both))
        elif env := {**(self.env if isinstance(self.env, Mapping) else {}), **own}:
            document["env"] = env_list(env)
        if self.secret_ref is not None:
            document["secretRef"] = {"name": self.secret_ref}
        return document

    def variables(self) -> dict[str, Any]:
        """What the fields say to the initializer."""
        named = {**self.options, **self.credentials}
        found = {named[f]: value for f in named if (value := self.__dict__.get(f)) is not None}
        if self.ignore_patterns is not None:
            found["IGNORE_PATTERNS"] = _joined(self.ignore_patterns)
        return found


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


class DataCacheInitializer(Source):
    """A dataset in Trainer's distributed data cache: `cache://SCHEMA/TABLE`, an Iceberg table that the nodes of a cache hold
    in memory and trainers read from `grpc://$TRAIN_JOB_NAME-cache-service:50051`.

    For a runtime with the cache's initializer, such as torch-distributed-with-cache, in a cluster with Trainer and
    LeaderWorkerSet. metadata_loc: the table's metadata file. num_data_nodes: nodes that hold data, at least 2. head_cpu,
    head_mem (default 1, 1Gi), worker_cpu, worker_mem (default 2, 2Gi): quantities. iam_role: the AWS role that reads
    metadata_loc; the initializer does not start without one, unless the runtime or `env` gives IAM_ROLE.
    """

    metadata_loc: pulumi.Input[str] | None = None
    num_data_nodes: pulumi.Input[int] | None = None
    head_cpu: pulumi.Input[str] | None = None
    head_mem: pulumi.Input[str] | None = None
    worker_cpu: pulumi.Input[str] | None = None
    worker_mem: pulumi.Input[str] | None = None
    iam_role: pulumi.Input[str] | None = None

    scheme = "cache://"
    options = {
        "metadata_loc": "METADATA_LOC", "head_cpu": "HEAD_CPU", "head_mem": "HEAD_MEM", "worker_cpu": "WORKER_CPU",
        "worker_mem": "WORKER_MEM", "iam_role": "IAM_ROLE",
    }  # fmt: skip

    def check(self) -> list[Problem]:
        found = super().check()
        if isinstance(self.storage_uri, str) and self.storage_uri.startswith(self.scheme):
            parts = self.storage_uri.removeprefix(self.scheme).split("/")
            if len(parts) != 2 or not all(parts):
                found.append(
                    Problem("storage_uri", f"must be cache://SCHEMA/TABLE, not {hide_credentials(self.storage_uri)!r}")
                )
        found += [Problem(f, "is required") for f in ("metadata_loc", "num_data_nodes") if getattr(self, f) is None]
        nodes = self.num_data_nodes
        if nodes is not None and not isinstance(nodes, pulumi.Output) and not (type(nodes) is int and nodes > 1):
            found.append(Problem("num_data_nodes", f"must be a whole number greater than 1, not {nodes!r}"))
        for field in ("head_cpu", "head_mem", "worker_cpu", "worker_mem"):
            found += [p.below(field) for p in quantity_problems(getattr(self, field))]
        if self.ignore_patterns is not None:
            found.append(Problem("ignore_patterns", "means nothing here: a cache holds whole tables", "leave it out"))
        return found

    def variables(self) -> dict[str, Any]:
        found = {"CLUSTER_SIZE": _cluster_size(self.num_data_nodes), **super().variables()}
        return {k: str(v) if isinstance(v, int) else v for k, v in found.items()}


def _cluster_size(data_nodes: Any) -> Any:
    """A head stands beside the nodes with data. What is not a number stays, as no value of a variable."""
    if isinstance(data_nodes, pulumi.Output):
        return data_nodes.apply(_cluster_size)
    return str(int(data_nodes) + 1) if isinstance(data_nodes, (int, float)) else [data_nodes]


def parts(initializer: Any) -> dict[str, Any]:
    """Return kind -> what an `Initializer` names; nothing of another value, which is a problem of its own."""
    if not isinstance(initializer, Initializer):
        return {}
    return {"dataset": initializer.dataset, "model": initializer.model}


class Initializer(Args):
    """Dataset and model of a TrainJob (`spec.initializer`).

    A source is fetched inside the job, by the runtime's initializer steps; a `DatasetInitializer` or `ModelInitializer`
    is fetched once, before, and mounted at /workspace/dataset or /workspace/model.
    """

    dataset: Source | DatasetInitializer | None = None
    model: Source | ModelInitializer | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        for field in ("dataset", "model"):
            value = self.__dict__.get(field)
            if value is not None and not isinstance(value, (Source, pulumi.ComponentResource)):
                kind = field.capitalize()
                mend = f"give HuggingFace{kind}Initializer(storage_uri=...), S3{kind}Initializer(...) or {kind}Initializer(...)"
                found.append(Problem(field, f"must be an initializer, not {type(value).__name__}", mend))
        return found


UPSTREAM = "ghcr.io/kubeflow/trainer/"
"""Where the images of Kubeflow Trainer's initializers are."""


def upstream_problems(uri: Any) -> list[Problem]:
    """What Trainer's own initializers, which run in clusters, do not know of a URI.

    https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/initializers/dataset/huggingface.py
    """
    if not isinstance(uri, str) or not uri.startswith("hf://"):
        return []
    owner, _, rest = uri.removeprefix("hf://").partition("/")
    name, _, path = rest.partition("/")
    if "@" in name:
        name, _, revision = name.partition("@")
        why = f"Trainer's initializers know no @REVISION: they would look for a repository of the name {rest.partition('/')[0]!r}"
        mend = f"give hf://{owner}/{name}, or an image= of your own that fetches {revision}"
        return [Problem("storage_uri", why, mend)]
    if path:
        why = f"Trainer's initializers know no path below a repository: all of hf://{owner}/{name} would be fetched"
        return [Problem("storage_uri", why, f"give hf://{owner}/{name}, with ignore_patterns= for what is not wanted")]
    return []


def _variables(env: Any, own: dict[str, Any]) -> Any:
    return env_list({**env, **own} if isinstance(env, Mapping) else env)


def _joined(patterns: Any) -> Any:
    """Patterns as the initializers take them; anything else stays, as no value of a variable."""
    if isinstance(patterns, pulumi.Output):
        return patterns.apply(_joined)
    if isinstance(patterns, (list, tuple)) and any(isinstance(p, pulumi.Output) for p in patterns):
        return pulumi.Output.all(*patterns).apply(_joined)
    listed = isinstance(patterns, (list, tuple)) and all(isinstance(p, str) for p in patterns)
    return ",".join(patterns) if listed else patterns


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
