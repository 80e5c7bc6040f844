"""Which control event an executor obeys."""

import json
from dataclasses import dataclass
from typing import Self

import pytest

from state.settings import RoundSettings
from streaming.transport.executor import ControlView
from streaming.transport.side import TopicRecord
from tests.support.ports_suite import CLUSTER, control

DAY_MS = 86_400_000


@dataclass
class Log:
    """A control topic, and the side that it is on; its records were appended at a time of their own."""

    records: list[TopicRecord]

    def reader(self, *_: object, **__: object) -> Self:
        return self

    def full_name(self, topic: str) -> str:
        return topic

    def read_to_end(self) -> list[TopicRecord]:
        return self.records


def log(*records: tuple[bytes, int]) -> ControlView:
    """What an executor makes of a topic with these values and times, all under the key of the cluster."""
    made = [
        TopicRecord(
            key=CLUSTER.encode(), value=value, timestamp=at_ms, partition=0, offset=offset, headers=()
        )
        for offset, (value, at_ms) in enumerate(records)
    ]
    return ControlView(Log(made), "trimtab.control", cluster=CLUSTER, rounds=RoundSettings(max_ahead_s=10.0))


def event(time_ms: int, *, paused: bool, cluster: str = CLUSTER) -> bytes:
    return control(cluster, time_ms, paused=paused)[1]


def is_paused(view: ControlView) -> bool | None:
    found = view.newest()
    return None if found is None else found.paused


def test_the_newest_event_of_the_cluster_is_obeyed_wherever_it_stands() -> None:
    newest = event(DAY_MS + 2_000, paused=True)
    older = event(DAY_MS + 1_000, paused=False)
    other = event(DAY_MS + 9_000, paused=False, cluster="west-1")
    assert is_paused(log((newest, DAY_MS), (older, DAY_MS), (other, DAY_MS))) is True
    assert is_paused(log()) is None


@pytest.mark.parametrize("paused", [True, False])
def test_an_event_from_a_clock_that_is_ahead_is_obeyed_and_hides_no_later_one(*, paused: bool) -> None:
    ahead, later = event(2 * DAY_MS, paused=paused), event(DAY_MS + 1_000, paused=not paused)
    assert is_paused(log((ahead, DAY_MS))) is paused
    assert is_paused(log((ahead, DAY_MS), (later, DAY_MS + 1_000))) is not paused
    assert is_paused(log((later, DAY_MS + 1_000), (ahead, DAY_MS))) is not paused, "wherever it stands"


def test_within_what_the_settings_allow_the_time_of_the_event_counts() -> None:
    first, second = event(DAY_MS + 10_000, paused=True), event(DAY_MS + 9_000, paused=False)
    assert is_paused(log((first, DAY_MS), (second, DAY_MS + 5_000))) is True
    beyond = event(DAY_MS + 10_001, paused=True)
    assert is_paused(log((beyond, DAY_MS), (second, DAY_MS + 5_000))) is False


def test_settings_that_an_older_executor_does_not_know_hide_no_pause() -> None:
    message = json.loads(event(DAY_MS, paused=True))
    message["data"]["settings"] = {"pulsar": {"unheard_of": 1}}
    assert is_paused(log((json.dumps(message).encode(), DAY_MS))) is True
