"""Kubeflow Model Registry, through its own client (https://www.kubeflow.org/docs/components/model-registry/).

A version has the record of the run as its custom properties, and one artifact with the URI of the output. Versions cannot be
deleted: the API archives them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.machine.extras import missing, not_installed
from pulumi_trainer.provider.registries.registry import (
    KUBEFLOW,
    Registered,
    Registration,
    no_answer,
    refusal,
    registry_name,
)

if TYPE_CHECKING:
    from model_registry.core import ModelRegistryAPIClient
    from model_registry.types import ModelVersion, RegisteredModel

T = TypeVar("T")
_SECONDS = 60.0
"""How long one operation may take: the client waits five minutes for each answer."""
_TOKEN_FILE = "KF_PIPELINES_SA_TOKEN_PATH"  # noqa: S105  # the variable with its path, as the client reads it
_AUTHOR = "pulumi-trainer"


class KubeflowRegistry:
    """The registry of a server. token: Empty: that of the file which the client's own variable names, if it is set."""

    def __init__(self, uri: str, token: str) -> None:
        self.uri, self._token = uri, token
        self._where = registry_name(KUBEFLOW, uri)

    def register(self, given: Registration) -> Registered:
        return self._run(self._register(given))

    def has(self, model: str, version: str) -> bool:
        return self._run(self._has(model, version))

    def set_aliases(self, model: str, version: str, aliases: Sequence[str], before: Sequence[str]) -> None:
        """Do nothing: this registry has no aliases, and a plan refuses them."""

    def remove(self, model: str, version: str) -> None:
        """Archive a version."""
        self._run(self._archive(model, version))

    async def _register(self, given: Registration) -> Registered:
        from model_registry.types import ModelArtifact, ModelVersion, RegisteredModel
        from mr_openapi import ModelVersionState

        api = self._api()
        model = await api.get_registered_model_by_params(given.model)
        model = model or await api.upsert_registered_model(RegisteredModel(name=given.model, owner=_AUTHOR))
        name = given.version or f"{given.job}-{given.run}"
        version = await api.get_model_version_by_params(_id_of(model), name)
        if version is None:
            made = ModelVersion(name=name, author=_AUTHOR, custom_properties=given.tags)
            version = await api.upsert_model_version(made, _id_of(model))
        elif not given.identity.items() <= (version.custom_properties or {}).items():
            why = f"version {name!r} of {given.model!r} is the output of another run"
            raise TargetFault(Problem(self._where, why, "give the ModelVersion another version="))
        elif version.state == ModelVersionState.ARCHIVED:
            version.state = ModelVersionState.LIVE
            version = await api.upsert_model_version(version)
        if await api.get_model_artifact_by_params(given.model, _id_of(version)) is None:
            artifact = ModelArtifact(
                name=given.model,
                uri=given.source,
                model_source_kind="trainer",
                model_source_class="trainjob",
                model_source_group=given.namespace,
                model_source_id=given.run,
                model_source_name=given.job,
            )
            await api.upsert_model_version_artifact(artifact, _id_of(version))
        return Registered(name, f"{self.uri}/api/model_registry/v1/model_versions/{version.id}")

    async def _has(self, model: str, version: str) -> bool:
        from mr_openapi import ModelVersionState

        found = await self._find(model, version)
        return found is not None and found.state != ModelVersionState.ARCHIVED

    async def _find(self, model: str, version: str) -> ModelVersion | None:
        api = self._api()
        found = await api.get_registered_model_by_params(model)
        if found is None:
            return None
        return await api.get_model_version_by_params(_id_of(found), version)

    async def _archive(self, model: str, version: str) -> None:
        from mr_openapi import ModelVersionState

        found = await self._find(model, version)
        if found is not None:
            found.state = ModelVersionState.ARCHIVED
            await self._api().upsert_model_version(found)

    def _api(self) -> ModelRegistryAPIClient:
        from model_registry.core import ModelRegistryAPIClient

        token, secure = self._token or _token_of_file(self._where), urlsplit(self.uri).scheme == "https"
        if secure:
            return ModelRegistryAPIClient.secure_connection(self.uri, 443, user_token=token)
        return ModelRegistryAPIClient.insecure_connection(self.uri, 80, token or None)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a call of the client returns, in this thread."""
        if missing("model_registry"):
            work.close()
            raise not_installed("model_registry", self._where)
        logging.getLogger().addHandler(logging.NullHandler())  # else the client makes all loggers print
        import aiohttp
        from mr_openapi.exceptions import ApiException

        try:
            return asyncio.run(asyncio.wait_for(work, _SECONDS))
        except ApiException as error:
            raise refusal(self._where, f"{error.status} {error.reason}: {error.body or ''}".rstrip(": ")) from None
        except asyncio.TimeoutError:
            raise no_answer(self._where, f"no answer after {_SECONDS:g} seconds") from None
        except aiohttp.ClientError as error:
            raise no_answer(self._where, str(error)) from None


def _id_of(found: RegisteredModel | ModelVersion) -> str:
    return str(found.id)


def _token_of_file(where: str) -> str:
    """Return the token of the file that the client's own variable names; empty if it is not set."""
    path = os.environ.get(_TOKEN_FILE)
    if not path:
        return ""
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError as error:
        raise TargetFault(Problem(where, f"{_TOKEN_FILE} is {path}, which cannot be read: {error.strerror}")) from None
