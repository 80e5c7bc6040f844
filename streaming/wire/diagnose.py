"""Why a record could not be decoded: the slow, patient look at a record that the typed decoder refused.

The first thing wrong is named, from the outside in: JSON, envelope, type, cluster, subject, time, data.
"""

import json
import math
import re
from collections.abc import Iterator
from datetime import datetime

from state.events import Rejection
from streaming.wire.messages import (
    CLUSTER_PATTERN,
    MESSAGE_TYPES,
    LocalBrokerData,
    Resource,
    Traffic,
    type_of,
)

_NOT_FINITE_TEXT = frozenset({"NaN", "Infinity", "-Infinity", "+Infinity", "INF", "-INF", "+INF"})
"""How Jackson and others write what JSON has no number for."""
_NUMBER_FIELDS = frozenset(
    (*Resource.__struct_fields__, *Traffic.__struct_fields__, *LocalBrokerData.__struct_fields__)
)
_KNOWN_TYPES = frozenset(map(type_of, MESSAGE_TYPES))
_SHOWN_CHARACTERS = 200


def diagnose(value: bytes, key: str | None, error: Exception) -> tuple[str, Rejection]:
    """The record's cluster (empty unless valid and the record's key) and what is wrong with it.

    ``error`` is what the typed decoder said.
    """
    try:
        return _diagnose(json.loads(value.decode(), parse_int=_whole), key, error)
    except RecursionError:
        return _not_json("nested too deeply")
    except ValueError as problem:
        return _not_json(f"not JSON: {problem}")


def _diagnose(event: object, key: str | None, error: Exception) -> tuple[str, Rejection]:
    rejection = _envelope_problem(event)
    if rejection is None and isinstance(event, dict):
        rejection = (
            _cluster_problem(event, key) or _attribute_problem(event) or _not_finite_problem(event.get("data"))
        )
    if rejection is None and not isinstance(error, msgspec.ValidationError):
        return _not_json(f"not JSON: {error}")
    is_attributed = isinstance(event, dict) and _cluster_problem(event, key) is None
    cluster = event["cluster"] if isinstance(event, dict) and is_attributed else ""
    return cluster, rejection or Rejection(reason="bad-data", detail=str(error)[:_SHOWN_CHARACTERS])


def _not_json(detail: str) -> tuple[str, Rejection]:
    return "", Rejection(reason="not-json", detail=detail)


def _whole(digits: str) -> int | float:
    """A whole number; one that no double holds is infinite, as ``1e999`` is."""
    return int(digits) if len(digits) < _MOST_DIGITS else float(digits)


def _shown(value: object) -> str:
    return repr(value)[:_SHOWN_CHARACTERS]


def _envelope_problem(event: object) -> Rejection | None:
    if not isinstance(event, dict):
        return Rejection(
            reason="not-cloudevent", detail=f"expected a JSON object, found {type(event).__name__}"
        )
    if event.get("specversion") != "1.0":
        detail = f"specversion is {_shown(event.get('specversion'))}, expected '1.0' (CloudEvents, structured JSON)"
        return Rejection(reason="not-cloudevent", detail=detail)
    for name in ("id", "source", "type"):
        if not isinstance(event.get(name), str) or not event[name]:
            detail = f"{name} is {_shown(event.get(name))}, expected a non-empty string"
            return Rejection(reason="not-cloudevent", detail=detail)
    if event["type"] not in _KNOWN_TYPES:
        detail = f"type is {_shown(event['type'])}, expected one of {', '.join(sorted(_KNOWN_TYPES))}"
        return Rejection(reason="unknown-type", detail=detail)
    return None


def _cluster_problem(event: dict[str, object], key: str | None) -> Rejection | None:
    cluster = event.get("cluster")
    if cluster is None or cluster == "":
        return Rejection(reason="missing-cluster", detail="the attribute cluster is missing")
    if (
        not isinstance(cluster, str)
        or re.fullmatch(CLUSTER_PATTERN, cluster) is None
        or cluster.endswith("\n")
    ):
        detail = f"cluster is {_shown(cluster)}, expected 1 to 100 of the characters A-Z a-z 0-9 . _ -"
        return Rejection(reason="invalid-cluster", detail=detail)
    if key is not None and key != cluster:
        detail = f"the record's key is {_shown(key)}, its cluster {cluster!r}: they must be equal"
        return Rejection(reason="cluster-mismatch", detail=detail)
    return None


def _attribute_problem(event: dict[str, object]) -> Rejection | None:
    subject = event.get("subject")
    if not isinstance(subject, str) or not subject:
        return Rejection(
            reason="no-subject", detail=f"subject is {_shown(subject)}, expected a non-empty string"
        )
    for name in ("time", "recordedtime"):
        if name in event or name == "time":
            problem = _time_problem(name, event.get(name))
            if problem is not None:
                return problem
    return None


def _time_problem(name: str, value: object) -> Rejection | None:
    expected = "expected RFC 3339 with an offset, such as 2026-11-21T13:21:25.206Z"
    if not isinstance(value, str):
        return Rejection(reason="bad-time", detail=f"{name} is {_shown(value)}, {expected}")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return Rejection(reason="bad-time", detail=f"{name} is {_shown(value)}, {expected}")
    if moment.tzinfo is None or "T" not in value.upper():
        return Rejection(reason="bad-time", detail=f"{name} is {_shown(value)}, {expected}")
    return None


def _not_finite_problem(event: dict[str, object]) -> Rejection | None:
    for path, value in _numbers(event.get("data"), "data", is_number=False):
        if (isinstance(value, float) and not math.isfinite(value)) or value in _NOT_FINITE_TEXT:
            return Rejection(
                reason="not-finite", detail=f"{path} is {_shown(value)}, expected a finite number"
            )
    return None


def _numbers(value: object, path: str, *, is_number: bool) -> Iterator[tuple[str, object]]:
    """Numbers of ``data`` with their paths, and texts where a number belongs."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(inner, f"{path}.{name}", is_number=name in _NUMBER_FIELDS)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _numbers(inner, f"{path}[{place}]", is_number=False)
    elif isinstance(value, float) or (isinstance(value, str) and is_number):
        yield path, value
