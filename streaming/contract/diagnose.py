"""Why a record could not be decoded: a slow and thorough look, with Python's own JSON reader, at a record that the typed decoder refused.

The first thing wrong is named, from the outside in: JSON, envelope, type, cluster, subject, time, data.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from state.events import Rejection
from streaming.contract.messages import (
    CLUSTER_PATTERN,
    MAX_NAME_CHARACTERS,
    MESSAGE_TYPES,
    SHOWN_CHARACTERS,
    BrokerLoadData,
    LocalBrokerData,
    Resource,
    Time,
    TopicLoad,
    type_of,
)

_NOT_FINITE_TEXT = frozenset({"NaN", "Infinity", "-Infinity", "+Infinity", "INF", "-INF", "+INF"})
"""How Jackson and others write what JSON has no number for."""
_NUMBER_FIELDS = frozenset(
    (
        *Resource.__struct_fields__,
        *TopicLoad.__struct_fields__,
        *LocalBrokerData.__struct_fields__,
        *BrokerLoadData.__struct_fields__,
    )
)
_KNOWN_TYPES = frozenset(map(type_of, MESSAGE_TYPES))


def diagnose(value: bytes, key: str | None, error: Exception) -> tuple[str, Rejection]:
    """The record's cluster (empty unless valid and the record's key) and what is wrong with it.

    ``error`` is what the typed decoder raised.
    """
    try:
        event = load(value.decode())
    except ValueError as problem:
        return _reject_text(str(problem))
    except RecursionError:
        return _reject_text("nested too deeply")
    return _diagnose(event, key, error)


def _diagnose(event: object, key: str | None, error: Exception) -> tuple[str, Rejection]:
    if not isinstance(event, dict):
        detail = f"expected a JSON object, found {type(event).__name__}"
        return "", Rejection(reason="not-cloudevent", detail=detail)
    cluster_problem = _cluster_problem(event, key)
    rejection = (
        _envelope_problem(event) or cluster_problem or _attribute_problem(event) or _not_finite_problem(event)
    )
    if rejection is None and not isinstance(error, msgspec.ValidationError):
        return _reject_text(str(error))
    if rejection is None:
        rejection = Rejection(reason="bad-data", detail=f"{event['type']}: {str(error)[:SHOWN_CHARACTERS]}")
    return ("" if cluster_problem else event["cluster"]), rejection


def _reject_text(detail: str) -> tuple[str, Rejection]:
    return "", Rejection(reason="not-json", detail=f"not JSON: {detail[:SHOWN_CHARACTERS]}")


def _shorten(value: object) -> str:
    return repr(value)[:SHOWN_CHARACTERS]


def _envelope_problem(event: dict[str, Any]) -> Rejection | None:
    if event.get("specversion") != "1.0":
        detail = f"specversion is {_shorten(event.get('specversion'))}, expected '1.0' (CloudEvents, structured JSON)"
        return Rejection(reason="not-cloudevent", detail=detail)
    for name in ("id", "source", "type"):
        if not isinstance(event.get(name), str) or not event[name]:
            detail = f"{name} is {_shorten(event.get(name))}, expected a non-empty string"
            return Rejection(reason="not-cloudevent", detail=detail)
        if len(event[name]) > MAX_NAME_CHARACTERS:
            return Rejection(reason="not-cloudevent", detail=_describe_length(name, event[name]))
    if event["type"] not in _KNOWN_TYPES:
        detail = f"type is {_shorten(event['type'])}, expected one of {', '.join(sorted(_KNOWN_TYPES))}"
        return Rejection(reason="unknown-type", detail=detail)
    content = event.get("datacontenttype")
    if content is not None and not isinstance(content, str):
        detail = f"datacontenttype is {_shorten(content)}, expected 'application/json'"
        return Rejection(reason="not-cloudevent", detail=detail)
    return None


def _describe_length(name: str, value: str) -> str:
    return f"{name} is {_shorten(value)}, {len(value)} characters: at most {MAX_NAME_CHARACTERS} are taken"


def _cluster_problem(event: dict[str, object], key: str | None) -> Rejection | None:
    cluster = event.get("cluster")
    if cluster is None or cluster == "":
        return Rejection(reason="missing-cluster", detail="the attribute cluster is missing")
    if (
        not isinstance(cluster, str)
        or re.fullmatch(CLUSTER_PATTERN, cluster) is None
        or cluster.endswith("\n")
    ):
        detail = f"cluster is {_shorten(cluster)}, expected 1 to 100 of the characters A-Z a-z 0-9 . _ -"
        return Rejection(reason="invalid-cluster", detail=detail)
    if key is not None and key != cluster:
        detail = f"the record's key is {_shorten(key)}, its cluster {cluster!r}: they must be equal"
        return Rejection(reason="cluster-mismatch", detail=detail)
    return None


def _attribute_problem(event: dict[str, object]) -> Rejection | None:
    subject = event.get("subject")
    if not isinstance(subject, str) or not subject:
        return Rejection(
            reason="no-subject", detail=f"subject is {_shorten(subject)}, expected a non-empty string"
        )
    if len(subject) > MAX_NAME_CHARACTERS:
        return Rejection(reason="bad-data", detail=_describe_length("subject", subject))
    for name in ("time", "recordedtime"):
        if event.get(name) is not None or name == "time":
            problem = _time_problem(name, event.get(name))
            if problem is not None:
                return problem
    return None


def _time_problem(name: str, value: object) -> Rejection | None:
    expected = "expected RFC 3339 with an offset, such as 2026-11-21T13:21:25.206Z"
    if not isinstance(value, str):
        return Rejection(reason="bad-time", detail=f"{name} is {_shorten(value)}, {expected}")
    try:
        msgspec.convert(value, Time)
    except (msgspec.ValidationError, UnicodeEncodeError):  # a lone surrogate cannot be encoded
        return Rejection(reason="bad-time", detail=f"{name} is {_shorten(value)}, {expected}")
    return None


def _not_finite_problem(event: dict[str, object]) -> Rejection | None:
    for place, value in _numbers(event.get("data")):
        if (isinstance(value, float) and not math.isfinite(value)) or value in _NOT_FINITE_TEXT:
            where = ascii(_path(place))[1:-1][:SHOWN_CHARACTERS]
            return Rejection(
                reason="not-finite", detail=f"{where} is {_shorten(value)}, expected a finite number"
            )
    return None


_Place = tuple["_Place | None", str | int]
"""Where a value is: the place of the object or list that holds it, and its name or number there. Paths as text would take
memory that grows with the square of the depth."""


def _path(place: _Place) -> str:
    parts: list[str] = []
    at: _Place | None = place
    while at is not None:
        at, name = at
        parts.append(f"[{name}]" if isinstance(name, int) else f".{name}")
    return "".join(reversed(parts))[1:]


def _numbers(data: object) -> Iterator[tuple[_Place, object]]:
    """Numbers of ``data`` with their places, and texts where a number belongs; not recursive, so that any depth works."""
    waiting: list[tuple[_Place, object, bool]] = [((None, "data"), data, False)]
    while waiting:
        place, value, is_number = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(
                ((place, name), inner, name in _NUMBER_FIELDS) for name, inner in reversed(value.items())
            )
        elif isinstance(value, list):
            waiting.extend(((place, at), inner, False) for at, inner in enumerate(value))
        elif isinstance(value, float) or (isinstance(value, str) and is_number):
            yield place, value


_MOST_DIGITS = 310
"""A whole number with so many digits is above the largest double; Python refuses to read numbers with thousands of digits."""


def load(text: str | bytes) -> Any:
    """Read a text; a whole number that is too large for a double becomes infinite, as ``1e999`` does. Raises ``ValueError``."""
    return json.loads(text, parse_int=_parse_integer)


def _parse_integer(digits: str) -> int | float:
    return int(digits) if len(digits) < _MOST_DIGITS else float(digits)
