"""What executors must keep to, checked by their results: each action is answered, done once, and not tried after its expiry."""

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tests.live.pulsar.lab import CLUSTER

_RESULT = "trimtab.action-result.v1"
_CLOCK_S = 1.0
"""Results carry the time they were written, so this is what writing them may take."""


def unanswered(actions: Sequence[bytes], records: Sequence[bytes]) -> list[str]:
    """Actions of the real cluster without a result on the input topic."""
    results = _results(records)
    return [f"action {id_} was never answered" for id_ in _actions(actions) if id_ not in results]


def misdone(actions: Sequence[bytes], records: Sequence[bytes]) -> list[str]:
    """What no executor may have done."""
    found, results = [], _results(records)
    for id_, action in _actions(actions).items():
        given = results.get(id_, [])
        tried = [each for each in given if each["data"]["outcome"] != "skipped"]
        done = [each for each in tried if not each["data"].get("was_done_before")]
        if len({each["time"] for each in done if each["data"]["outcome"] == "succeeded"}) > 1:
            found.append(f"action {id_} was carried out {len(done)} times: {done}"[:500])
        expires_s = _seconds(action["data"]["expires_at"])
        found += [
            f"action {id_} was tried {began_s - expires_s:.1f} s after its expiry"
            for each in done
            if (began_s := _seconds(each["time"]) - (each["data"].get("took_s") or 0.0))
            > expires_s + _CLOCK_S
        ]
    return found


def _actions(values: Sequence[bytes]) -> dict[str, dict[str, Any]]:
    events = [json.loads(value) for value in values]
    return {event["id"]: event for event in events if event["cluster"] == CLUSTER}


def _results(values: Sequence[bytes]) -> dict[str, list[dict[str, Any]]]:
    """Results by action; the input topic also holds records that are no JSON."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for value in values:
        if f'"{_RESULT}"'.encode() in value:
            event = json.loads(value)
            if event["cluster"] == CLUSTER:
                found[event["subject"]].append(event)
    return dict(found)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
