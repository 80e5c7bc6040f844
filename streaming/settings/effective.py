"""The settings in force as text that can be read in again: every value with its source."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping

from pydantic import SecretStr

from streaming.settings.catalog import Path, values
from streaming.settings.clusters import ClusterSettingsSource
from streaming.settings.errors import dotted
from streaming.settings.load import DEFAULT, Loaded

_SECRET_KEY = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""Keys of Spark whose values Spark itself hides. Spark: ``spark.redaction.regex``."""

_EXACT_WHOLE_MAX = 2**53
"""Below it a whole number stands for exactly one double, so it can be written without a fraction."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """One setting: its dotted key, its value (None or an empty table = unset) and where that was written."""

    key: str
    value: object
    source: str


def in_force(loaded: Loaded, *, cluster: str | None = None) -> Iterator[InForce]:
    """Every setting, and what was written in the clusters' sections; with ``cluster``, the settings in force there."""
    settings = loaded.settings
    if cluster is not None:
        base = ClusterSettingsSource(settings).base(cluster)
        settings = settings.model_copy(update={"pulsar": base.pulsar, "kafka": base.kafka, "clusters": {}})
    for path, value in values(settings):
        source = _source(path, loaded.sources, cluster)
        if source is not None:
            yield InForce(key=dotted(path), value=_guard_secret(path, value), source=source)


def render_toml(settings: Iterator[InForce]) -> str:
    """A line for each setting, ``key = value  # source``; an unset setting, or a secret, is a comment."""
    lines = [(_assignment(each), each.source) for each in settings]
    width = max((len(assignment) for assignment, _ in lines), default=0)
    return "".join(f"{assignment:<{width}}  # {source}\n" for assignment, source in lines)


def render_json(settings: Iterator[InForce]) -> str:
    """One object, ``{key: {"value": …, "source": …}}``."""
    tree = {each.key: {"value": each.value, "source": each.source} for each in settings}
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
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_WHOLE_MAX:
        return str(int(value))
    return repr(value)


def is_unset(value: object) -> bool:
    """Whether a value has no form in TOML: None, or a table without entries."""
    return value is None or value == {}


def _assignment(each: InForce) -> str:
    if isinstance(each.value, SecretStr):
        return f"# {each.key} is set and not shown"
    return f"# {each.key} is unset" if is_unset(each.value) else f"{each.key} = {toml_value(each.value)}"


def _source(path: Path, sources: Mapping[str, str], cluster: str | None) -> str | None:
    """Where a value comes from; None for what a cluster's section inherits, or where there is none."""
    if path[:1] == ("clusters",):
        return sources.get(dotted(path))
    own = sources.get(dotted(("clusters", cluster, *path))) if cluster is not None else None
    if own is not None:
        return f"{own}, {dotted(('clusters', cluster or ''))}"
    return sources.get(dotted(path), DEFAULT)
