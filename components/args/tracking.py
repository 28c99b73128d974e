"""`TrainJob(tracking=)`: the experiment tracker that shows the metrics of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import pulumi
from pulumi_trainer.args.arguments import Args, drop_none, positional, type_problems
from pulumi_trainer.args.sources import Secret
from pulumi_trainer.args.trainers import env_list
from pulumi_trainer.provider.kubernetes.client.masking import hide_credentials
from pulumi_trainer.provider.kubernetes.errors import Problem


class Tracker(Args):
    """An experiment tracker. Its fields become environment variables of the nodes."""

    described: ClassVar[str] = "MLflow, WandB, TensorBoard or Trackio"
    kind: ClassVar[str] = ""
    title: ClassVar[str] = ""
    packages: ClassVar[Sequence[str]] = ()
    """Packages of which one writes to the tracker, the usual one first."""
    options: ClassVar[Mapping[str, str]] = {}
    """Field -> environment variable."""
    credentials: ClassVar[Mapping[str, str]] = {}
    """Field with a secret -> environment variable."""

    def check(self) -> list[Problem]:
        found = [*super().check(), *type_problems(self)]
        for name in self.options:
            value = getattr(self, name)
            if value is not None and not isinstance(value, (str, pulumi.Output)):
                found.append(Problem(name, f"must be a string, not {type(value).__name__}"))
            elif value == "":
                found.append(Problem(name, "is empty", "give a name, or leave it out"))
        for name, variable in self.credentials.items():
            value = getattr(self, name)
            if isinstance(value, str):
                hint = f'use pulumi.Config().require_secret("{name}"), or secret_ref= with a Secret that has {variable}'
                found.append(Problem(name, "is a plain-text secret", hint))
            elif value is not None and not isinstance(value, pulumi.Output):
                found.append(Problem(name, f"must be a secret Output, not {type(value).__name__}"))
        return found

    def document(self) -> dict[str, Any]:
        """Return the kind of the tracker, and the environment variables that the fields set."""
        named = {variable: self.__dict__.get(field) for field, variable in {**self.options, **self.credentials}.items()}
        env = env_list(drop_none(named))
        reference = self.__dict__.get("secret_ref")
        if reference is not None:
            for variable in self.credentials.values():
                key = {"name": reference, "key": variable}
                if len(self.credentials) > 1:
                    key["optional"] = True
                env.append({"name": variable, "valueFrom": {"secretKeyRef": key}})
        return {"kind": self.kind, "env": env}

    def place(self, where: str) -> str:
        at = re.match(r"env\[(\d+)\]", where)
        names = [field for field in {**self.options, **self.credentials} if self.__dict__.get(field) is not None]
        if at is not None and int(at[1]) < len(names):
            return names[int(at[1])]
        return super().place(where)


class MLflow(Tracker):
    """An MLflow server. All nodes and attempts of a run of the job use one run of MLflow, whose id is in MLFLOW_RUN_ID.

    Args:
        uri: Address of the server, `http://` or `https://` (`MLFLOW_TRACKING_URI`).
        experiment: Name of the experiment, which is created if it does not exist; default: that of the Pulumi project
            (`MLFLOW_EXPERIMENT_NAME`).
        token: Bearer token, as a secret Output; default: none (`MLFLOW_TRACKING_TOKEN`).
        username: User of the server's basic authentication, as a secret Output; default: none (`MLFLOW_TRACKING_USERNAME`).
        password: Password of this user, as a secret Output; default: none (`MLFLOW_TRACKING_PASSWORD`).
        secret_ref: Name of a Secret of the cluster with some of these three variables as keys; default: none.
    """

    uri: pulumi.Input[str] = positional(kw_only=False)
    experiment: pulumi.Input[str] | None = None
    token: Secret | None = None
    username: Secret | None = None
    password: Secret | None = None
    secret_ref: pulumi.Input[str] | None = None

    kind, title, packages = "mlflow", "MLflow", ("mlflow", "mlflow-skinny")
    options = {"uri": "MLFLOW_TRACKING_URI", "experiment": "MLFLOW_EXPERIMENT_NAME"}
    credentials = {
        "token": "MLFLOW_TRACKING_TOKEN",
        "username": "MLFLOW_TRACKING_USERNAME",
        "password": "MLFLOW_TRACKING_PASSWORD",
    }

    def check(self) -> list[Problem]:
        found = super().check()
        if isinstance(self.uri, str) and self.uri and not re.match(r"https?://[^/\s]", self.uri):
            why = f"{hide_credentials(self.uri)!r} is not the address of a server (expected for example http://mlflow:5000)"
            found.append(
                Problem("uri", why, "start one with `mlflow server`: nodes and attempts share a run through it")
            )
        return found


class WandB(Tracker):
    """Weights & Biases. All attempts of a run of the job continue one run, whose id is in WANDB_RUN_ID.

    Args:
        project: Project of the run; default: the name of the Pulumi project (`WANDB_PROJECT`).
        entity: User or team; default: that of the API key (`WANDB_ENTITY`).
        mode: `online` (default), or `offline`: the run is written to the output volume, and `wandb sync` uploads it
            (`WANDB_MODE`).
        api_key: API key, as a secret Output; default: `WANDB_API_KEY` in `env` of the trainer, or in the image.
        secret_ref: Name of a Secret of the cluster with the key `WANDB_API_KEY`; default: none.
    """

    project: pulumi.Input[str] | None = None
    entity: pulumi.Input[str] | None = None
    mode: Literal["online", "offline"] = "online"
    api_key: Secret | None = None
    secret_ref: pulumi.Input[str] | None = None

    kind, title, packages = "wandb", "W&B", ("wandb",)
    options = {"project": "WANDB_PROJECT", "entity": "WANDB_ENTITY"}
    credentials = {"api_key": "WANDB_API_KEY"}

    def document(self) -> dict[str, Any]:
        return {**super().document(), "mode": self.mode}


class TensorBoard(Tracker):
    """Event files of TensorBoard in the output volume, in a folder for each run of the job (`TENSORBOARD_LOGGING_DIR`)."""

    kind, title, packages = "tensorboard", "TensorBoard", ("tensorboard", "tensorboardx", "tensorflow")


class Trackio(Tracker):
    """Trackio's database in the output volume (`TRACKIO_DIR`).

    Args:
        project: Project of the run; default: the name of the Pulumi project (`TRAINER_TRACKING_PROJECT`).
    """

    project: pulumi.Input[str] | None = None

    kind, title, packages = "trackio", "Trackio", ("trackio",)
    options = {"project": "TRAINER_TRACKING_PROJECT"}


def writes_files(tracker: Tracker) -> bool:
    """Return whether a tracker writes into the output volume and needs no server."""
    return tracker.kind in ("tensorboard", "trackio") or getattr(tracker, "mode", "") == "offline"
