"""The sources of datasets and models: the arguments of an initializer.

Environment names are Trainer's initializer contract (pkg/initializers of kubeflow/trainer v2.3.0); fields are the Kubeflow
SDK's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.args.arguments import Args, as_mapping, as_sequence, drop_none
from pulumi_trainer.args.trainers import env_list, env_problems
from pulumi_trainer.provider.kubernetes.client.masking import hide_credentials
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.quantity import quantity_problems
from pulumi_trainer.provider.trainer.admission.storage_uris import repository_problem

Secret = pulumi.Output[str]
"""A secret Output, such as `config.require_secret("hfToken")`; a plain string is refused."""


class DataSource(Args):
    """A dataset or a model, by its URI (`spec.initializer.dataset`, `.model`).

    Args:
        storage_uri: `hf://`, `s3://` or `file://` (a path on this machine, relative to the program's working directory;
            in a cluster only with `DatasetInitializer` and `ModelInitializer`).
        ignore_patterns: Name patterns of files to leave out, without commas (`IGNORE_PATTERNS`).
        env: Other environment variables of the initializer.
        secret_ref: Name of a Secret of the cluster with the credentials (`secretRef.name`).
    """

    storage_uri: pulumi.Input[str] | None = None
    ignore_patterns: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    env: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    secret_ref: pulumi.Input[str] | None = None

    scheme: ClassVar[str] = ""
    credentials: ClassVar[Mapping[str, str]] = {}
    options: ClassVar[Mapping[str, str]] = {}

    def check(self) -> list[Problem]:
        found = super().check() + env_problems(self.env)
        uri = self.storage_uri
        if uri is None:
            found.append(Problem("storage_uri", "is required"))
        found += self.scheme_problems(uri)
        for name in ("secret_ref", *self.options):
            value = self.__dict__.get(name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, (str, int, float, pulumi.Output))
            ):
                found.append(Problem(name, f"must be a string, not {type(value).__name__}"))
        for i, pattern in enumerate(as_sequence(self.ignore_patterns)):
            if isinstance(pattern, str) and "," in pattern:
                found.append(
                    Problem(
                        f"ignore_patterns[{i}]", "must not contain a comma", "make each pattern an item of the list"
                    )
                )
            elif not isinstance(pattern, (str, pulumi.Output)):
                found.append(Problem(f"ignore_patterns[{i}]", f"must be a string, not {type(pattern).__name__}"))
        for name in self.credentials:
            if isinstance(self.__dict__.get(name), str):
                hint = f'use pulumi.Config().require_secret("{name}"), or secret_ref= with a Secret of the cluster'
                found.append(Problem(name, "is a plain-text secret", hint))
        return found

    def scheme_problems(self, uri: Any) -> list[Problem]:
        """Return a problem if a known URI is not of the scheme of this class."""
        if not isinstance(uri, str) or uri.startswith(self.scheme):
            return []
        return [Problem("storage_uri", f"must start with {self.scheme}, not {hide_credentials(uri)!r}")]

    def given_twice(self) -> list[Problem]:
        """Return the settings that `env` gives as well, with other values; secret ones are not shown."""
        env = as_mapping(self.env)
        own = {variable: field for field, variable in self.options.items()} | {"IGNORE_PATTERNS": "ignore_patterns"}
        secret = {variable: field for field, variable in self.credentials.items()}
        found = []
        for variable, value in self.variables().items():
            if variable not in env or env[variable] == value:
                continue
            if variable in own and isinstance(value, str) and isinstance(env[variable], str):
                values = f"is {value!r}, but env[{variable!r}] is {env[variable]!r}"
            else:
                values = f"env[{variable!r}] is set too"
            field = own.get(variable) or secret.get(variable, "env")
            found.append(Problem(field, f"{values}: the argument wins", f"leave {variable} out of env"))
        return found

    def document(self) -> dict[str, Any]:
        """Return an `InitializerSource`: storageUri, env and secretRef."""
        own = self.variables()
        document: dict[str, Any] = {"storageUri": self.storage_uri}
        if isinstance(self.env, pulumi.Output):
            document["env"] = pulumi.Output.all(self.env, own).apply(lambda both: _variables(*both))
        else:
            env = {**as_mapping(self.env), **own}
            if env:
                document["env"] = env_list(env)
        if self.secret_ref is not None:
            document["secretRef"] = {"name": self.secret_ref}
        return document

    def place(self, where: str) -> str:
        for field, variable in {**self.options, **self.credentials, "ignore_patterns": "IGNORE_PATTERNS"}.items():
            start = f'env["{variable}"]'
            if where.startswith(start) and self.__dict__.get(field) is not None:
                return field + where.removeprefix(start)
        return super().place(where)

    def variables(self) -> dict[str, Any]:
        """Return the environment variables of the initializer that the fields set."""
        named = {**self.options, **self.credentials}
        found = drop_none({variable: self.__dict__.get(field) for field, variable in named.items()})
        if self.ignore_patterns is not None:
            found["IGNORE_PATTERNS"] = _joined(self.ignore_patterns)
        return found


class HuggingFaceDatasetInitializer(DataSource):
    """A dataset of the Hugging Face hub.

    Args:
        storage_uri: `hf://OWNER/NAME[@REVISION][/PATH]`. In a cluster `hf://OWNER/NAME`, unless an image of your own
            fetches (`image=` of `DatasetInitializer` and `ModelInitializer`, or of the runtime).
        ignore_patterns: Name patterns of files to leave out, without commas (`IGNORE_PATTERNS`).
        env: Other environment variables of the initializer.
        secret_ref: Name of a Secret of the cluster with the credentials (`secretRef.name`).
        access_token: Token of the hub, as a secret Output (`ACCESS_TOKEN`).
    """

    access_token: Secret | None = None

    scheme = "hf://"
    credentials = {"access_token": "ACCESS_TOKEN"}


class HuggingFaceModelInitializer(HuggingFaceDatasetInitializer):
    """A model of the Hugging Face hub.

    Args:
        storage_uri: `hf://OWNER/NAME[@REVISION][/PATH]`. In a cluster `hf://OWNER/NAME`, unless an image of your own
            fetches (`image=` of `DatasetInitializer` and `ModelInitializer`, or of the runtime).
        ignore_patterns: Name patterns of files to leave out, without commas; default: weights in other formats than
            safetensors (`*.msgpack`, `*.h5`, `*.bin`, `*.pt`, `*.pth`). Only `*.json`, `*.safetensors`, `*.model` and `*.txt` are
            fetched, on Local `*.jinja`, `*.tiktoken` and `*.bpe` too; all of a PATH.
        env: Other environment variables of the initializer.
        secret_ref: Name of a Secret of the cluster with the credentials (`secretRef.name`).
        access_token: Token of the hub, as a secret Output (`ACCESS_TOKEN`).
    """


class S3DatasetInitializer(DataSource):
    """A dataset in S3.

    Without keys the environment of the initializer decides (instance role, web identity).

    Args:
        storage_uri: `s3://BUCKET/PREFIX`.
        ignore_patterns: Name patterns of files to leave out, without commas (`IGNORE_PATTERNS`).
        env: Other environment variables of the initializer.
        secret_ref: Name of a Secret of the cluster with the credentials (`secretRef.name`).
        endpoint: URL of the S3 service; default: AWS (`ENDPOINT`).
        region: Region of the bucket (`REGION`).
        role_arn: ARN of the role to assume (`ROLE_ARN`).
        access_key_id: Access key, as a secret Output; default: the environment of the initializer (`ACCESS_KEY_ID`).
        secret_access_key: Secret key, as a secret Output; default: the environment of the initializer
            (`SECRET_ACCESS_KEY`).
    """

    endpoint: pulumi.Input[str] | None = None
    region: pulumi.Input[str] | None = None
    role_arn: pulumi.Input[str] | None = None
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None

    scheme = "s3://"
    options = {"endpoint": "ENDPOINT", "region": "REGION", "role_arn": "ROLE_ARN"}
    credentials = {"access_key_id": "ACCESS_KEY_ID", "secret_access_key": "SECRET_ACCESS_KEY"}


class S3ModelInitializer(S3DatasetInitializer):
    """A model in S3.

    Without keys the environment of the initializer decides (instance role, web identity).

    Args:
        storage_uri: `s3://BUCKET/PREFIX`.
        ignore_patterns: Name patterns of files to leave out, without commas (`IGNORE_PATTERNS`).
        env: Other environment variables of the initializer.
        secret_ref: Name of a Secret of the cluster with the credentials (`secretRef.name`).
        endpoint: URL of the S3 service; default: AWS (`ENDPOINT`).
        region: Region of the bucket (`REGION`).
        role_arn: ARN of the role to assume (`ROLE_ARN`).
        access_key_id: Access key, as a secret Output; default: the environment of the initializer (`ACCESS_KEY_ID`).
        secret_access_key: Secret key, as a secret Output; default: the environment of the initializer
            (`SECRET_ACCESS_KEY`).
    """


class DataCacheInitializer(DataSource):
    """A dataset in Trainer's distributed data cache: an Iceberg table in the memory of the cache's nodes.

    Trainers read from `grpc://$TRAIN_JOB_NAME-cache-service:50051`. It needs a runtime with the cache's initializer, such as
    torch-distributed-with-cache, and a cluster with Trainer and LeaderWorkerSet.

    Args:
        storage_uri: `cache://SCHEMA/TABLE`.
        ignore_patterns: Not supported: a cache contains whole tables.
        env: Other environment variables of the initializer.
        secret_ref: Name of a Secret of the cluster with the credentials (`secretRef.name`).
        metadata_loc: Metadata file of the table (`METADATA_LOC`).
        num_data_nodes: Nodes with data, at least 2 (`CLUSTER_SIZE` counts the head too).
        head_cpu: CPUs of the head as a quantity; default: 1 (`HEAD_CPU`).
        head_mem: Memory of the head as a quantity; default: 1Gi (`HEAD_MEM`).
        worker_cpu: CPUs of each data node as a quantity; default: 2 (`WORKER_CPU`).
        worker_mem: Memory of each data node as a quantity; default: 2Gi (`WORKER_MEM`).
        iam_role: AWS role that reads `metadata_loc`; required unless the runtime or `env` sets IAM_ROLE (`IAM_ROLE`).
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
        for field in ("metadata_loc", "num_data_nodes"):
            if getattr(self, field) is None:
                found.append(Problem(field, "is required"))
        nodes = self.num_data_nodes
        if nodes is not None and not isinstance(nodes, pulumi.Output) and not (type(nodes) is int and nodes > 1):
            found.append(Problem("num_data_nodes", f"must be a whole number greater than 1, not {nodes!r}"))
        for field in ("head_cpu", "head_mem", "worker_cpu", "worker_mem"):
            found += problems_below(field, quantity_problems(getattr(self, field)))
        if self.ignore_patterns is not None:
            found.append(
                Problem("ignore_patterns", "has no effect: a data cache always holds whole tables", "leave it out")
            )
        return found

    def variables(self) -> dict[str, Any]:
        found = {"CLUSTER_SIZE": _cluster_size(self.num_data_nodes), **super().variables()}
        for name, value in found.items():
            if isinstance(value, int):
                found[name] = str(value)
        return found


def _cluster_size(data_nodes: Any) -> Any:
    """Return the number of nodes with the head; a value that is not a number becomes a list, which is not a valid variable."""
    if isinstance(data_nodes, pulumi.Output):
        return data_nodes.apply(_cluster_size)
    if isinstance(data_nodes, (int, float)):
        return str(int(data_nodes) + 1)
    return [data_nodes]


def parts(initializer: Any) -> dict[str, Any]:
    """Return kind -> source of an `Initializer`; empty for any other value, which another check reports."""
    if not isinstance(initializer, Initializer):
        return {}
    return {"dataset": initializer.dataset, "model": initializer.model}


class FetchedDataset:
    """A dataset that is fetched once, before the jobs that mount it: a `DatasetInitializer`."""


class FetchedModel:
    """A model that is fetched once, before the jobs that mount it: a `ModelInitializer`."""


class Initializer(Args):
    """Dataset and model of a TrainJob (`spec.initializer`).

    A source is fetched inside the job, by the runtime's initializer steps; a `DatasetInitializer` or `ModelInitializer` is
    fetched once, before the job, and mounted.

    Args:
        dataset: Dataset at /workspace/dataset; default: none.
        model: Model at /workspace/model; default: none.
    """

    dataset: DataSource | FetchedDataset | None = None
    model: DataSource | FetchedModel | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        for field in ("dataset", "model"):
            value = self.__dict__.get(field)
            if value is not None and not isinstance(value, (DataSource, pulumi.ComponentResource)):
                kind = field.capitalize()
                hint = f"give HuggingFace{kind}Initializer(storage_uri=...), S3{kind}Initializer(...) or {kind}Initializer(...)"
                found.append(Problem(field, f"must be an initializer, not {type(value).__name__}", hint))
        return found


UPSTREAM = "ghcr.io/kubeflow/trainer/"
"""Registry path of the images of Kubeflow Trainer's initializers."""


def upstream_problems(uri: Any, kind: str) -> list[Problem]:
    """Return the parts of a URI that Trainer's own initializers, which run in clusters, do not support."""
    found = repository_problem(uri, kind)
    if found is None:
        return []
    return [replace(found, where="storage_uri")]


def _variables(env: Any, own: dict[str, Any]) -> Any:
    if isinstance(env, Mapping):
        return env_list({**env, **own})
    return env_list(env)


def _joined(patterns: Any) -> Any:
    """Return patterns as the initializers expect them; any other value stays, and is not a valid variable."""
    if isinstance(patterns, pulumi.Output):
        return patterns.apply(_joined)
    if isinstance(patterns, (list, tuple)) and any(isinstance(p, pulumi.Output) for p in patterns):
        return pulumi.Output.all(*patterns).apply(_joined)
    if isinstance(patterns, (list, tuple)) and all(isinstance(p, str) for p in patterns):
        return ",".join(patterns)
    return patterns


def with_absolute_paths(initializer: dict[str, Any]) -> dict[str, Any]:
    """Return `spec.initializer` with absolute file:// paths, because the initializer runs in another folder than the program."""
    located = dict(initializer)
    for kind, source in initializer.items():
        if "storageUri" in source:
            located[kind] = {**source, "storageUri": absolute(source["storageUri"])}
    return located


def absolute(uri: Any) -> Any:
    """Return a relative file:// path as an absolute one; any other value stays."""
    if isinstance(uri, str) and uri.startswith("file://"):
        return f"file://{Path(uri.removeprefix('file://')).absolute()}"
    return uri
