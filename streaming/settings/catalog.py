"""Every setting there is, read from the declarations: its dotted key, type, default and attribute docstring.

This is the one place that walks the dataclasses; the loader, the environment, the reference and ``trimtab config`` all
use it, so a setting only has to be declared. It also says how a problem with a setting is named.
"""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeGuard, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, create_model

from streaming.settings.sections import Settings

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

_CLOSE_RATIO = 0.6
"""Similarity from which one name is suggested for another; difflib's own default, fit for names of 5-30 letters."""

_ALIKE_COUNT = 5
_NUMBER = re.compile(r"\d+")


def dotted(path: Sequence[str]) -> str:
    """A path as TOML writes it, ``pulsar.capacity.brokers."b1:8080".bytes_per_s``."""
    return ".".join(
        part if _BARE_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in path
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong: where it was written (file, variable, option), the path of the key, and the complaint."""

    origin: str
    path: tuple[str, ...]
    complaint: str
    is_about_section: bool = False
    """Whether it is about how the settings of a section fit together."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.origin, dotted(self.path), self.complaint) if part)


class SettingsError(ValueError):
    """The settings cannot be used; the text has a line for every problem found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))

    @property
    def in_one_line(self) -> str:
        """The same text without line breaks."""
        return "; ".join(map(str, self.problems))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that was probably meant; None where none is close."""
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=_CLOSE_RATIO)), None)


def suggest_nearest(
    name: str, known: Iterable[str], *, elsewhere: Iterable[str] = (), path: Sequence[str] = ()
) -> str:
    """A hint such as "did you mean": the closest of ``known``, else of the full keys ``elsewhere``, else all known.

    ``path`` is that of the section in which ``known`` are settings.

    Of names that differ from one another in a number only, such as brokers, none is nearer to another number.
    """
    here = sorted(known)
    if close := nearest(name, here):
        alike = [each for each in here if _NUMBER.sub("#", each) == _NUMBER.sub("#", close)]
        numbers = _NUMBER.findall(name)
        if len(alike) == 1 or (numbers and numbers == _NUMBER.findall(close)[: len(numbers)]):
            return f"did you mean {dotted([*path, close]) if path else close}?"
        more = f" and {len(alike) - _ALIKE_COUNT} more" if len(alike) > _ALIKE_COUNT else ""
        return f"known here: {', '.join(alike[:_ALIKE_COUNT])}{more}"
    by_leaf: dict[str, str] = {}
    for key in elsewhere:
        by_leaf.setdefault(key.rsplit(".", 1)[-1], key)
    if close := nearest(name, by_leaf):
        return f"did you mean {by_leaf[close]}?"
    return f"known here: {', '.join(here)}"


Path = tuple[str, ...]

ENV_PREFIX = "TRIMTAB_"
ENV_SEPARATOR = "__"

FREE_NAME = "NAME"
"""Stands in a section's path for a name that users choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One name of a section: a setting, a section below it, or a table of either by free names."""

    section: type
    name: str
    kind: Any
    default: object
    recommended: object = None
    """What the sample file sets it to, where that is not the default."""

    @property
    def doc(self) -> str:
        """The docstring below its declaration. It is read only when needed, because reading the sources takes a while."""
        return _docs(self.section).get(self.name, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table of the file: its path (free names as ``NAME``), what it is for, and its settings in their order."""

    path: Path
    doc: str
    settings: tuple[Member, ...]


def env_name(path: Path) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + ENV_SEPARATOR.join(path).upper()


def is_section(kind: Any) -> TypeGuard[type]:
    """Whether a type is a table with fixed names."""
    return isinstance(kind, type) and is_dataclass(kind)


def free_names_of(kind: Any) -> Any | None:
    """The type below each free name of a table such as ``spark.extra``; None for any other type."""
    return get_args(kind)[1] if get_origin(kind) is Mapping else None


@cache
def members(section: type) -> Mapping[str, Member]:
    """The names of a section, in the order of their declaration."""
    kinds = get_type_hints(section)
    return {
        setting.name: Member(
            section=section,
            name=setting.name,
            kind=kinds[setting.name],
            default=setting.default if setting.default_factory is MISSING else setting.default_factory(),
            recommended=setting.metadata.get("recommended"),
        )
        for setting in fields(section)
    }


def sections(root: type = Settings, path: Path = ()) -> Iterator[Section]:
    """Every table of the file, each before those below it; those of single clusters are not repeated."""
    declared = members(root)
    settings = tuple(member for member in declared.values() if not is_section(member.kind))
    if path:
        yield Section(path=path, doc=inspect.cleandoc(root.__doc__ or ""), settings=settings)
    for member in declared.values():
        below = free_names_of(member.kind)
        if is_section(member.kind):
            yield from sections(member.kind, (*path, member.name))
        elif is_section(below) and member.name != "clusters":
            yield from sections(below, (*path, member.name, FREE_NAME))


@cache
def settings_by_path() -> Mapping[Path, Member]:
    """Every setting that has a fixed path; tables of free names count as one."""
    by_path = {
        (*section.path, member.name): member
        for section in sections()
        if FREE_NAME not in section.path
        for member in section.settings
    }
    by_name: dict[Path, Member] = {(name,): members(Settings)[name] for name in ("clusters", "targets")}
    return {**by_path, **by_name}


@cache
def known_keys() -> tuple[str, ...]:
    """Dotted keys of every section and setting with a fixed path, sections first."""
    tables = [section.path for section in sections() if FREE_NAME not in section.path]
    return tuple(dotted(path) for path in (*tables, *settings_by_path()))


def values(node: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every single value of settings in force, with its path; an empty table counts as one value."""
    kind: Any = type(node)
    if is_section(kind):
        for name in members(kind):
            yield from values(getattr(node, name), (*path, name))
    elif isinstance(node, Mapping) and node:
        for name in sorted(node):
            yield from values(node[name], (*path, name))
    else:
        yield path, node


@cache
def _docs(section: type) -> Mapping[str, str]:
    """The string below each setting of a section and of those it extends, in one line, as pydantic finds it."""
    config = ConfigDict(use_attribute_docstrings=True)
    schema = create_model("Documented", __config__=config, section=(section, ...)).model_json_schema()
    properties = schema["$defs"][section.__name__]["properties"]
    inherited = {
        name: doc for base in section.__bases__ if is_dataclass(base) for name, doc in _docs(base).items()
    }
    return inherited | {
        name: " ".join(node["description"].split())
        for name, node in properties.items()
        if "description" in node
    }
