"""MLflow's model registry, through its own client.

A version belongs to a run of MLflow, which has inputs and metrics. MLflow's server takes a folder only if it is among the
artifacts of that run, so the output of this machine is copied there; one in a cluster stays where it is
(https://mlflow.org/docs/latest/ml/model-registry/).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.machine.extras import missing, not_installed
from pulumi_trainer.provider.registries.registry import (
    MLFLOW,
    Registered,
    Registration,
    no_answer,
    refusal,
    registry_name,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

_FOLDER = "model"
"""Folder of the artifacts of a run of MLflow that has the output."""
_LONGEST_PARAM = 6000
_LONGEST_KEY = 250
_LOCK = threading.Lock()
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
}
"""Settings of MLflow's client for variables that the user has not set. By default it tries for minutes to reach a server."""
_LOGIN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
"""What MLflow's client prefers to a token."""
_TOKEN = "MLFLOW_TRACKING_TOKEN"  # noqa: S105  # the name of the variable


class MLflow:
    """The registry of a tracking server. token: Empty: MLflow's client reads its own variables."""

    def __init__(self, uri: str, token: str) -> None:
        self.uri, self._token = uri, token

    def register(self, given: Registration) -> Registered:
        with self._client() as client:
            found = self._find_version(client, given) or self._create_version(client, given)
            for alias in given.aliases:
                client.set_registered_model_alias(given.model, alias, found.version)
        url = f"{self.uri}/#/models/{quote(given.model, safe='')}/versions/{found.version}"
        return Registered(str(found.version), url)

    def has(self, model: str, version: str) -> bool:
        with self._client() as client:
            return bool(client.search_model_versions(f"name = {_quoted(model)} and version_number = {int(version)}"))

    def set_aliases(self, model: str, version: str, aliases: Sequence[str], before: Sequence[str]) -> None:
        with self._client() as client:
            current = client.get_registered_model(model).aliases
            for alias in before:
                if alias not in aliases and str(current.get(alias)) == version:
                    client.delete_registered_model_alias(model, alias)
            for alias in aliases:
                client.set_registered_model_alias(model, alias, version)

    def remove(self, model: str, version: str) -> None:
        """Delete a version, and the run of MLflow with the copy of its output."""
        with self._client() as client:
            for found in client.search_model_versions(f"name = {_quoted(model)} and version_number = {int(version)}"):
                client.delete_model_version(model, version)
                if found.run_id:
                    client.delete_run(found.run_id)

    @contextmanager
    def _client(self) -> Iterator[MlflowClient]:
        where = registry_name(MLFLOW, self.uri)
        if missing("mlflow"):
            raise not_installed("mlflow", where)
        with _LOCK, _variables(self._token):
            import requests
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException

            try:
                yield MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)
            except MlflowException as error:
                cause = error.__context__
                if isinstance(cause, requests.RequestException):
                    raise no_answer(where, _reason(cause)) from None
                raise refusal(where, str(error)) from None

    def _find_version(self, client: MlflowClient, given: Registration) -> ModelVersion | None:
        """Return the version that a process has registered which has ended before it could record that; None if not found."""
        wanted = f"name = {_quoted(given.model)} and {_filter(given.identity)}"
        return next(iter(client.search_model_versions(wanted)), None)

    def _create_version(self, client: MlflowClient, given: Registration) -> ModelVersion:
        run = self._find_run(client, given)
        source = given.source
        if given.folder:
            self._copy(client, run, given.folder)
            source = f"{run.info.artifact_uri}/{_FOLDER}"
        client.set_terminated(run.info.run_id, end_time=_milliseconds(given.finished))
        from mlflow.exceptions import MlflowException

        with suppress(MlflowException):  # it exists, or else the next call says why not
            client.create_registered_model(given.model)
        tags = {_key(name): text for name, text in given.tags.items()}
        return client.create_model_version(given.model, source, run.info.run_id, tags=tags)

    def _copy(self, client: MlflowClient, run: Run, folder: str) -> None:
        """Copy an output to the artifacts of a run, which may be in any store that MLflow has a client for."""
        try:
            client.log_artifacts(run.info.run_id, folder, _FOLDER)
        except Exception as error:  # of that client, such as boto3, or that it is not installed
            why = f"artifacts cannot be written to {run.info.artifact_uri}: {error}"
            raise TargetFault(Problem(registry_name(MLFLOW, self.uri), why)) from None

    def _find_run(self, client: MlflowClient, given: Registration) -> Run:
        """Return the run of MLflow for a run of the job, with its inputs and metrics; made, if there is none yet."""
        from mlflow.entities import Metric, Param

        experiment = client.get_experiment_by_name(given.project)
        place = experiment.experiment_id if experiment is not None else client.create_experiment(given.project)
        found = client.search_runs([place], _filter(given.identity), max_results=1)
        if found:
            run = found[0]
        else:
            name = f"{given.job}-{given.run}"
            tags = {_key(key): text for key, text in {**given.identity, **given.facts}.items()}
            run = client.create_run(place, start_time=_milliseconds(given.started), tags=tags, run_name=name)
        end = _milliseconds(given.finished) or 0
        metrics = [Metric(_key(key), value, end, 0) for key, value in _numbers(given.metrics)]
        params = [Param(_key(key), text[:_LONGEST_PARAM]) for key, text in given.inputs.items()]
        client.log_batch(run.info.run_id, metrics, params)  # again for a run that was found: it may lack them
        return run


@contextmanager
def _variables(token: str) -> Iterator[None]:
    """Set the variables that MLflow's client reads, which has no other way to get a token."""
    wanted = {name: value for name, value in _DEFAULTS.items() if name not in os.environ}
    if token:
        wanted[_TOKEN] = token
    before = {name: os.environ.get(name) for name in (*wanted, *_LOGIN)}
    os.environ.update(wanted)
    if token:
        for name in _LOGIN:
            os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _filter(identity: Mapping[str, str]) -> str:
    return " and ".join(f"tags.`{name}` = {_quoted(text)}" for name, text in identity.items())


def _quoted(text: str) -> str:
    """Return a text of a filter of MLflow, whose grammar has no escapes."""
    return f'"{text}"' if "'" in text else f"'{text}'"


def _key(name: str) -> str:
    """Return the name of a tag, a parameter or a metric in the characters that MLflow allows."""
    return re.sub(r"[^\w.\- /:]", "_", name, flags=re.ASCII)[:_LONGEST_KEY]


def _numbers(metrics: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for name, text in metrics.items():
        with suppress(ValueError):
            yield name, float(text)


def _milliseconds(seconds: float) -> int | None:
    return int(seconds * 1000) or None


def _reason(error: Exception) -> str:
    """Return why a server has not answered, without the objects of urllib3 that the error names."""
    found = re.search(r"\[Errno -?\d+\] ([^'\")]+)|([Rr]ead timed out)", str(error))
    return (found[1] or found[2]) if found else str(error)
