"""What released versions can have stored: values, what they decode to, and a description of the layouts.

Each folder is named after the first trimtab that writes a layout. ``layout.json`` has its version, whether it is released,
and the fields of every struct in it.
"""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import numpy as np

from state.engine.early import event_of
from state.engine.layouts import VERSION
from state.engine.memory import EarlyRecord, Header
from state.engine.waiting import Entry
from state.events import ActionResult, ClusterFacts, Control, Tick
from state.kafka import memory as kafka
from state.kafka.memory import READING
from state.kafka.partition_table import PartitionTable
from state.pulsar import encoding
from state.pulsar.memory import Fleet
from tests.state.golden_state.samples import SAMPLES

FOLDER = Path(__file__).parent
ROOTS: tuple[type, ...] = (
    Header,
    encoding._FleetBytes,
    encoding._ReportBytes,
    encoding._TopicsBytes,
    kafka._MemoryBytes,
    kafka.WaitingLogs,
    kafka.WaitingMoves,
    Entry,
    Tick,
    ActionResult,
    ClusterFacts,
    Control,
)
"""What is encoded; the events are kept in a header as long as its system is not known."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """``layout.json``."""

    version: int
    is_released: bool
    structs: dict[str, list[str]]
    """Name and type of each field, in order, by struct."""


class Released(Exception):
    """A released layout does not change."""


def folders() -> list[Path]:
    """The folders of all versions."""
    return sorted(each.parent for each in FOLDER.glob("*/layout.json"))


def layout_in(folder: Path) -> Layout:
    return msgspec.json.decode((folder / "layout.json").read_bytes(), type=Layout)


def current() -> Path | None:
    """The folder of today's layout."""
    return next((each for each in folders() if layout_in(each).version == VERSION), None)


def structs() -> dict[str, list[str]]:
    """Every struct that is encoded, with its fields as they are now."""
    found: dict[str, list[str]] = {}
    for root in ROOTS:
        _describe(root, found)
    return dict(sorted(found.items()))


def _describe(type_: Any, found: dict[str, list[str]]) -> None:
    for inner in get_args(type_):
        _describe(inner, found)
    is_struct = isinstance(type_, type) and (
        issubclass(type_, msgspec.Struct) or is_dataclass(type_) or hasattr(type_, "_fields")
    )
    if is_struct and type_.__name__ not in found:
        hints = get_type_hints(type_)
        found[type_.__name__] = [f"{name}: {_text(hint)}" for name, hint in hints.items()]
        for hint in hints.values():
            _describe(hint, found)


def _text(hint: Any) -> str:
    """A type without the modules it lives in: those may change."""
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def shown(value: Any) -> Any:
    """A value as JSON, with the names of its fields."""
    if isinstance(value, PartitionTable):
        return [[[topic, partition], _numbers(numbers)] for (topic, partition), numbers in _rows(value)]
    if isinstance(value, EarlyRecord):
        value = {"kind": value.kind, "clock_ms": value.clock_ms, "event": event_of(value)}
    names = _field_names(value)
    if names:
        fields_of = {name: shown(getattr(value, name)) for name in names}
        if isinstance(value, Fleet):  # version 2 had a field for each policy
            fields_of |= {name.replace("-", "_"): shown(each) for name, each in value.policies.items()}
        return fields_of
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "values": value.tolist()}
    if isinstance(value, dict):
        pairs = [[shown(key), shown(each)] for key, each in value.items()]
        return dict(pairs) if all(isinstance(key, str) for key in value) else pairs
    if isinstance(value, list | tuple):
        return [shown(each) for each in value]
    return _text_of(value) if isinstance(value, bytes) else value


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:  # columns
        return value.hex()


def _rows(table: PartitionTable) -> Iterator[tuple[tuple[str, int], list[int]]]:
    for topic, partition, *numbers in table.columns.tolist():
        yield (table.topics[topic], partition), numbers


def _numbers(values: list[int]) -> Any:
    return dict(zip(READING, values, strict=True)) if len(values) == len(READING) else values


def _field_names(value: Any) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if is_dataclass(value):
        return tuple(each.name for each in fields(value))
    return stored_names(value) if isinstance(value, Fleet) else ()


def stored_names(fleet: Fleet) -> tuple[str, ...]:
    """The names of what is stored of a fleet, as lists and columns."""
    return tuple(sorted({*fleet.__slots__} - {"bundle_names"} | {"bundles"}))


BECAME_LEDGER = frozenset(
    {"actions", "unloads", "splits", "inheritances", "trials", "verdicts", "ineffective", "leaving"}
    | {"failing_since_ms"}
)
"""Fields of a header of version 2 that version 3 has in one ledger: ``tests/state/engine/test_upgrade_ledger.py`` looks at them."""


BECAME_COLUMNS = frozenset({"replicas", "moves"})
"""Rows of version 2 that version 3 has in columns: ``tests/state/engine/test_upgrade_kafka.py`` looks at them."""


BECAME_CONFIGS = frozenset({"pending", "attempted", "real", "changed_rates"})
"""Fields of a Kafka cluster of version 2 that version 3 has as configs: ``test_upgrade_kafka.py`` looks at them, too."""


BECAME_SENDERS = frozenset({"waiters"})
"""Counts of version 2 in whose place version 3 has who waits: ``tests/state/engine/test_upgrade_rounds.py`` looks at them."""


BECAME_EARLY = frozenset({"early_ticks", "rounds", "next_round", "control"})
"""Where version 2 had what came before the system was known: ``tests/state/engine/test_early.py`` looks at them."""


def differences(recorded: Any, now: Any, path: str = "") -> Iterator[str]:
    """Where a decoded value differs from what was recorded; fields that came later do not count."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        for name, value in recorded.items():
            if name in BECAME_LEDGER and "ledger" in now:
                continue
            is_early = name == "early_ticks" or recorded.get("system", "") is None
            if is_early and name in BECAME_EARLY and "early" in now:
                continue
            if name in BECAME_CONFIGS and "confirmed" in now and "confirmed" not in recorded:
                continue
            if name in BECAME_COLUMNS and isinstance(value, list) and isinstance(now.get(name), dict):
                continue
            if name in BECAME_SENDERS and "stored_count" in now and "stored_count" not in recorded:
                continue
            yield from differences(value, now.get(name), f"{path}.{name}")
    elif isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        for number, pair in enumerate(zip(recorded, now, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif recorded != now:
        yield f"{path}: {recorded!r} was stored, {now!r} is read"


def write(*, release: bool = False) -> Path:
    """Record today's layout; raises ``Released`` where that would change a released one."""
    folder = current() or FOLDER / f"v{version('trimtab')}"
    if (folder / "layout.json").exists() and layout_in(folder).is_released:
        raise Released(
            f"{folder.name} is released: raise state.engine.layouts.VERSION, write an upgrade, and raise trimtab's version"
        )
    folder.mkdir(exist_ok=True)
    layout = Layout(version=VERSION, is_released=release, structs=structs())
    (folder / "layout.json").write_bytes(_pretty(layout))
    for name, sample in SAMPLES.items():
        value = sample.encode(sample.build())
        (folder / f"{name}.bin").write_bytes(value)
        (folder / f"{name}.json").write_bytes(_pretty(shown(sample.decode(value))))
    return folder


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"
