"""Base of the typed documents: strict types, no unknown fields, the API's camelCase names.

The models check plain documents; nothing is converted, so a document that passes is used as it is.
`problems` is what every layer calls.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any

from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.quantity import Quantity as ParsedQuantity
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """One object of an API, by the API's own field names."""

    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel, populate_by_name=False)


def _quantity(value: Any) -> Any:
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise ValueError(f'must be a quantity such as 3, "500m" or "4Gi", not {shown(value)}')
    ParsedQuantity.parse(str(value))
    return value


Quantity = Annotated[Any, PlainValidator(_quantity)]
"""A Kubernetes quantity such as 3, "500m" or "4Gi"."""


def quantity_problems(value: Any) -> list[Problem]:
    """What is wrong with a quantity; nothing with one that is not known yet or comes from a Pulumi resource."""
    if not isinstance(value, (str, int, float)):
        return []
    try:
        _quantity(value)
    except ValueError as error:
        return [Problem("", str(error))]
    return []


Labels = dict[str, str]
Pod = dict[str, Any]
Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Natural = Annotated[int, Field(ge=0, le=2**31 - 1)]

_WORDS = {
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
}


def problems(model: type[Model], document: Any) -> list[Problem]:
    """What is wrong with `document`; unknown leaves count as right. Paths are the API's: `spec.trainer.numNodes`."""
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
        known = _names(model, loc[:-1])
        near = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.6)
        mend = f"did you mean {near[0]}?" if near else (f"known: {', '.join(known)}" if known else "")
        return Problem(where, "unknown field", mend)
    if kind == "missing":
        return Problem(where, _WORDS[kind])
    if kind == "value_error":
        return Problem(where, message.removeprefix("Value error, "))
    if kind in ("too_long", "too_short", "string_too_long", "string_too_short"):
        return Problem(where, f"must{message.partition('should')[2].replace(' after validation', '')}")
    why = _WORDS.get(kind) or message.replace("Input should be", "must be")
    if "env" in loc[:-1] and loc[-1] == "value":  # it may be a secret
        return Problem(where, f"{why}, not {type(value).__name__}")
    return Problem(where, f"{why}, not {shown(value)}")


def shown(value: Any) -> str:
    """A value for an error text: its repr, short, with its type where the repr does not tell."""
    text = repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return text if isinstance(value, (str, int, float, bool, type(None))) else f"{text} ({type(value).__name__})"


def _path(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("_", "").isalnum():
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text


def _names(model: type[Model], loc: tuple[int | str, ...]) -> list[str]:
    """The field names that the model at `loc` knows."""
    current: Any = model
    for part in loc:
        if isinstance(part, int):
            continue
        info = next((f for f in current.model_fields.values() if f.alias == part), None)
        current = _model_in(info.annotation) if info else None
        if current is None:
            return []
    return [f.alias or n for n, f in current.model_fields.items()]


def _model_in(annotation: Any) -> type[Model] | None:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    for arg in getattr(annotation, "__args__", ()):
        if found := _model_in(arg):
            return found
    return None
