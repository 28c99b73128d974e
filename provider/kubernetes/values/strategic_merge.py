"""Kubernetes' strategic merge patch on documents as `GoTypes.as_struct` returns them, the order of merged lists included.

Source: https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/util/strategicpatch/patch.go
"""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import without
from pulumi_trainer.provider.kubernetes.values.typed import GoTypes
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

_DIRECTIVE = "$patch"
_DELETE_FROM_LIST = "$deleteFromPrimitiveList"


class MergeError(ValueError):
    """The patch cannot be applied; the text contains the reason."""


def strategic_merge(types: GoTypes, type_: str, original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return `original` with `patch` merged in by the patch strategies of a Go type; neither is changed.

    Maps are merged deeply, lists with a merge key by that key, other values are replaced; null removes. A `$patch` directive
    works wherever a map without fixed fields accepts it.

    Raises:
        MergeError: A directive is not valid, or an item lacks its key.
    """
    return _merge_maps(types, type_, original, patch)


def _merge_maps(types: GoTypes, kind: str, original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    if _DIRECTIVE in patch:
        return _apply_directives(patch)
    merged = dict(original)
    for name, value in patch.items():
        key, removes = _listed(name)
        if name == "$retainKeys" or name.startswith("$setElementOrder"):
            raise MergeError(f"{name} needs a list of mappings, not a list of strings")
        if value is None:
            merged.pop(key, None)
        elif key not in merged:
            if not removes:
                _take(merged, key, value)
        elif isinstance(merged[key], Unknown) and isinstance(value, (dict, list)):
            pass  # what the patch makes of an unknown value is unknown
        elif isinstance(merged[key], dict) and isinstance(value, dict):
            merged[key] = _merge_maps(types, _type_of_field(types, kind, key), merged[key], value)
        elif isinstance(merged[key], list) and isinstance(value, list):
            merged[key] = _merge_lists(types, kind, key, merged[key], value)
        elif not removes or type(merged[key]) is type(value):
            _take(merged, key, value)
    return merged


def _listed(name: str) -> tuple[str, bool]:
    """Return the field's name, and whether the value lists items to remove."""
    if not name.startswith(_DELETE_FROM_LIST):
        return name, False
    directive, slash, key = name.partition("/")
    if directive != _DELETE_FROM_LIST or not slash:
        raise MergeError(f"{_DELETE_FROM_LIST} is followed by / and a key")
    return key or name, True


def _apply_directives(patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch[_DIRECTIVE]
    if directive == "replace":
        return without(patch, _DIRECTIVE)
    if directive == "delete":
        return {}
    raise MergeError(f"{_DIRECTIVE} must be replace or delete")


def _merge_lists(types: GoTypes, kind: str, name: str, original: list[Any], patch: list[Any]) -> list[Any]:
    how = types.fields(kind)[name]
    if how.merge is None:
        return patch
    if not original and not patch:
        return original
    if not how.merge:
        return _ordered(original, patch, {item: item for item in [*original, *patch]})
    merged: dict[Any, Any] = {}
    old = [_key(item, how.merge, name) for item in original]
    new = [_key(item, how.merge, name) for item in patch]
    for key, item in zip(old, original, strict=True):
        merged.setdefault(key, item)
    for key, item in zip(new, patch, strict=True):
        if isinstance(merged.get(key), dict) and isinstance(item, dict):
            item = _merge_maps(types, how.kind[1:-1], merged[key], item)
        merged[key] = item
    return _ordered(old, new, merged)


def _ordered(original: list[Any], patch: list[Any], merged: dict[Any, Any]) -> list[Any]:
    """Items of the patch in its order. One that only the original has comes before the next item of the patch
    if that one is in the original too, and later there; the rest comes last."""
    place = {key: at for at, key in reversed(list(enumerate(original)))}
    left = [key for key in dict.fromkeys(original) if key not in set(patch)]
    right = list(dict.fromkeys(patch))
    out = []
    while left and right:
        if right[0] in place and place[left[0]] < place[right[0]]:
            key = left.pop(0)
        else:
            key = right.pop(0)
        out.append(merged[key])
    return out + [merged[key] for key in left or right]


def _key(item: Any, merge: str, name: str) -> Any:
    if isinstance(item, Unknown):
        return item
    if merge not in item:
        raise MergeError(f"an item of {name} has no {merge}, by which the list is merged")
    return item[merge]


def _type_of_field(types: GoTypes, kind: str, name: str) -> str:
    if kind[0] == "{":
        return kind
    return types.fields(kind)[name].kind


def _take(merged: dict[str, Any], key: str, value: Any) -> None:
    """Add the patch's value, without nulls and maps that contain a directive."""
    taken = _without_directives(value)
    if taken is None:
        merged.pop(key, None)
    else:
        merged[key] = taken


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        if _DIRECTIVE in value:
            return None
        kept: dict[str, Any] = {}
        for key, item in value.items():
            taken = _without_directives(item)
            if taken is not None:
                kept[key] = taken
        return kept
    if isinstance(value, list):
        kept_items = map(_without_directives, value)
        return [v for v in kept_items if v is not None]
    return value
