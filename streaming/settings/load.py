"""Reading the settings at the start: defaults, then the file, then the environment, then flags.

Everything wrong is reported at once. Nothing is looked up later: what ``load`` returns is fixed for the process.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from streaming.settings.catalog import ENV_PREFIX, Path, env_name, settings_by_path
from streaming.settings.errors import Problem, SettingsError, dotted, suggest_nearest
from streaming.settings.reader import (
    Complaint,
    Unreadable,
    compose,
    convert_text,
    expectation,
    is_json,
    leaves,
    show,
)
from streaming.settings.tree import Settings, Tree, merge

DEFAULT_FILE = FilePath("trimtab.toml")
"""Read from the working directory when no file is named."""

DEFAULT = "default"
"""The source of a value that is not set anywhere."""

_OPTIONS: Mapping[str, str] = {
    "input.url": "--input",
    "output.url": "--output",
    "metrics.host": "--metrics-host",
    "metrics.port": "--metrics-port",
    "metrics.collector_port": "--metrics-port",
    "metrics.executor_port": "--metrics-port",
}
"""Options whose name differs from the last part of their setting's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings in force and, by dotted key, where each value was written.

    A source is ``default``, ``file NAME``, ``environment VARIABLE`` or ``flag --OPTION``. In a cluster's section
    only the keys that were set there have a source.
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
        self.sources.update((each, source) for each in leaves(value, path))


def load(*, file: FilePath | None, flags: Mapping[str, object], environ: Mapping[str, str]) -> Loaded:
    """The settings in force; ``flags`` maps dotted keys to values (None = not given), ``environ`` is ``os.environ``.

    ``file`` None reads ``trimtab.toml`` of the working directory if there is one. Raises SettingsError with every
    problem found.
    """
    layers = _file_layer(file), _environment_layer(environ), _flag_layer(flags)
    problems = [problem for layer in layers for problem in layer.problems]
    sources = {path: source for layer in layers for path, source in layer.sources.items()}
    tree: Tree = {}
    for layer in layers:
        tree = merge(tree, layer.tree)
    try:
        settings = compose(tree)
    except Unreadable as error:
        problems += _locate(error.complaints, sources, otherwise=str(file or DEFAULT_FILE))
    if problems:
        raise SettingsError(problems)
    return Loaded(settings=settings, sources=_by_key(sources))


def _by_key(sources: Mapping[Path, str]) -> dict[str, str]:
    """Sources by dotted key, those of values that are not set included."""
    filled = {path[:size] for path in sources for size in range(1, len(path))}
    defaults = {path: DEFAULT for path in settings_by_path() if path not in filled}
    return {dotted(path): source for path, source in {**defaults, **sources}.items()}


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
    layer = _Layer()
    for name, value in raw.items():
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
    return suggest_nearest(name, siblings or paths)


def _flag_layer(flags: Mapping[str, object]) -> _Layer:
    layer = _Layer()
    paths = {dotted(path): path for path in settings_by_path()}
    for key, value in flags.items():
        option = _OPTIONS.get(key, "--" + key.rsplit(".", 1)[-1].replace("_", "-"))
        if key not in paths:
            layer.problems.append(Problem(option, (key,), f"unknown setting; {suggest_nearest(key, paths)}"))
        elif value is not None:
            _take(layer, paths[key], value, f"flag {option}")
    return layer


def _take(layer: _Layer, path: Path, value: object, source: str) -> None:
    """Take a single value of a variable or option: text is converted, a table is JSON."""
    value = str(value) if isinstance(value, FilePath) else value
    kind, is_text = settings_by_path()[path].kind, isinstance(value, str)
    read = convert_text(value, kind) if isinstance(value, str) else value
    if is_text and is_json(kind) and read is value:
        complaint = (
            f'expected {expectation(kind)} as JSON, such as ["a", "b"] or {{"a": "b"}}, found {show(value)}'
        )
        layer.problems.append(Problem(source.split(" ", 1)[1], path, complaint))
    else:
        layer.put(path, read, source)


def _locate(
    complaints: Sequence[Complaint], sources: Mapping[Path, str], *, otherwise: str
) -> Iterator[Problem]:
    """Each complaint once, with the place where the value was written; ``otherwise`` is the place of empty tables.

    A cluster's section is checked together with the ``[pulsar]`` and ``[kafka]`` below it; what is already wrong there is not
    reported for the cluster again.
    """
    known = {(each.path, each.text) for each in complaints}
    wrong = {each.path for each in complaints if not each.is_about_section}
    for each in complaints:
        origins, below = _origins(each, sources), each.path[2:]
        is_inherited = (below, each.text) in known or (not origins and below in wrong)
        if each.path[:1] != ("clusters",) or not is_inherited:
            yield Problem(origins or otherwise, each.path, each.text)


def _origins(complaint: Complaint, sources: Mapping[Path, str]) -> str:
    """Where a value was written; for a section, where the values directly in it, or below it in ``[pulsar]``, were written."""
    path = complaint.path
    if complaint.is_about_section:
        below = path[2:] if path[:1] == ("clusters",) else path
        written = [source for each, source in sources.items() if each[:-1] in (path, below)]
    else:
        written = [source for each, source in sources.items() if each[: len(path)] == path]
    return ", ".join(dict.fromkeys(source.split(" ", 1)[1] for source in written))
