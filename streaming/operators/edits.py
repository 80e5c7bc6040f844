"""Changes of a cluster's overlay that a person can ask for. Pure, like ``overlay``."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from streaming.contract.messages import ControlData
from streaming.settings.catalog import dotted
from streaming.settings.load import Unreadable, read_tree
from streaming.settings.sections import ClusterSection, Tree, merge

Edit = Callable[[ControlData], ControlData]
"""A change of one cluster's overlay; raises ``BadChange`` where it makes no sense."""


class BadChange(Exception):
    """A change cannot be made; the text names the key or cluster, the value and what to do."""


def pause_edit(until: datetime | None = None) -> Edit:
    """Hold everything, until then or until a person resumes; mode and settings stay."""
    return lambda data: msgspec.structs.replace(data, paused=True, until=until)


def resume_edit(at: datetime) -> Edit:
    """End a pause, and say that what made actions fail up to then is mended; mode and settings stay."""
    return lambda data: msgspec.structs.replace(data, paused=False, until=None, resumed_at=at)


def forget_edit() -> Edit:
    """Empty the cluster's memory; pause, mode and settings stay."""
    return lambda data: msgspec.structs.replace(data, forget=True)


def configured_edit() -> Edit:
    """End a pause, and let mode and settings be the file's."""
    return lambda _data: ControlData()


def mode_edit(mode: str, approval: str | None = None) -> Edit:
    """Set the mode: ``act``, ``dry-run`` or ``configured`` (that of the settings file). The same for ``approval``; None keeps it."""
    wanted: Any = None if mode == "configured" else mode
    asked: Any = None if approval == "configured" else approval
    return lambda data: msgspec.structs.replace(
        data, mode=wanted, approval=data.approval if approval is None else asked
    )


def settings_edit(assignments: Sequence[str]) -> Edit:
    """Put each ``key=value``, a line of ``trimtab.toml``, over the settings; raises ``BadChange``."""
    tree: Tree = {}
    for assignment in assignments:
        tree = merge(tree, _assignment(assignment))
    _require_readable(tree)
    return lambda data: msgspec.structs.replace(data, settings=merge(data.settings, tree))


def _require_readable(tree: Tree) -> None:
    """Whether the values of a section fit together is checked later, with those that are in force."""
    try:
        read_tree(tree, ClusterSection)
    except Unreadable as error:
        complaints = [str(each) for each in error.complaints if not each.is_about_section]
        if complaints:
            raise BadChange("; ".join(complaints)) from error


def _assignment(text: str) -> Tree:
    """Parse a line of TOML; a string may lack its quotes, because a shell removes them."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise BadChange(f"{text!r}: expected KEY=VALUE, e.g. pulsar.avg_shedder.low_threshold_points=10")
    for line in (text, f"{key} = {msgspec.json.encode(value.strip()).decode()}"):
        try:
            return tomllib.loads(line)
        except tomllib.TOMLDecodeError as error:
            problem = error
    raise BadChange(f"{text!r} is no line of TOML: {problem}")


def unset_edit(keys: Sequence[str]) -> Edit:
    """Take keys, or whole sections, out of the overlay; they fall back to the file's. Raises ``BadChange``."""
    paths = [_key(key) for key in keys]

    def edit(data: ControlData) -> ControlData:
        tree: Mapping[str, Any] = data.settings
        for path in paths:
            tree = _remove_key(tree, path, path)
        return msgspec.structs.replace(data, settings=dict(tree))

    return edit


def _key(text: str) -> tuple[str, ...]:
    """The path a dotted key names, quotes as in TOML."""
    try:
        node: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError as error:
        raise BadChange(f"{text!r} is no key of trimtab.toml: {error}") from error
    path = []
    while isinstance(node, dict):
        ((name, node),) = node.items()
        path.append(name)
    return tuple(path)


def _remove_key(tree: Mapping[str, Any], path: Sequence[str], whole: Sequence[str]) -> Tree:
    name, *rest = path
    below = tree.get(name) if isinstance(tree, Mapping) else None
    if below is None or (rest and not isinstance(below, Mapping)):
        raise BadChange(f"{dotted(whole)} is not in the overlay; `trimtab policy show` says what is")
    kept = _remove_key(below, rest, whole) if rest else {}
    others = {key: value for key, value in tree.items() if key != name}
    return {**others, name: kept} if kept else others
