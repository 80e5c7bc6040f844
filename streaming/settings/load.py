"""Reading the settings at the start: defaults, then the file, then the environment, then flags.

Everything wrong is reported at once. Nothing is looked up later: what ``load`` returns is fixed for the process.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from streaming.settings.catalog import (
    ENV_PREFIX,
    Path,
    env_name,
    free_names_of,
    settings_by_path,
)
from streaming.settings.errors import Problem, SettingsError, dotted, nearest
from streaming.settings.extremes import extreme
from streaming.settings.reader import WRONG, TreeReader, describe_found, expectation, read_strictly, read_text
from streaming.settings.tree import Settings, Tree, compose

DEFAULT_FILE = FilePath("trimtab.toml")
"""Read from the working directory when no file is named."""

DEFAULT = "default"
"""The source of what nobody set."""

_OPTIONS: Mapping[str, str] = {
    "input.url": "--input",
    "output.url": "--output",
    "metrics.host": "--metrics-host",
    "metrics.port": "--metrics-port",
}
"""Options that are not called like the last part of their setting's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings in force and, by dotted key, where each value was written.

    A source is ``default``, ``file NAME``, ``environment VARIABLE`` or ``flag --OPTION``. In a cluster's section
    only the keys that were set there have one.
    """

    settings: Settings
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Layer:
    """Values of one kind of source, with the source of each."""

    tree: Tree = field(default_factory=dict)
    sources: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def put(self, path: Path, value: object, source: str) -> None:
        table = self.tree
        for part in path[:-1]:
            table = table.setdefault(part, {})
        table[path[-1]] = value
        self.sources.update((each, source) for each in _paths(value, path))


def load(*, file: FilePath | None, flags: Mapping[str, object], environ: Mapping[str, str]) -> Loaded:
    """The settings in force; ``flags`` maps dotted keys to values (None = not given), ``environ`` is ``os.environ``.

    ``file`` None reads ``trimtab.toml`` of the working directory if there is one. Raises SettingsError with every
    problem found.
    """
    written = _file_layer(file), _environment_layer(environ), _flag_layer(flags)
    problems = [problem for layer in written for problem in layer.problems]
    sources = {path: source for layer in written for path, source in layer.sources.items()}
    try:
        settings = compose(*(layer.tree for layer in reversed(written)))
    except ValidationError as error:
        problems += _contradictions(error, sources, problems)
    if problems:
        raise SettingsError(problems)
    return Loaded(settings=settings, sources=_by_key(sources))


def _by_key(sources: Mapping[Path, str]) -> dict[str, str]:
    """Sources by dotted key, those that nobody set included."""
    filled = {path[:size] for path in sources for size in range(1, len(path))}
    defaults = {path: DEFAULT for path in settings_by_path() if path not in filled}
    return {dotted(path): source for path, source in {**defaults, **sources}.items()}


def _paths(value: object, path: Path) -> Iterator[Path]:
    """The path of every single value; an empty table holds none."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _paths(below, (*path, name))
    else:
        yield path


def _file_layer(file: FilePath | None) -> _Layer:
    if file is None and not DEFAULT_FILE.exists():
        return _Layer()
    path = file or DEFAULT_FILE
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError([Problem(str(path), (), f"cannot be read: {error.strerror}")]) from error
    except ValueError as error:
        raise SettingsError([Problem(str(path), (), f"is not valid TOML: {error}")]) from error
    reader = TreeReader(str(path))
    layer = _Layer(problems=reader.problems)
    for name, value in reader.table(raw, Settings).items():
        layer.put((name,), value, f"file {path}")
    return layer


def _environment_layer(environ: Mapping[str, str]) -> _Layer:
    layer = _Layer()
    paths = {env_name(path): path for path in settings_by_path()}
    for name in sorted(name for name in environ if name.startswith(ENV_PREFIX)):
        if name in paths:
            _take(layer, paths[name], environ[name], f"environment {name}")
        else:
            layer.problems.append(Problem(name, (), f"unknown variable; {_near_variable(name, paths)}"))
    return layer


def _near_variable(name: str, paths: Mapping[str, Path]) -> str:
    """The nearest variable, compared within those of the same section if it has any."""
    siblings = [each for each in paths if each.rsplit("__", 1)[0] == name.rsplit("__", 1)[0]]
    return nearest(name, siblings or paths)


def _flag_layer(flags: Mapping[str, object]) -> _Layer:
    layer = _Layer()
    paths = {dotted(path): path for path in settings_by_path()}
    for key, value in flags.items():
        option = _OPTIONS.get(key, "--" + key.rsplit(".", 1)[-1].replace("_", "-"))
        if key not in paths:
            layer.problems.append(Problem(option, (key,), f"unknown setting; {nearest(key, paths)}"))
        elif value is not None:
            _take(layer, paths[key], value, f"flag {option}")
    return layer


def _take(layer: _Layer, path: Path, value: object, source: str) -> None:
    """Read a value given alone, by variable or option: text is converted, a table is JSON."""
    kind, origin = settings_by_path()[path].kind, source.split(" ", 1)[1]
    value = str(value) if isinstance(value, FilePath) else value
    try:
        if free_names_of(kind) is not None:
            reader = TreeReader(origin)
            read = reader.value(json.loads(value) if isinstance(value, str) else value, kind, path)
            layer.problems.extend(reader.problems)
        else:
            read = read_text(value, kind) if isinstance(value, str) else read_strictly(value, kind)
    except ValueError:
        layer.problems.append(
            Problem(origin, path, f"expected {_in_text(kind)}, found {describe_found(value, kind)}")
        )
        return
    complaint = extreme(path[-1], read)
    if complaint is not None:
        layer.problems.append(Problem(origin, path, complaint))
    elif read is not WRONG:
        layer.put(path, read, source)


def _in_text(kind: Any) -> str:
    json_needed = expectation(kind) in {expectation(tuple[str, ...]), expectation(Mapping[str, str])}
    return expectation(kind) + (' as JSON, such as ["a", "b"] or {"a": "b"}' if json_needed else "")


def _contradictions(
    error: ValidationError, sources: Mapping[Path, str], problems: list[Problem]
) -> Iterator[Problem]:
    """What the sections say about values that are well-typed, each once and with where its section was written.

    A section of which something could not be read is left out: it would be judged by defaults nobody wrote. A
    cluster's section is judged with ``[pulsar]`` below it, and not blamed for what is wrong there already.
    """
    unread = {_without_cluster(problem.path[:-1]) for problem in problems}
    said: set[tuple[Path, str]] = set()
    details = error.errors(include_url=False, include_input=False)
    for detail in sorted(details, key=lambda each: each["loc"][:1] == ("clusters",)):
        path = tuple(map(str, detail["loc"]))
        said_before = (_without_cluster(path), detail["msg"]) in said
        if said_before or _without_cluster(path) in unread:
            continue
        if path[:1] != ("clusters",):
            said.add((path, detail["msg"]))
        yield Problem(_origins(path, sources), path, detail["msg"].removeprefix("Value error, "))


def _without_cluster(path: Path) -> Path:
    return path[2:] if path[:1] == ("clusters",) else path


def _origins(section: Path, sources: Mapping[Path, str]) -> str:
    """Where the values directly in a section, or below it in ``[pulsar]``, were written."""
    at = {section, _without_cluster(section)}
    found = {source.split(" ", 1)[1]: None for path, source in sources.items() if path[:-1] in at}
    return ", ".join(found)
