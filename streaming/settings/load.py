"""Reading the settings at the start: defaults, then the file, then the environment, then flags.

pydantic validates everything at once and strictly: a number in quotes, or a truth value for a number, is a mistake and is
not converted. Its errors are reworded here: what was expected, what was found, the nearest known key. A tree goes through
JSON, because pydantic is strict about JSON in the way that TOML needs: a list may become a tuple, a table a section. Text
(environment, flags) is converted beforehand. Infinity and NaN are never numbers, and neither are numbers that cannot be
computed with: they are refused where they are read, from a file, flag, variable or control event.

Everything wrong is reported at once. Nothing is looked up later: what ``load`` returns is fixed for the process.
"""

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path as FilePath
from types import NoneType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from pydantic import ConfigDict, SecretStr, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from policies.bounds import Bounds, bounds_of
from state.settings import LONGEST_S, PulsarSettings
from streaming.settings.catalog import (
    ENV_PREFIX,
    Path,
    Problem,
    SettingsError,
    dotted,
    env_name,
    free_names_of,
    is_section,
    known_keys,
    members,
    nearest,
    settings_by_path,
    suggest_nearest,
)
from streaming.settings.sections import Settings, Tree, leaves, merge
from streaming.settings.targets import is_secret
from streaming.settings.zones import UnknownZone, resolve_zones

DEFAULT_FILE = FilePath("trimtab.toml")
"""Read from the working directory when no file is named."""

DEFAULT = "default"
"""The source of a value that is not set anywhere."""

LARGEST = 1e18
"""Largest absolute value; the same limit as for a rate in a report. Beyond it the ends of rounds are outside the calendar, and
ratios and squares in a summary become infinite; every limit is far beyond real use."""
SMALLEST = 1 / LARGEST
"""Smallest absolute value except 0: the ratio of two numbers is then at most 1e36, which single precision holds."""
WHOLE_MAX = 2**53
"""Largest absolute value of a whole number: far beyond any use, and columns, JSON and doubles hold it exactly."""
COMPLAINTS_MAX = 100
"""Most complaints about one tree; a user who has corrected these gets the next ones."""

_OPTIONS: Mapping[str, str] = {
    "input.url": "--input",
    "output.url": "--output",
    "metrics.host": "--metrics-host",
    "metrics.port": "--metrics-port",
    "metrics.collector_port": "--metrics-port",
    "metrics.executor_port": "--metrics-port",
}
"""Options whose name differs from the last part of their setting's key."""

_TYPE_NAMES: Mapping[Any, str] = {
    float: "a finite number",
    int: "a whole number",
    bool: "true or false",
    str: "a text in quotes",
    SecretStr: "a text in quotes",
    tuple[str, ...]: "a list of texts",
}

_OUT_OF_BOUNDS = {
    "greater_than",
    "greater_than_equal",
    "less_than_equal",
    "string_too_short",
    "predicate_failed",
}
"""pydantic's names for its errors about the bounds that are declared with a setting."""

_REFUSED: Tree = {"": None}
"""Replaces what JSON cannot hold and what has a complaint already: no setting accepts such a table."""

_SHOWN_CHARS_MAX = 80

SectionT = TypeVar("SectionT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings in force and, by dotted key, where each value was written.

    A source is ``default``, ``file NAME``, ``environment VARIABLE`` or ``flag --OPTION``. In a cluster's section
    only the keys that were set there have a source.
    """

    settings: Settings
    sources: Mapping[str, str]


def load(*, file: FilePath | None, flags: Mapping[str, object], environ: Mapping[str, str]) -> Loaded:
    """The settings in force; ``flags`` maps dotted keys to values (None = not given), ``environ`` is ``os.environ``.

    ``file`` None reads ``trimtab.toml`` of the working directory if there is one. Raises SettingsError with every
    problem found.
    """
    written = _Written()
    written.read_file(file)
    written.read_environment(environ)
    written.read_flags(flags)
    try:
        settings = compose(written.tree)
    except SettingsError as error:
        written.problems += _locate(error.problems, written.sources, otherwise=str(file or DEFAULT_FILE))
    if written.problems:
        raise SettingsError(written.problems)
    filled = {path[:size] for path in written.sources for size in range(1, len(path))}
    defaults = {path: DEFAULT for path in settings_by_path() if path not in filled}
    sources = {dotted(path): source for path, source in {**defaults, **written.sources}.items()}
    return Loaded(settings=settings, sources=sources)


@dataclass(slots=True)
class _Written:
    """What users wrote, read in order: a later value overrides an earlier one."""

    tree: Tree = field(default_factory=dict)
    sources: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def read_file(self, file: FilePath | None) -> None:
        if file is None and not DEFAULT_FILE.exists():
            return
        path = file or DEFAULT_FILE
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError([Problem(str(path), (), f"cannot be read: {error.strerror}")]) from error
        except ValueError as error:
            said = "it is not text in UTF-8" if isinstance(error, UnicodeDecodeError) else error
            raise SettingsError([Problem(str(path), (), f"is not valid TOML: {said}")]) from error
        for name, value in raw.items():
            self._put((name,), value, f"file {path}")

    def read_environment(self, environ: Mapping[str, str]) -> None:
        paths = {env_name(path): path for path in settings_by_path()}
        for name in sorted(name for name in environ if name.startswith(ENV_PREFIX)):
            if name in paths:
                self._take(paths[name], environ[name], f"environment {name}")
                continue
            section = name.rsplit("__", 1)[0]
            near = suggest_nearest(
                name, [known for known in paths if known.rsplit("__", 1)[0] == section] or paths
            )
            self.problems.append(Problem(name, (), f"unknown variable; {near}"))

    def read_flags(self, flags: Mapping[str, object]) -> None:
        paths = {dotted(path): path for path in settings_by_path()}
        for key, value in flags.items():
            option = _OPTIONS.get(key, "--" + key.rsplit(".", 1)[-1].replace("_", "-"))
            if key not in paths:
                self.problems.append(
                    Problem(option, (key,), f"unknown setting; {suggest_nearest(key, paths)}")
                )
            elif value is not None:
                self._take(paths[key], value, f"flag {option}")

    def _take(self, path: Path, value: object, source: str) -> None:
        """Take a single value of a variable or option: text is converted, a table is JSON."""
        kind = settings_by_path()[path].kind
        text = str(value) if isinstance(value, str | FilePath) else None
        read = value if text is None else _convert_text(text, kind)
        if _is_json(kind) and text is not None and read is text:
            expected = f'{_expectation(kind)} as JSON, such as ["a", "b"] or {{"a": "b"}}'
            complaint = f"expected {expected}, found {show(text)}"
            self.problems.append(Problem(source.split(" ", 1)[1], path, complaint))
        else:
            self._put(path, read, source)

    def _put(self, path: Path, value: object, source: str) -> None:
        self.sources.update((leaf, source) for leaf, _ in leaves(value, path))
        for part in reversed(path):
            value = {part: value}
        self.tree = merge(self.tree, cast("Tree", value))


def compose(tree: Mapping[str, Any]) -> Settings:
    """The settings of a tree; each cluster's section is laid over ``[pulsar]`` and ``[kafka]``.

    Raises ``SettingsError``; where the values were written is not known yet.
    """
    base = {system: tree[system] for system in ("pulsar", "kafka") if system in tree}
    clusters = tree.get("clusters")
    if isinstance(clusters, Mapping):
        over = {
            name: merge(base, section) if isinstance(section, Mapping) else section
            for name, section in clusters.items()
        }
        tree = {**tree, "clusters": over}
    settings = read_tree(tree, Settings)
    complaints = []
    sections: dict[Path, PulsarSettings] = {(): settings.pulsar}
    sections |= {("clusters", name): cluster.pulsar for name, cluster in settings.clusters.items()}
    for path, pulsar in sections.items():
        try:
            resolve_zones(pulsar)
        except UnknownZone as error:
            complaints.append(Problem("", (*path, "pulsar", "guards", "quiet_hours"), str(error)))
    if complaints:
        raise SettingsError(complaints)
    return settings


def read_tree(tree: Mapping[str, Any], section: type[SectionT]) -> SectionT:
    """A tree of typed values as a section. Raises ``SettingsError``; where the values were written is not known yet."""
    kind: Any = section
    complaints: list[Problem] = []
    try:
        text = json.dumps(_json_of(tree, kind, (), complaints))
    except RecursionError as error:
        raise SettingsError([Problem("", (), "the settings are nested too deeply")]) from error
    refused = {problem.path for problem in complaints}
    try:
        return cast("SectionT", _validator(kind).validate_json(text))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems = (_complaint(detail, tree, kind) for detail in details)
        complaints += islice((problem for problem in problems if problem.path not in refused), COMPLAINTS_MAX)
        raise SettingsError(complaints) from error


def show(value: object) -> str:
    """A value as it was written, short enough for a message."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "something nested too deeply"
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"


def _convert_text(text: str, kind: Any) -> object:
    """A text as a single value of type ``kind``; lists and tables are JSON. What does not fit stays a text."""
    try:
        if _is_json(kind):
            return json.loads(text)
        return text if is_secret(kind) else _validator(kind).validate_python(text)
    except (ValueError, RecursionError):
        return text


def _is_json(kind: Any) -> bool:
    """Whether a value of this type is written as JSON where only text can be written."""
    return get_origin(kind) is tuple or free_names_of(kind) is not None


def _expectation(kind: Any) -> str:
    """What a value of this type looks like, for people."""
    choices = get_args(kind)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(show, choices))
    if NoneType in choices:
        return _expectation(choices[0])
    return _TYPE_NAMES.get(kind, "a table")


@cache
def _validator(kind: Any) -> TypeAdapter[Any]:
    """The validator of a type; sections have their own configuration."""
    return TypeAdapter(kind, config=None if is_section(kind) else ConfigDict(allow_inf_nan=False))


def _json_of(value: object, kind: Any, path: Path, complaints: list[Problem]) -> object:
    """The value as JSON can hold it. Complains about numbers that cannot be computed with, and about text that is not UTF-8."""
    if isinstance(value, Mapping):
        return {
            name: _json_of(item, _kind_below(kind, name), (*path, name), complaints)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_json_of(item, None, path, complaints) for item in value]
    problem = _unusable(value, kind, path)
    if problem is not None:
        complaints.append(Problem("", path, problem))
    is_json = isinstance(value, str | int | float | NoneType)
    return value if problem is None and is_json else _REFUSED


def _unusable(value: object, kind: Any, path: Path) -> str | None:
    """What is wrong with a text that is not UTF-8, or with the size of a finite number; None where nothing is."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"expected a text in UTF-8, found {_describe(value, kind)}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind is int and isinstance(value, int) and abs(value) > WHOLE_MAX:
        return f"expected {_expectation(kind)}, found {show(value)}, which is too large"
    is_finite = isinstance(value, int) or math.isfinite(value)
    return _problem_of_size(path[-1], value) if is_finite else None


def _problem_of_size(name: str, value: float) -> str | None:
    if name.endswith("_s") and not name.endswith("_per_s") and value > LONGEST_S:
        return f"expected at most {LONGEST_S:,.0f} seconds, found {value!r}"
    if abs(value) > LARGEST:
        return f"expected at most {LARGEST:g}, up or down, found {value!r}"
    if 0 < abs(value) < SMALLEST:
        return f"expected 0, or {SMALLEST:g} or more, found {value!r}"
    return None


def _complaint(detail: ErrorDetails, tree: Mapping[str, Any], root: type) -> Problem:
    """An error of pydantic in our words, about the setting it is in."""
    path: Path = ()
    kind: Any = root
    bounds: Bounds | None = None
    value: Any = tree
    for part in map(str, detail["loc"]):
        if part == "[key]":
            return Problem("", path, "a cluster's name is 1 to 100 of A-Z a-z 0-9 . _ -")
        below = _kind_below(kind, part)
        if below is None and is_section(kind):
            return Problem("", (*path, part), f"unknown setting; {_suggestion(part, kind, path)}")
        if below is None or not isinstance(value, Mapping):
            break  # pydantic goes on below a value that should have been a table
        bounds = bounds_of(kind).get(part) if is_section(kind) else None
        path, kind, value = (*path, part), below, value[part]
    if detail["type"] == "value_error":
        return Problem("", path, detail["msg"].removeprefix("Value error, "), is_about_section=True)
    expected = bounds.words if bounds and detail["type"] in _OUT_OF_BOUNDS else _expectation(kind)
    return Problem("", path, f"expected {expected}, found {_describe(value, kind)}{_meant(value, kind)}")


def _meant(value: object, kind: Any) -> str:
    """Which of the values that may be chosen is close to one that is not; empty if none is."""
    choices = [
        each for part in (kind, *get_args(kind)) if get_origin(part) is Literal for each in get_args(part)
    ]
    texts = [each for each in choices if isinstance(each, str)]
    close = nearest(value, texts) if isinstance(value, str) else None
    return f"; did you mean {show(close)}?" if close else ""


def _describe(value: object, kind: Any) -> str:
    return "something else (not shown: it is a secret)" if is_secret(kind) else show(value)


def _kind_below(kind: Any, name: str) -> Any:
    """Type of the entry with this name in a section or a table of free names; None where there is nothing."""
    if is_section(kind):
        member = members(kind).get(name)
        return None if member is None else member.kind
    return free_names_of(kind)


def _suggestion(name: str, section: type, path: Path) -> str:
    """The nearest known name: of this table, else in any other; below a cluster and in an overlay only of ``pulsar.*`` and ``kafka.*``."""
    known, elsewhere = members(section), known_keys()
    if path[:1] == ("clusters",):
        prefix = dotted(path[:2])
        elsewhere = tuple(
            f"{prefix}.{key}" for key in elsewhere if path[1:] and key.startswith(("pulsar.", "kafka."))
        )
    elif not path:
        elsewhere = tuple(key for key in elsewhere if key.partition(".")[0] in known)
    else:
        elsewhere = tuple(key for key in elsewhere if "." in key)
    return suggest_nearest(name, known, elsewhere=elsewhere, path=path)


def _locate(
    complaints: Sequence[Problem], sources: Mapping[Path, str], *, otherwise: str
) -> Iterator[Problem]:
    """Each complaint once, with the place where the value was written; ``otherwise`` is the place of empty tables.

    A cluster's section is checked together with the ``[pulsar]`` and ``[kafka]`` below it; what is already wrong there is not
    reported for the cluster again.
    """
    known = {(complaint.path, complaint.complaint) for complaint in complaints}
    wrong = {complaint.path for complaint in complaints if not complaint.is_about_section}
    for complaint in complaints:
        origins, below = _origins(complaint, sources), complaint.path[2:]
        is_inherited = (below, complaint.complaint) in known or (not origins and below in wrong)
        if complaint.path[:1] != ("clusters",) or not is_inherited:
            yield replace(complaint, origin=origins or otherwise)


def _origins(complaint: Problem, sources: Mapping[Path, str]) -> str:
    """Where a value was written; for a section, where the values directly in it, or below it in ``[pulsar]``, were written."""
    path = complaint.path
    if complaint.is_about_section:
        below = path[2:] if path[:1] == ("clusters",) else path
        written = [source for at, source in sources.items() if at[:-1] in (path, below)]
    else:
        written = [source for at, source in sources.items() if at[: len(path)] == path]
    return ", ".join(dict.fromkeys(source.split(" ", 1)[1] for source in written))
