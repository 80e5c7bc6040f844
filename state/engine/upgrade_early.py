"""Upgrade of a header from version 2 (trimtab 0.1.0) to version 3: what came before the system was known becomes events again.

Version 2 took them for a Pulsar cluster's and sorted ticks, results and control events when the first report was Kafka's. Facts of
rounds that it has closed are left out: a collector sends them again in every round.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

_NEWEST, _NEXT, _ROUNDS, _CONTROL, _SYSTEM, _EARLY = 1, 2, 5, 10, 13, 15
"""Positions in a header, after the upgrade of its ledger."""
_FIELDS = {
    "tick": ("time_ms", "id", "asked", "failed"),
    "result": ("time_ms", "id", "action_id", "outcome"),
    "facts": ("time_ms", "id", "facts"),
    "control": ("time_ms", "id", "paused", "mode", "overlay", "who", "why", "", "", "resumed_ms"),
}
"""Fields of the events by their positions in the records of version 2; those without a name are not the event's own."""


def with_early(header: list[Any]) -> list[Any]:
    """A header that has the events from before its system was known, in the place of their rounds."""
    if header[_SYSTEM] is not None:
        return _with(header, {_EARLY: []})
    early = [
        *(_record("control", each, None if not each[8] else header[_NEWEST]) for each in header[_CONTROL]),
        *(_record(kind, each, header[_NEWEST]) for kind, each in _events(header)),
    ]
    return _with(header, {_NEXT: None, _ROUNDS: {}, _CONTROL: [], _EARLY: early})


def _events(header: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    yield from (("tick", each) for each in header[_EARLY])
    for open_round in header[_ROUNDS].values():
        _spans, tick, results, _waiters, facts = open_round[:5]
        if tick is not None and tick not in header[_EARLY]:
            yield "tick", tick
        yield from (("result", each) for each in results)
        if facts is not None:
            yield "facts", facts


def _record(kind: str, stored: list[Any], clock_ms: int | None) -> list[Any]:
    named = {name: value for name, value in zip(_FIELDS[kind], stored, strict=False) if name}
    return [kind, stored[0], stored[1], clock_ms, msgspec.msgpack.encode(named)]


def _with(header: list[Any], values: dict[int, Any]) -> list[Any]:
    return [values.get(place, value) for place, value in enumerate(header)]
