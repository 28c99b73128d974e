"""Model registries: their addresses, and which names they accept."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.args.arguments import Args, shown_value
from pulumi_trainer.args.sources import Secret
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.machine.extras import missing
from pulumi_trainer.provider.registries.registry import ADDRESSES, KUBEFLOW, MLFLOW, address_problems

_LONGEST = 255


class Registry(Args):
    """A model registry."""

    kind: ClassVar[str]
    module: ClassVar[str]
    token: Secret | None = None

    def check(self) -> list[Problem]:
        found = [*super().check(), *missing(self.module)]
        url = self.url
        if isinstance(url, str):
            found += address_problems(self.kind, url, has_token=isinstance(self.token, pulumi.Output))
        elif not isinstance(url, pulumi.Output):
            found.append(Problem(ADDRESSES[self.kind], f"must be a URL, not {shown_value(url)}"))
        if self.token is not None and not isinstance(self.token, pulumi.Output):
            hint = 'use pulumi.Config().require_secret("token")'
            found.append(Problem("token", "is plain text, so the plan and the state would show it", hint))
        return found

    @property
    def url(self) -> Any:
        """Return the URL of the server."""
        return self.__dict__.get(ADDRESSES[self.kind])

    @property
    def settings(self) -> dict[str, Any]:
        """Return the input `registry` of a model version."""
        found = {"kind": self.kind, "uri": self.url}
        if self.token is not None:
            found["token"] = pulumi.Output.secret(self.token)
        return found

    def name_problems(self, name: str, version: str | None, aliases: Sequence[str]) -> Iterator[Problem]:
        """Yield which names of a version the registry would refuse."""
        raise NotImplementedError


class MLflowRegistry(Registry):
    """The model registry of an MLflow server (extra `mlflow`).

    Args:
        uri: URL of the tracking server, such as `https://mlflow.example.com`.
        token: Token of the server, as a secret Output; default: MLflow's client reads `MLFLOW_TRACKING_TOKEN`, or
            `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD`, in the environment of `pulumi up`.
    """

    uri: pulumi.Input[str]
    token: Secret | None = None

    kind, module = MLFLOW, "mlflow"

    def name_problems(self, name: str, version: str | None, aliases: Sequence[str]) -> Iterator[Problem]:
        """Yield which names MLflow would refuse (mlflow/utils/validation.py)."""
        is_path = posixpath.normpath(name) != name or name in (".", "..")
        if not name.strip() or len(name) > _LONGEST or "/" in name or ":" in name or is_path:
            yield Problem("name", f"not a valid name of a model of MLflow: {name!r}", "use letters, digits, - and _")
        elif "'" in name and '"' in name:
            yield Problem("name", f"{name!r} has both kinds of quotes, which no filter of MLflow can express")
        if version is not None:
            hint = f'leave it out; aliases=["{_as_alias(version)}"] names the version'
            yield Problem("version", "MLflow numbers versions itself", hint)
        for place, alias in enumerate(aliases):
            if not re.fullmatch(rf"[\w-]{{1,{_LONGEST}}}", alias) or re.fullmatch(r"(?i)latest|v\d+", alias):
                hint = "use letters, digits, - and _; latest, v1, v2, ... are reserved"
                yield Problem(f"aliases[{place}]", f"not a valid alias of MLflow: {alias!r}", hint)


def _as_alias(version: str) -> str:
    """Return an alias that MLflow accepts for the name of a version."""
    return re.sub(r"[^\w-]", "-", f"release-{version}", flags=re.ASCII)


class KubeflowModelRegistry(Registry):
    """A Kubeflow Model Registry (extra `model-registry`).

    Args:
        server: URL of its REST API, such as `https://registry.example.com` or `http://127.0.0.1:8080`.
        token: Token of the server, as a secret Output; default: that of the file which `KF_PIPELINES_SA_TOKEN_PATH` names in
            the environment of `pulumi up`.
    """

    server: pulumi.Input[str]
    token: Secret | None = None

    kind, module = KUBEFLOW, "model_registry"

    def name_problems(self, name: str, version: str | None, aliases: Sequence[str]) -> Iterator[Problem]:
        for field, value in (("name", name), ("version", version)):
            if value is not None and (not value.strip() or len(value) > _LONGEST):
                yield Problem(field, f"must have 1 to {_LONGEST} characters, not {value!r:.80}")
        if aliases:
            yield Problem("aliases", "Kubeflow Model Registry has no aliases", "leave it out, or use version=")
