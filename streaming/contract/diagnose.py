"""Why a record could not be decoded: a slow and thorough look, with Python's own JSON reader, at a record that the typed decoder refused.

The first thing wrong is named, from the outside in: JSON, envelope, type, cluster, subject, time, data.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from state.events import Rejection, RejectReason
from state.overlay import MAX_NAME_CHARACTERS
from streaming.contract.messages import (
    CLUSTER_PATTERN,
    MESSAGE_TYPES,
    SHOWN_CHARACTERS,
    BrokerLoadData,
    LocalBrokerData,
    Resource,
    Time,
    TopicLoad,
    type_of,
)

_Problem = tuple[RejectReason, str]
"""A reason, and what is wrong in detail."""
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
    except UnicodeDecodeError as problem:
        return _reject_text(f"byte {problem.start + 1} is not text in UTF-8")
    except ValueError as problem:
        return _reject_text(str(problem))
    except RecursionError:
        return _reject_text("nested too deeply")
    if not isinstance(event, dict):
        detail = f"expected a JSON object, found {_describe_kind(event)}"
        return "", Rejection(reason="not-cloudevent", detail=detail)
    reason, detail = next(_problems(event, key), (None, ""))
    if reason is None and not isinstance(error, msgspec.ValidationError):
        return _reject_text(str(error))
    if reason is None:
        reason, detail = "bad-data", f"{event['type']}: {str(error)[:SHOWN_CHARACTERS]}"
    has_cluster = next(_cluster_problems(event, key), None) is None
    known = next((name for name in _KNOWN_TYPES if name == event.get("type")), None)
    return event["cluster"] if has_cluster else "", Rejection(reason=reason, detail=detail, type=known)


def _reject_text(detail: str) -> tuple[str, Rejection]:
    return "", Rejection(reason="not-json", detail=f"not JSON: {detail[:SHOWN_CHARACTERS]}")


def _problems(event: dict[str, Any], key: str | None) -> Iterator[_Problem]:
    """What is wrong, in the order in which it is named; only the first of them is asked for."""
    yield from _envelope_problems(event)
    yield from _cluster_problems(event, key)
    yield from _attribute_problems(event)
    for place, value in _numbers(event.get("data")):
        if (isinstance(value, float) and not math.isfinite(value)) or value in _NOT_FINITE_TEXT:
            where = ascii(_path(place))[1:-1][:SHOWN_CHARACTERS]
            yield "not-finite", f"{where} is {shorten(value)}, expected a finite number"


def _envelope_problems(event: dict[str, Any]) -> Iterator[_Problem]:
    if event.get("specversion") != "1.0":
        version = _describe_value(event, "specversion")
        yield "not-cloudevent", f"specversion is {version}, expected '1.0' (CloudEvents, structured JSON)"
    for name in ("id", "source", "type"):
        if not isinstance(event.get(name), str) or not event[name]:
            yield "not-cloudevent", f"{name} is {_describe_value(event, name)}, expected a non-empty string"
        if len(event[name]) > MAX_NAME_CHARACTERS:
            yield "not-cloudevent", _describe_length(name, event[name])
    if event["type"] not in _KNOWN_TYPES:
        known = ", ".join(sorted(_KNOWN_TYPES))
        yield "unknown-type", f"type is {shorten(event['type'])}, expected one of {known}"
    content = event.get("datacontenttype")
    if content is not None and not isinstance(content, str):
        yield "not-cloudevent", f"datacontenttype is {shorten(content)}, expected 'application/json'"


def _cluster_problems(event: dict[str, Any], key: str | None) -> Iterator[_Problem]:
    cluster = event.get("cluster")
    if cluster is None or cluster == "":
        yield "missing-cluster", f"the attribute cluster is {_describe_value(event, 'cluster')}"
    if (
        not isinstance(cluster, str)
        or re.fullmatch(CLUSTER_PATTERN, cluster) is None
        or cluster.endswith("\n")
    ):
        expected = "expected 1 to 100 of the characters A-Z a-z 0-9 . _ -"
        yield "invalid-cluster", f"cluster is {shorten(cluster)}, {expected}"
    if key is not None and key != cluster:
        detail = f"the record's key is {shorten(key)}, its cluster {cluster!r}: they must be equal"
        yield "cluster-mismatch", detail


def _attribute_problems(event: dict[str, Any]) -> Iterator[_Problem]:
    subject = event.get("subject")
    if not isinstance(subject, str) or not subject:
        yield "no-subject", f"subject is {_describe_value(event, 'subject')}, expected a non-empty string"
    if len(event["subject"]) > MAX_NAME_CHARACTERS:
        yield "bad-data", _describe_length("subject", event["subject"])
    for name in ("time", "recordedtime"):
        moment = event.get(name)
        if (moment is not None or name == "time") and not _is_time(moment):
            expected = "expected RFC 3339 with an offset, such as 2026-11-21T13:21:25.206Z"
            yield "bad-time", f"{name} is {_describe_value(event, name)}, {expected}"


def _is_time(value: object) -> bool:
    try:
        msgspec.convert(value, Time)
    except (msgspec.ValidationError, UnicodeEncodeError):  # a lone surrogate cannot be encoded
        return False
    return isinstance(value, str)


def shorten(value: object) -> str:
    """A value for a message: null, true and false as JSON has them, and the beginning of what is long."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = repr(value)
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}…{text[-1] if isinstance(value, str) else ''}"


def _describe_value(event: dict[str, Any], name: str) -> str:
    return shorten(event[name]) if name in event else "missing"


def _describe_kind(value: object) -> str:
    """A value that is no object, as JSON calls it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return "an array" if isinstance(value, list) else "a string" if isinstance(value, str) else "a number"


def _describe_length(name: str, value: str) -> str:
    return f"{name} is {shorten(value)}, {len(value)} characters: at most {MAX_NAME_CHARACTERS} are taken"


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
    try:
        return json.loads(
            text, parse_int=lambda digits: int(digits) if len(digits) < _MOST_DIGITS else float(digits)
        )
    except json.JSONDecodeError as error:
        wrong = error.msg.replace("Expecting value", "Expected a value such as an object in { }")
        wrong = wrong.replace("Expecting", "Expected")
        raise ValueError(f"{wrong}, at line {error.lineno}, column {error.colno}") from error
