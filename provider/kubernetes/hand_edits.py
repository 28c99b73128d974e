"""What others have changed in an object since this stack applied it last, and the patch that puts it back.

A field that the stack has not set counts only if a field manager other than pulumi-kubernetes has it: defaults that a newer API
adds, and what controllers set in metadata and status, are no changes. A refresh takes changes into the state, so what others have
set since the stack applied the object counts too where it is not as the program wants it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import several
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, only, section, text, without
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.values.wording import plural

_PLUGIN = "pulumi-kubernetes"
_LONGEST = 60
"""Characters of a value in a message."""
Path = tuple[str, ...]
ADOPTED: Mapping[str, Any] = {"set": {}, "removed": [], "adopted": True}
"""As a `restoration`: nothing is changed, but pulumi-kubernetes becomes the manager of the object's spec."""


@dataclass(frozen=True)
class HandEdit:
    """A field that somebody has changed.

    Attributes:
        path: Fields of mappings, up to the first list or scalar.
        manager: Who has it now, and when that has written last; empty if not known.
        lines: What differs, such as `stopPolicy None -> Hold`.
        value: What it is now; None if the field was removed.
    """

    path: Path
    manager: str
    lines: Sequence[str]
    value: Any = None

    @property
    def field(self) -> str:
        """The field in a message."""
        return _shown_path(self.path)


def find_edits(
    applied: Mapping[str, Any], live: Mapping[str, Any], wanted: Mapping[str, Any], kept: Sequence[Path] = ()
) -> list[HandEdit]:
    """Return what others have changed.

    Args:
        applied: The object as the server returned it when this stack applied it.
        wanted: The object that the program describes. A field that is already as it should be is not returned.
        kept: Fields that this stack has applied as others had changed them.
    """
    if not applied or applied.get("apiVersion") != live.get("apiVersion", applied.get("apiVersion")):
        return []
    entries = mappings(section(live, "metadata").get("managedFields"))
    others = [*filter(_is_of_others, entries)]
    found: dict[Path, HandEdit] = {}
    for path, before, now in _changed(_body(applied, wanted), _body(live, wanted), ()):
        manager, own = _manager(path, others), value_at(wanted, path)
        if now != own and (manager or (before is not None and own is not None)):
            found[path] = HandEdit(path, manager, [*_differences(before, now, _shown_path(path))], now)
    last = max((text(each.get("time")) for each in entries if is_of_plugin(each)), default="")
    later = [each for each in others if last and text(each.get("time")) >= last]  # the server has whole seconds
    for path, before, now in _changed(_body(wanted, wanted), _body(live, wanted), ()):
        manager = _manager(path, later)
        known = any(path[: len(each)] == each or each[: len(path)] == path for each in found)
        if manager and not known and not first_unknown(before):
            found[path] = HandEdit(path, manager, [*_differences(before, now, _shown_path(path))], now)
    for path in kept:
        before, now = value_at(wanted, path), value_at(live, path)
        if before != now and path not in found:
            found[path] = HandEdit(path, "", [*_differences(before, now, _shown_path(path))], now)
    return [*found.values()]


def differences(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return what a program would change in an object.

    Args:
        wanted: The object that the program describes, with the defaults of the server.
    """
    lines = list[str]()
    live = {**live, "spec": live.get("spec") or {}}
    for path, now, own in _changed(_body(live, wanted), _body(wanted, wanted), ()):
        if not first_unknown(own):
            lines += _differences(now, own, _shown_path(path))
    return lines


def with_edits(wanted: Mapping[str, Any], edits: Sequence[HandEdit]) -> Mapping[str, Any]:
    """Return an object in which the fields that others have changed are as they are now."""
    for edit in edits:
        wanted = _with_value(wanted, edit.path, edit.value)
    return wanted


def _with_value(document: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """Return a document with a value at a path; without the field if the value is None."""
    (name, *rest), found = path, {**document}
    if rest:
        value = _with_value(section(found, name), tuple(rest), value)
    if value is None:
        found.pop(name, None)
    else:
        found[name] = value
    return found


def edits_text(edits: Sequence[HandEdit]) -> str:
    """Return who has changed what, as the end of a sentence about an object; empty for no changes."""
    if not edits:
        return ""
    managers, lines = dict[str, None](), list[str]()
    for edit in edits:
        lines += edit.lines
        if edit.manager:
            managers[edit.manager] = None
    whose = ""
    if managers:
        whose = f" ({', '.join(managers)})"
    return f"was changed by hand{whose}: {several(lines)}"


def restoration(edits: Sequence[HandEdit], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what reverts changes as an input of a resource, which has no nulls; empty if nothing was changed.

    Returns:
        `set`: the fields with the values that the program describes; `removed`: the paths of those that it leaves out.
    """
    if not edits:
        return {}
    given: dict[str, Any] = {}
    removed = []
    for edit in edits:
        value = value_at(wanted, edit.path)
        if value is None:
            removed.append([*edit.path])
        else:
            _put(given, edit.path, value)
    return {"set": given, "removed": removed}


def restoring_patch(restored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch of a `restoration`."""
    patch: dict[str, Any] = copy.deepcopy(restored["set"])
    for path in restored["removed"]:
        _put(patch, path, None)
    return patch


def with_plugin_as_manager(entries: Sequence[Mapping[str, Any]], manager: str) -> list[Mapping[str, Any]]:
    """Return managedFields in which pulumi-kubernetes has what a manager has set; as they are if it has applied nothing."""
    kept, given = list[Mapping[str, Any]](), list[Mapping[str, Any]]()
    for entry in entries:
        is_set = (entry.get("manager"), entry.get("operation")) == (manager, "Update") and not entry.get("subresource")
        (given if is_set else kept).append(entry)
    for at, entry in enumerate(kept):
        if is_of_plugin(entry):
            fields = entry.get("fieldsV1")
            for each in given:
                fields = _merged(fields, each.get("fieldsV1"))
            kept[at] = {**entry, "fieldsV1": fields}
            return kept
    return [*entries]


def with_sole_manager(entries: Sequence[Mapping[str, Any]], manager: str = _PLUGIN) -> list[Mapping[str, Any]]:
    """Return managedFields in which one manager alone has what others have set outside of metadata and status, and the labels and
    annotations that it has applied.

    Args:
        manager: How its name begins; it has applied the object.
    """
    own = [
        each for each in entries if text(each.get("manager")).startswith(manager) and each.get("operation") == "Apply"
    ]
    if not own:
        return [*entries]
    fields, kept = own[0].get("fieldsV1"), list[Mapping[str, Any]]()
    for entry in entries:
        if entry is own[0] or entry.get("subresource"):
            kept.append(entry)
            continue
        taken = section(entry.get("fieldsV1"))
        fields = _merged(fields, without(taken, "f:metadata"))
        left = _not_in(section(taken, "f:metadata"), section(own[0], "fieldsV1", "f:metadata"))
        if left:
            kept.append({**entry, "fieldsV1": {"f:metadata": left}})
    return [{**entry, "fieldsV1": fields} if entry is own[0] else entry for entry in kept]


def _not_in(fields: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a manager that another one does not have."""
    left: dict[str, Any] = {}
    for name, below in fields.items():
        rest = _not_in(below, own[name]) if name in own else below
        if rest or name not in own:
            left[name] = rest
    return left


def _merged(one: Any, other: Any) -> dict[str, Any]:
    found = {**section(one)}
    for name, fields in section(other).items():
        found[name] = _merged(found.get(name), fields)
    return found


def _put(document: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *parents, last = path
    for name in parents:
        document = document.setdefault(name, {})
    document[last] = value


def value_at(document: Any, path: Path) -> Any:
    """Return the value at a path of an object; None if it has none."""
    for name in path:
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def _body(document: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of an object that belong to its stack: all but metadata and status, and the program's labels and
    annotations."""
    about: dict[str, Any] = {}
    for part in ("labels", "annotations"):
        about[part] = only(section(document, "metadata", part), section(wanted, "metadata", part))
    own: dict[str, Any] = {"metadata": about}
    for name in sorted(wanted.keys() - {"apiVersion", "kind", "metadata", "status"}):
        own[name] = document.get(name)
    return own


def _changed(before: Any, now: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    """Yield path and both values of the fields of mappings that differ. Empty is not missing: an empty selector selects all."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in {**before, **now}:
            yield from _changed(before.get(name), now.get(name), (*path, name))
    elif before != now:
        yield path, before, now


def is_of_plugin(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry of managedFields is of what pulumi-kubernetes has applied."""
    return text(entry.get("manager")).startswith(_PLUGIN) and entry.get("operation") == "Apply"


def _is_of_others(entry: Mapping[str, Any]) -> bool:
    return not text(entry.get("manager")).startswith(_PLUGIN) and entry.get("subresource") != "status"


def _manager(path: Path, entries: Sequence[Mapping[str, Any]]) -> str:
    """Return which of some managers has a field, and when that has written last; empty if none has it."""
    for entry in entries:
        if _has_field(entry.get("fieldsV1"), path):
            return " at ".join(filter(None, (text(entry.get("manager")), text(entry.get("time")))))
    return ""


def _has_field(fields: Any, path: Path) -> bool:
    for name in path:
        if fields == {}:
            return True  # the manager has the whole value
        fields = section(fields).get(f"f:{name}")
    return fields is not None


def _differences(before: Any, now: Any, at: str) -> Iterator[str]:
    if isinstance(before, Sequence) and isinstance(now, Sequence) and not isinstance(before, str):
        old, new = _by_name(before), _by_name(now)
        if len(old) != len(new) and "0" in {**old, **new}:
            yield f"{at} {plural(len(old), 'item')} -> {plural(len(new), 'item')}"
            return
        for name in {**old, **new}:
            yield from _differences(old.get(name), new.get(name), f"{at}[{name}]")
    elif isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in {**before, **now}:
            yield from _differences(before.get(name), now.get(name), f"{at}.{name}")
    elif before != now:
        yield f"{at} {_shown(before)} -> {_shown(now)}"


def _by_name(values: Sequence[Any]) -> dict[str, Any]:
    """Return the items of a list by their names, else by their places."""
    named = {text(each.get("name")): each for each in mappings(values)}
    if len(named) == len(values) and "" not in named:
        return named
    return {str(place): each for place, each in enumerate(values)}


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    shown = value
    if not isinstance(value, str):
        shown = json.dumps(value, default=str)
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]}..."
    return str(shown)


def _shown_path(path: Path) -> str:
    """Return a path without its first part, and of labels and annotations the name alone."""
    if path[0] == "metadata":
        return path[-1]
    return ".".join(path[1:] or path)
