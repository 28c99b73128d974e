"""Base of a plugin's own policies: fields of a runtime that Trainer does not know, typed with pydantic.

A plugin's author derives a class from `Policy`. A program gives it as `ml_policy=`, `registry` checks documents with it,
and the plugin reads with it what a runtime says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args, get_origin

from pulumi_trainer.provider.api.model import Model, problems
from pulumi_trainer.provider.kube.errors import Problem
from pydantic import PrivateAttr

P = TypeVar("P", bound="Policy")

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _Keeping
else:

    class _Keeping(type(Model)):
        """An instance that a program makes keeps what it is given, as all arguments do: Pulumi outputs are not values
        yet, and what is wrong is told with everything else. `model_validate` checks as pydantic does."""

        def __call__(cls, **given: Any) -> Any:
            made = cls.model_construct(**given)
            made._given = given
            return made


class Policy(Model, metaclass=_Keeping):
    """One policy of a plugin: a class with pydantic fields and `serves = "mlPolicy.tensorflow"`.

    serves: its place in a runtime's spec, `mlPolicy.NAME` or `podGroupPolicy.NAME`; empty in a class for a part of a
    policy. Fields have Python's names in programs and the API's camelCase ones in documents; types are strict. num_nodes:
    in programs, `mlPolicy.numNodes`: of jobs that don't say.
    """

    serves: ClassVar[str] = ""
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    if TYPE_CHECKING:
        num_nodes: int | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._given)})"  # values may be secret

    __str__ = __repr__

    @classmethod
    def parts(cls) -> tuple[str, str]:
        """Part of the spec, and name there: ("mlPolicy", "tensorflow")."""
        part, _, name = cls.serves.partition(".")
        return part, name

    @classmethod
    def read(cls: type[P], info: Any) -> P | None:
        """For plugins: the policy of a runtime, defaults filled in; None where it has none.

        Documents are checked before, so nothing is checked here; a value that is not known yet is an `Unknown`.
        """
        part, name = cls.parts()
        given = ((info.ml_policy if part == "mlPolicy" else info.pod_group_policy) or {}).get(name)
        return cls.model_construct(**given) if isinstance(given, dict) else None

    @classmethod
    def problems(cls, document: Any) -> list[Problem]:
        """What is wrong with the policy of a runtime, by its path in the runtime."""
        return [p.below(f"spec.{cls.serves}") for p in problems(cls, document)]

    @classmethod
    def api_names(cls, value: Any) -> Any:
        """The policy of a runtime by the API's names, where a program has given it as a mapping by Python's."""
        return _api_names(cls, value)

    @property
    def framework(self) -> str:
        """The runtime's label `trainer.kubeflow.org/framework`, where the runtime gives none."""
        part, name = self.parts()
        return name if part == "mlPolicy" else ""

    def document(self) -> dict[str, Any]:
        """What was given, by the API's names: all that stands at `mlPolicy` or `podGroupPolicy`."""
        given = {name: _plain(value) for name, value in self._given.items() if value is not None}
        part, name = self.parts()
        nodes = {"numNodes": given.pop("num_nodes")} if part == "mlPolicy" and "num_nodes" in given else {}
        aliases = {field: info.alias or field for field, info in type(self).model_fields.items()}
        own = {aliases.get(field, field): value for field, value in given.items()}
        return {**nodes, name: own} if name else own

    def place(self, where: str) -> str:
        """The field that stands at a path of the document: `tensorflow.psReplicas` -> `ps_replicas`."""
        own = where.removeprefix(f"{self.parts()[1]}.")
        names = {info.alias: field for field, info in type(self).model_fields.items() if info.alias}
        names["numNodes"] = "num_nodes"
        return "" if own == self.parts()[1] else ".".join(names.get(word, word) for word in own.split("."))


def _api_names(type_: Any, value: Any) -> Any:
    """Along the types of a policy: names of fields become the API's, keys of mappings stay."""
    if isinstance(type_, type) and issubclass(type_, Model) and isinstance(value, dict):
        aliases: dict[Any, str] = {field: info.alias or field for field, info in type_.model_fields.items()}
        types: dict[Any, Any] = {aliases[field]: info.annotation for field, info in type_.model_fields.items()}
        given = {aliases.get(key, key): item for key, item in value.items() if item is not None}
        return {name: _api_names(types.get(name), item) for name, item in given.items()}
    of = get_args(type_)
    if get_origin(type_) in (dict, Mapping) and isinstance(value, dict):
        return {key: _api_names(of[1], item) for key, item in value.items()}
    if get_origin(type_) in (list, Sequence) and isinstance(value, list):
        return [_api_names(of[0], item) for item in value]
    for each in of:  # alternatives, or the first of Annotated
        value = _api_names(each, value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Policy):
        return value.document()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value
