"""The base class of policies of users' plugins: fields of a runtime that Trainer does not have, typed with pydantic.

A plugin's author derives a class from `Policy`. Programs pass it as `ml_policy=`, `registry` validates documents with it, and the
plugin reads a runtime's policy with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args, get_origin

from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean, short_repr
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """An object with the API's camelCase names, strict types and no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel, populate_by_name=False)


P = TypeVar("P", bound="Policy")


class _Keeping(type(Model)):  # type: ignore[misc]  # pydantic's metaclass has no public name
    """An instance that a program makes keeps what it is given, as all arguments do: Pulumi outputs are not values
    yet, and problems are reported with all others. `model_validate` checks as pydantic does."""

    def __call__(cls: Any, **given: Any) -> Any:
        made = cls.model_construct(**given)
        made._given = given
        return made


class Policy(Model, metaclass=_Keeping):
    """One policy of a plugin: a class with pydantic fields and `serves = "mlPolicy.tensorflow"`.

    Fields have Python's names in programs and the API's camelCase ones in documents; types are strict.

    Attributes:
        serves: Place in a runtime's spec, `mlPolicy.NAME` or `podGroupPolicy.NAME`; empty in a class for a part of a policy.
        num_nodes: In programs, `mlPolicy.numNodes`: the default for jobs.
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
        """Return part of the spec, and name in it: ("mlPolicy", "tensorflow")."""
        part, _, name = cls.serves.partition(".")
        return part, name

    @classmethod
    def read(cls: type[P], info: Any) -> P | None:
        """Return the policy of a runtime with its defaults, for plugins; None if not found.

        Documents are validated before, so this does not validate; a value that is not known yet is an `Unknown`.
        """
        part, name = cls.parts()
        if part == "mlPolicy":
            policies = info.ml_policy
        else:
            policies = info.pod_group_policy
        given = (policies or {}).get(name)
        if not isinstance(given, dict):
            return None
        policy: P = _constructed(cls, given)
        return policy

    @classmethod
    def problems(cls, document: Any) -> list[Problem]:
        """Return the problems of a runtime's policy, by their paths in the runtime."""
        return problems_below(f"spec.{cls.serves}", find_wrong(cls, document))

    @classmethod
    def api_names(cls, value: Any) -> Any:
        """Return a runtime's policy with the API's names, where a program has passed a mapping with Python's names."""
        return _at_models(cls, value, _api_names)

    @property
    def framework(self) -> str:
        """Value of the label `trainer.kubeflow.org/framework` for runtimes without one."""
        part, name = self.parts()
        if part != "mlPolicy":
            return ""
        return name

    def document(self) -> dict[str, Any]:
        """Return the given fields by the API's names: the value of `mlPolicy` or `podGroupPolicy`."""
        given = {name: _plain(value) for name, value in self._given.items() if value is not None}
        part, name = self.parts()
        nodes: dict[str, Any] = {}
        if part == "mlPolicy" and "num_nodes" in given:
            nodes["numNodes"] = given.pop("num_nodes")
        aliases = _aliases(type(self))
        own = {aliases.get(field, field): value for field, value in given.items()}
        if not name:
            return own
        return {**nodes, name: own}

    def place(self, where: str) -> str:
        """Return the field for a path of the document: `tensorflow.psReplicas` becomes `ps_replicas`."""
        own = where.removeprefix(f"{self.parts()[1]}.")
        names = {info.alias: field for field, info in type(self).model_fields.items() if info.alias}
        names["numNodes"] = "num_nodes"
        if own == self.parts()[1]:
            return ""
        return ".".join(names.get(word, word) for word in own.split("."))


def _aliases(model: type[Model]) -> dict[Any, str]:
    """Return the API's name of each field."""
    return {field: info.alias or field for field, info in model.model_fields.items()}


def _types(model: type[Model]) -> dict[Any, Any]:
    """Return the type of each field by the API's name."""
    return {info.alias or field: info.annotation for field, info in model.model_fields.items()}


def _constructed(model: type[Model], value: dict[str, Any]) -> Any:
    """Return a document as an object of its class, with defaults, and so its parts; unknown values stay."""
    types = _types(model)
    given = {name: _at_models(types.get(name), item, _constructed) for name, item in value.items()}
    return model.model_construct(**given)


def _api_names(model: type[Model], value: dict[str, Any]) -> Any:
    """Return a value with field names replaced by the API's, and so in its parts; keys of mappings stay."""
    aliases, types = _aliases(model), _types(model)
    given = {aliases.get(key, key): item for key, item in value.items() if item is not None}
    return {name: _at_models(types.get(name), item, _api_names) for name, item in given.items()}


def _at_models(type_: Any, value: Any, change: Callable[[type[Model], dict[str, Any]], Any]) -> Any:
    """Return a value in which each mapping that a type declares as a class of policies is changed."""
    if isinstance(type_, type) and issubclass(type_, Model) and isinstance(value, dict):
        return change(type_, value)
    of = get_args(type_)
    if get_origin(type_) in (dict, Mapping) and isinstance(value, dict):
        return {key: _at_models(of[1], item, change) for key, item in value.items()}
    if get_origin(type_) in (list, Sequence) and isinstance(value, list):
        return [_at_models(of[0], item, change) for item in value]
    for each in of:  # alternatives, or the first of Annotated
        value = _at_models(each, value, change)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Policy):
        return value.document()
    if isinstance(value, (list, tuple)):
        return [*map(_plain, value)]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value


_WORDS = {
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "sequence_str": "must be a list",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
}


def find_wrong(model: type[Model], document: Any) -> list[Problem]:
    """Return the problems of a document with the API's paths; unknown leaves count as valid."""
    try:
        model.model_validate(document)
    except ValidationError as error:
        found: list[Problem] = []
        for e in error.errors(include_url=False, include_context=True):
            if isinstance(e["input"], Unknown):
                continue
            problem = _problem(model, e["type"], e["loc"], e["input"], e["msg"])
            if problem not in found:
                found.append(problem)
        return found
    return []


def _problem(model: type[Model], kind: str, loc: tuple[int | str, ...], value: Any, message: str) -> Problem:
    where = _path(loc)
    if kind == "extra_forbidden":
        names = _names(model, loc[:-1])
        all_names = ""
        if names:
            all_names = f"known: {', '.join(names)}"
        return Problem(where, "unknown field", did_you_mean(str(loc[-1]), names, all_names))
    if kind == "missing":
        return Problem(where, _WORDS[kind])
    if kind == "value_error":
        return Problem(where, message.removeprefix("Value error, "))
    if kind in ("too_long", "too_short", "string_too_long", "string_too_short"):
        return Problem(where, f"must{message.partition('should')[2].replace(' after validation', '')}")
    why = _WORDS.get(kind) or message.replace("Input should be", "must be")
    hint = "write it in quotes" if kind == "string_type" and isinstance(value, (int, float)) else ""
    if "env" in loc[:-1] and loc[-1] == "value":  # it may be a secret
        return Problem(where, f"{why}, not {type(value).__name__}", hint)
    return Problem(where, f"{why}, not {short_repr(value)}", hint)


def _path(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part.replace("_", "").isalnum():
            text += f"[{part!r}]"
        elif text:
            text += f".{part}"
        else:
            text = part
    return text


def _names(model: type[Model], loc: tuple[int | str, ...]) -> list[str]:
    """Return the field names of the model at `loc`."""
    current: Any = model
    for part in loc:
        if isinstance(part, int):
            continue
        info = next((f for f in current.model_fields.values() if f.alias == part), None)
        if info is None:
            return []
        current = _model_in(info.annotation)
        if current is None:
            return []
    return [*_aliases(current).values()]


def _model_in(annotation: Any) -> type[Model] | None:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    for arg in getattr(annotation, "__args__", ()):
        found = _model_in(arg)
        if found is not None:
            return found
    return None
