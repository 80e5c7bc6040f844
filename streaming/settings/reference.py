"""The settings as text: the reference page, the sample file, and what is in force with the source of every value.

Page and sample are written from the declarations into ``docs/`` and checked for being up to date, so neither can differ
from the code. What is in force can be read in again as TOML.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr

from policies.bounds import bounds_of
from state.guard_settings import MOVED_PER_HOUR_RATIO, UNLOADS_PER_HOUR_COUNT, UNLOADS_PER_ROUND_COUNT
from streaming.settings.catalog import (
    FREE_NAME,
    Member,
    Path,
    Section,
    dotted,
    free_names_of,
    is_section,
    sections,
    values,
)
from streaming.settings.clusters import ClusterSettingsSource
from streaming.settings.load import DEFAULT, WHOLE_MAX, Loaded
from streaming.settings.sections import Settings

_ORIGIN = re.compile(r"(?<=[.;:)]) (?=(?:Pulsar|Kafka|Spark)(?: [\d.]+)?: )")
_SENTENCE_END = re.compile(r"(?<=[.]) (?=[A-Z0-9`])")

_REFERENCE_HEAD = """\
# Settings

<!-- Written by `trimtab config --reference`; edit the declarations, not this page. -->

For whoever writes a `trimtab.toml`. Afterwards you know what can be set, within which bounds, and what holds if it is not.

Settings come from four places, each of which overrides the one before: the defaults below, the file `trimtab.toml` of
the working directory (or the one named by `--config`), the environment, and flags. A variable is `TRIMTAB_` and the
path in capitals, joined by two underscores: `TRIMTAB_PULSAR__ROUNDS__LENGTH_S=10`. Lists and tables with free names
are JSON there. Unknown keys and variables are errors that name the nearest known one. `trimtab config` shows what is in
force and where each value was written.

Units end a name: `_s` seconds, `_bytes_per_s`, `_points` percentage points, `_ratio` a share of 1, `_count`, `_rounds`, `_samples`.

One cluster can differ: `[clusters."east-1".pulsar.avg_shedder]` takes any key of `pulsar.*` again; other keys
are taken from `[pulsar]`. A control event's overlay, `{"pulsar": {…}}`, overrides both, except for the `rounds`
sections, which it cannot change.
"""

_SAMPLE_HEAD = """\
# Every setting of trimtab with its default. Remove the # before a key to change it. Keys without a # have a recommended
# value instead: their defaults follow Pulsar. The whole reference: trimtab config --reference
"""

_SAMPLE_TAIL = """
# One cluster can differ, in any key of pulsar.*:
# [clusters."east-1".pulsar.avg_shedder]
# low_hit_count = 3
"""


def render_reference() -> str:
    """The reference as Markdown: a chapter for each section, a row for each setting."""
    return _REFERENCE_HEAD + "".join(_chapter(section) for section in sections())


def render_sample() -> str:
    """A file with every key and its default commented out, with the first sentence of its docstring above it."""
    return _SAMPLE_HEAD + "".join(_sample_section(section) for section in sections()) + _SAMPLE_TAIL


def type_name(kind: Any) -> str:
    """What may be written for a type, in the terms of the file."""
    choices = [choice for choice in get_args(kind) if choice is not NoneType]
    if get_origin(kind) is Literal:
        return " or ".join(f'`"{choice}"`' for choice in choices)
    if NoneType in get_args(kind):
        return type_name(choices[0])
    if free_names_of(kind) is not None:
        return "table of sections" if is_section(free_names_of(kind)) else "table of texts"
    return {float: "number", int: "whole number", bool: "true or false", str: "text", SecretStr: "text"}.get(
        kind, "list of texts"
    )


def _chapter(section: Section) -> str:
    rows = "".join(_row(member) for member in section.settings)
    head = (
        "\n| key | type | default | meaning | Pulsar, Kafka, Spark |\n|---|---|---|---|---|\n" if rows else ""
    )
    return f"\n## `[{_heading(section.path)}]`\n\n{_markdown(section.doc)}\n{head}{rows}"


def _row(member: Member) -> str:
    meaning, _, origin = _split_origin(member.doc)
    default = "unset" if is_unset(member.default) else f"`{toml_value(member.default)}`"
    bounds = bounds_of(member.section).get(member.name)
    kind = type_name(member.kind) + (f", {bounds.words}" if bounds else "")
    cells = (f"`{member.name}`", kind, default, _markdown(meaning), _markdown(origin))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _split_origin(doc: str) -> tuple[str, str, str]:
    """A docstring's meaning, and what the setting is called in Pulsar, Kafka or Spark."""
    match = _ORIGIN.search(doc)
    return (doc[: match.start()], " ", doc[match.end() :].rstrip(".")) if match else (doc, "", "")


def _markdown(text: str) -> str:
    return text.replace("``", "`").strip()


def _heading(path: Path) -> str:
    return ".".join('"NAME"' if part == FREE_NAME else dotted((part,)) for part in path)


def _sample_section(section: Section) -> str:
    """A section of the sample; one with a free name is an example and stays a comment."""
    mark = "# " if FREE_NAME in section.path else ""
    lines = "".join(_sample_lines(member, mark) for member in section.settings)
    return f"\n# {_first_sentence(section.doc)}\n{mark}[{_heading(section.path)}]\n{lines}"


def _sample_lines(member: Member, mark: str) -> str:
    comment = f"# {_first_sentence(_split_origin(member.doc)[0])}\n"
    if is_unset(member.default):
        return f"{comment}# {member.name}: unset\n"
    if member.recommended is not None:
        default = f"# Recommended; the default is {toml_value(member.default)}.\n"
        return f"{comment}{default}{mark}{member.name} = {toml_value(member.recommended)}\n"
    return f"{comment}{mark or '#'}{member.name} = {toml_value(member.default)}\n"


def _first_sentence(doc: str) -> str:
    """The first sentence of a docstring, without markup, as one line."""
    return _SENTENCE_END.split(" ".join(doc.split()))[0].replace("``", "")


_SECRET_KEY = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""Keys of Spark whose values Spark itself hides. Spark: ``spark.redaction.regex``."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourcedValue:
    """One setting: its dotted key, its value (None or an empty table = unset) and where that was written."""

    key: str
    value: object
    source: str


def in_force(loaded: Loaded, *, cluster: str | None = None) -> Iterator[SourcedValue]:
    """Every setting, and what was written in the clusters' sections; with ``cluster``, the settings in force there."""
    settings = loaded.settings
    if cluster is not None:
        base = ClusterSettingsSource(settings).base(cluster)
        settings = dataclasses.replace(settings, pulsar=base.pulsar, kafka=base.kafka, clusters={})
    for path, value in values(settings):
        source = _source(path, loaded.sources, cluster)
        if source is not None:
            yield SourcedValue(key=dotted(path), value=_guard_secret(path, value), source=source)


def differing(settings: Iterator[SourcedValue]) -> Iterator[SourcedValue]:
    """Those that are not the defaults; where a name is free, those that were written."""
    defaults = _defaults()
    return (
        setting
        for setting in settings
        if (setting.value != defaults[setting.key] if setting.key in defaults else setting.source != DEFAULT)
    )


def render_toml(settings: Iterator[SourcedValue]) -> str:
    """A line for each setting, ``key = value  # source``; an unset setting, or a secret, is a comment."""
    lines = [(_assignment(setting), setting.source) for setting in settings]
    width = max((len(assignment) for assignment, _ in lines), default=0)
    return "".join(f"{assignment:<{width}}  # {source}\n" for assignment, source in lines)


def render_json(settings: Iterator[SourcedValue]) -> str:
    """One object, ``{key: {"value": …, "source": …}}``."""
    tree = {setting.key: {"value": setting.value, "source": setting.source} for setting in settings}
    return json.dumps(tree, indent=2, ensure_ascii=False, default=str) + "\n"


def _guard_secret(path: Path, value: object) -> object:
    """Spark's own settings are text, so a secret among them is recognized by its name only."""
    is_secret = path[:2] == ("spark", "extra") and _SECRET_KEY.search(path[-1]) is not None
    return SecretStr(str(value)) if is_secret else value


def toml_value(value: object) -> str:
    """A single value or list as TOML writes it."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float) and value.is_integer() and abs(value) < WHOLE_MAX:
        return str(int(value))
    return repr(value)


def is_unset(value: object) -> bool:
    """Whether a value has no form in TOML: None, or a table without entries."""
    return value is None or value == {}


_IS_DEFAULT = " (the default)"
_WHEN_UNSET: Mapping[str, str] = {
    "pulsar.guards.max_unloads_per_round_count": f"{UNLOADS_PER_ROUND_COUNT}, or more for the fleet planner",
    "pulsar.guards.max_unloads_per_hour_count": f"{UNLOADS_PER_HOUR_COUNT}, or more for the fleet planner",
    "pulsar.guards.max_moved_per_hour_ratio": f"{MOVED_PER_HOUR_RATIO}",
}
"""What applies where a setting is unset; the others then do nothing."""


@cache
def _defaults() -> Mapping[str, object]:
    return {dotted(path): value for path, value in values(Settings())}


def value_or_default_text(key: str, value: object) -> str:
    """A value as TOML writes it; of one that is unset what applies instead, or that nothing does."""
    if not is_unset(value):
        return toml_value(value)
    return f"{_WHEN_UNSET[key]}{_IS_DEFAULT}" if key in _WHEN_UNSET else "unset"


def default_text(key: str) -> str:
    """What applies by default; a setting of another version has no value here."""
    if key not in _defaults():
        return "the default"
    return f"{value_or_default_text(key, _defaults()[key]).removesuffix(_IS_DEFAULT)}{_IS_DEFAULT}"


def _assignment(setting: SourcedValue) -> str:
    if isinstance(setting.value, SecretStr):
        return f"# {setting.key} is set and not shown"
    return (
        f"# {setting.key} is unset"
        if is_unset(setting.value)
        else f"{setting.key} = {toml_value(setting.value)}"
    )


def _source(path: Path, sources: Mapping[str, str], cluster: str | None) -> str | None:
    """Where a value comes from; None for what a cluster's section inherits, or where there is none."""
    if path[:1] == ("clusters",):
        return sources.get(dotted(path))
    source = sources.get(dotted(("clusters", cluster, *path))) if cluster is not None else None
    if source is not None:
        return f"{source}, {dotted(('clusters', cluster or ''))}"
    return sources.get(dotted(path), DEFAULT)
