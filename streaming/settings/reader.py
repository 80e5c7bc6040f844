"""From what a user wrote to validated settings, or complaints that name each key.

pydantic validates everything at once and strictly: a number in quotes, or a truth value for a number, is a mistake and is
not converted. Its errors are reworded here: what was expected, what was found, the nearest known key. A tree goes through
JSON, because pydantic is strict about JSON in the way that TOML needs: a list may become a tuple, a table a section. Text
(environment, flags) is converted beforehand. Infinity and NaN are never numbers.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from types import NoneType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from pydantic import ConfigDict, SecretStr, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from state.settings import PulsarSettings
from streaming.settings.catalog import Path, free_names_of, is_section, known_keys, members
from streaming.settings.errors import dotted, suggest_nearest
from streaming.settings.extremes import size_problem_of
from streaming.settings.security import is_secret
from streaming.settings.tree import Settings, Tree, merge
from streaming.settings.zones import UnknownZone, resolve_zones

_TYPE_NAMES: Mapping[Any, str] = {
    float: "a finite number",
    int: "a whole number",
    bool: "true or false",
    str: "a text in quotes",
    SecretStr: "a text in quotes",
    tuple[str, ...]: "a list of texts",
}

_REFUSED: Tree = {"": None}
"""Replaces what JSON cannot hold and what has a complaint already: no setting accepts such a table."""

_SHOWN_CHARS_MAX = 80

WHOLE_MAX = 2**53
"""Largest absolute value of a whole number: far beyond any use, and columns, JSON and doubles hold it exactly."""
COMPLAINTS_MAX = 100
"""Most complaints about one tree; a user who has corrected these gets the next ones."""

SectionT = TypeVar("SectionT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What is wrong with a setting, or with how those of a section fit together."""

    path: Path
    text: str
    is_about_section: bool = False

    def __str__(self) -> str:
        return ": ".join(part for part in (dotted(self.path), self.text) if part)


class Unreadable(ValueError):
    """The settings are wrong."""

    def __init__(self, complaints: Sequence[Complaint]) -> None:
        super().__init__("; ".join(map(str, complaints)))
        self.complaints = tuple(complaints)


def compose(tree: Mapping[str, Any]) -> Settings:
    """The settings of a tree; each cluster's section is laid over ``[pulsar]`` and ``[kafka]``. Raises ``Unreadable``."""
    base = {system: tree[system] for system in ("pulsar", "kafka") if system in tree}
    clusters = tree.get("clusters")
    if isinstance(clusters, Mapping):
        over = {name: merge(base, own) if isinstance(own, Mapping) else own for name, own in clusters.items()}
        tree = {**tree, "clusters": over}
    settings = read_tree(tree, Settings)
    complaints = [
        Complaint(path=(*path, "pulsar", "guards", "quiet_hours"), text=text)
        for path, text in _unknown_zones(settings)
    ]
    if complaints:
        raise Unreadable(complaints)
    return settings


def _unknown_zones(settings: Settings) -> Iterator[tuple[Path, str]]:
    """Zones that do not exist, with the section each is named in."""
    whole: dict[Path, PulsarSettings] = {(): settings.pulsar}
    for path, pulsar in (
        whole | {("clusters", name): each.pulsar for name, each in settings.clusters.items()}
    ).items():
        try:
            resolve_zones(pulsar)
        except UnknownZone as error:
            yield path, str(error)


def read_tree(tree: Mapping[str, Any], section: type[SectionT]) -> SectionT:
    """A tree of typed values as a section. Raises ``Unreadable``."""
    kind: Any = section
    complaints: list[Complaint] = []
    try:
        text = json.dumps(_json_of(tree, kind, (), complaints))
    except RecursionError as error:
        raise Unreadable([Complaint(path=(), text="the settings are nested too deeply")]) from error
    refused = {each.path for each in complaints}
    try:
        return cast("SectionT", _validator(kind).validate_json(text))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        found = (_complaint(detail, tree, kind) for detail in details)
        complaints += islice((each for each in found if each.path not in refused), COMPLAINTS_MAX)
        raise Unreadable(complaints) from error


def convert_text(text: str, kind: Any) -> object:
    """A text as a single value of type ``kind``; lists and tables are JSON. What does not fit stays a text."""
    try:
        if is_json(kind):
            return json.loads(text)
        return text if is_secret(kind) else _validator(kind).validate_python(text)
    except (ValueError, RecursionError):
        return text


def is_json(kind: Any) -> bool:
    """Whether a value of this type is written as JSON where only text can be written."""
    return get_origin(kind) is tuple or free_names_of(kind) is not None


def expectation(kind: Any) -> str:
    """What a value of this type looks like, for people."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(show, get_args(kind)))
    choices = [choice for choice in get_args(kind) if choice is not NoneType]
    if NoneType in get_args(kind):
        return expectation(choices[0])
    return _TYPE_NAMES.get(kind, "a table")


def show(value: object) -> str:
    """A value as it was written, short enough for a message."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "something nested too deeply"
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"


@cache
def _validator(kind: Any) -> TypeAdapter[Any]:
    """The validator of a type; sections have their own configuration."""
    return TypeAdapter(kind, config=None if is_section(kind) else ConfigDict(allow_inf_nan=False))


def _json_of(value: object, kind: Any, path: Path, complaints: list[Complaint]) -> object:
    """The value as JSON can hold it. Complains about numbers that cannot be computed with, and about text that is not UTF-8."""
    if isinstance(value, Mapping):
        return {
            name: _json_of(each, _kind_below(kind, name), (*path, name), complaints)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_json_of(each, None, path, complaints) for each in value]
    problem = _problem_of_value(value, kind, path)
    if problem is not None:
        complaints.append(Complaint(path=path, text=problem))
    is_json = isinstance(value, str | int | float | NoneType)
    return value if problem is None and is_json else _REFUSED


def _problem_of_value(value: object, kind: Any, path: Path) -> str | None:
    if kind is int and isinstance(value, int) and not -WHOLE_MAX <= value <= WHOLE_MAX:
        return f"expected {expectation(kind)}, found {show(value)}, which is too large"
    if isinstance(value, str) and not _is_utf8(value):
        return f"expected a text in UTF-8, found {_describe(value, kind)}"
    return size_problem_of(path[-1], value) if path else None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _complaint(detail: ErrorDetails, tree: Mapping[str, Any], root: type) -> Complaint:
    """An error of pydantic in our words, about the setting it is in."""
    path: Path = ()
    kind: Any = root
    found: Any = tree
    for part in map(str, detail["loc"]):
        if part == "[key]":
            return Complaint(path=path, text="a cluster's name is 1 to 100 of A-Z a-z 0-9 . _ -")
        below = _kind_below(kind, part)
        if below is None and is_section(kind):
            problem = f"unknown setting; {_suggestion(part, members(kind), path)}"
            return Complaint(path=(*path, part), text=problem)
        if below is None or not isinstance(found, Mapping):
            break  # pydantic goes on below a value that should have been a table
        path, kind, found = (*path, part), below, found[part]
    if detail["type"] == "value_error":
        return Complaint(path=path, text=detail["msg"].removeprefix("Value error, "), is_about_section=True)
    return Complaint(path=path, text=f"expected {expectation(kind)}, found {_describe(found, kind)}")


def _describe(value: object, kind: Any) -> str:
    return "something else (not shown: it is a secret)" if is_secret(kind) else show(value)


def _kind_below(kind: Any, name: str) -> Any:
    """Type of the entry with this name in a section or a table of free names; None where there is nothing."""
    if is_section(kind):
        member = members(kind).get(name)
        return None if member is None else member.kind
    return free_names_of(kind)


def _suggestion(name: str, known: Mapping[str, object], path: Path) -> str:
    """The nearest known name: of this table, else anywhere; below a cluster and in an overlay only of ``pulsar.*`` and ``kafka.*``."""
    elsewhere = known_keys()
    if path[:1] == ("clusters",):
        prefix = dotted(path[:2])
        elsewhere = tuple(
            f"{prefix}.{key}" for key in elsewhere if path[1:] and key.startswith(("pulsar.", "kafka."))
        )
    elif not path:
        elsewhere = tuple(key for key in elsewhere if key.partition(".")[0] in known)
    return suggest_nearest(name, known, elsewhere=elsewhere)


def leaves(value: object, path: Path = ()) -> Iterator[Path]:
    """The path of every single value; an empty table holds none."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from leaves(below, (*path, name))
    else:
        yield path
