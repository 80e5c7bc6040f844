"""From what somebody wrote to values of the declared types, or a problem that names the key.

Typed sources (TOML, JSON) are read strictly: a number in quotes or a truth value for a number is a mistake that should
not be guessed away. Text (environment, flags) is converted. Infinity and NaN are never numbers. Whether values fit
together is not known here; the sections check that themselves.
"""

import json
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import ConfigDict, Field, SecretStr, TypeAdapter, ValidationError

from streaming.settings.catalog import Path, free_names_of, is_section, known_keys, members
from streaming.settings.errors import Problem, dotted, nearest
from streaming.settings.extremes import extreme
from streaming.settings.sections import NAME_PATTERN
from streaming.settings.security import is_secret
from streaming.settings.tree import Tree

_TYPE_NAMES: Mapping[Any, str] = {
    float: "a finite number",
    int: "a whole number",
    bool: "true or false",
    str: "a text in quotes",
    SecretStr: "a text in quotes",
    tuple[str, ...]: "a list of texts",
}


WRONG = object()
"""Stands for a value that was complained about; no tree holds it."""

_SHOWN_CHARS_MAX = 80

WHOLE_MAX = 2**53
"""Largest whole number taken, up or down: far beyond any use, and what columns, JSON and doubles hold exactly."""
PROBLEMS_MAX = 100
"""Problems told of one source; who has mended so many is told the next."""


class TreeReader:
    """Reads one tree of typed values against the declarations, and collects what is wrong with it."""

    def __init__(self, origin: str) -> None:
        self.problems: list[Problem] = []
        self._origin = origin

    def table(self, raw: object, kind: type, path: Path = ()) -> Tree:
        """The part of ``raw`` that is right, as values of the types of section ``kind``."""
        if not isinstance(raw, Mapping):
            self._complain(path, f"expected a table, found {show(raw)}")
            return {}
        known = members(kind)
        tree: Tree = {}
        for name, value in raw.items():
            if name in known:
                tree[name] = self.value(value, known[name].kind, (*path, name))
            elif len(self.problems) < PROBLEMS_MAX:  # to find the nearest name takes long
                self._complain((*path, name), f"unknown setting; {_suggestion(name, known, path)}")
        return {name: value for name, value in tree.items() if value is not WRONG}

    def value(self, raw: object, kind: Any, path: Path) -> object:
        """``raw`` as type ``kind``, which may be a section or a table of free names; ``WRONG`` after a complaint."""
        below = free_names_of(kind)
        if is_section(kind):
            return self.table(raw, kind, path)
        if below is not None:
            return self._free_table(raw, below, path)
        try:
            read = read_strictly(raw, kind)
        except ValidationError:
            self._complain(path, f"expected {expectation(kind)}, found {describe_found(raw, kind)}")
            return WRONG
        complaint = extreme(path[-1], read)
        if complaint is not None:
            self._complain(path, complaint)
            return WRONG
        return read

    def _free_table(self, raw: object, below: Any, path: Path) -> object:
        if not isinstance(raw, Mapping):
            self._complain(path, f"expected a table, found {show(raw)}")
            return WRONG
        if path in {("clusters",), ("targets",)}:
            for name in raw:
                if not NAME_PATTERN.fullmatch(name):
                    self._complain((*path, name), "a cluster's name is 1 to 100 of A-Z a-z 0-9 . _ -")
        tree = {name: self.value(value, below, (*path, name)) for name, value in raw.items()}
        return {name: value for name, value in tree.items() if value is not WRONG}

    def _complain(self, path: Path, complaint: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(self._origin, path, complaint))


def read_strictly(raw: object, kind: Any) -> object:
    """A typed value as ``kind``; raises ValidationError. A list becomes a tuple, a whole number may be a float."""
    return _adapter(kind, strict=True).validate_python(tuple(raw) if isinstance(raw, list) else raw)


def read_text(text: str, kind: Any) -> object:
    """A text as a single value of type ``kind``; lists are JSON. Raises ValueError (ValidationError is one)."""
    if get_origin(kind) is tuple:
        return read_strictly(json.loads(text), kind)
    return _adapter(kind, strict=False).validate_python(text)


def expectation(kind: Any) -> str:
    """What a value of this type looks like, for people."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(show, get_args(kind)))
    choices = [choice for choice in get_args(kind) if choice is not NoneType]
    if NoneType in get_args(kind):
        return expectation(choices[0])
    return _TYPE_NAMES.get(kind, "a table")


def describe_found(value: object, kind: Any) -> str:
    """What was found where a value of type ``kind`` belongs, for a message."""
    if is_secret(kind):
        return "something else (not shown: it is a secret)"
    is_too_large = isinstance(value, int) and not -WHOLE_MAX <= value <= WHOLE_MAX
    return f"{show(value)}, which is too large" if is_too_large else show(value)


def show(value: object) -> str:
    """A value as it was written, short enough for a message."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "something nested too deeply"
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"


@cache
def _adapter(kind: Any, *, strict: bool) -> TypeAdapter[Any]:
    taken: Any = Annotated[int, Field(ge=-WHOLE_MAX, le=WHOLE_MAX)] if kind is int else kind
    return TypeAdapter(taken, config=ConfigDict(strict=strict, allow_inf_nan=False))


def _suggestion(name: str, known: Mapping[str, object], path: Path) -> str:
    """The nearest known name: of this table, else anywhere; below a cluster, and in an overlay, of ``pulsar.*`` and ``kafka.*``."""
    elsewhere = known_keys()
    if path[:1] == ("clusters",):
        prefix = dotted(path[:2])
        elsewhere = tuple(
            f"{prefix}.{key}" for key in elsewhere if path[1:] and key.startswith(("pulsar.", "kafka."))
        )
    elif not path:
        elsewhere = tuple(key for key in elsewhere if key.partition(".")[0] in known)
    return nearest(name, known, elsewhere=elsewhere)
