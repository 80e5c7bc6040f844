"""Which control event an executor obeys."""

import json

import pytest

from state.settings import RoundSettings
from streaming.contract.messages import ControlData
from streaming.transport.executor import ControlView
from tests.live.suites.ports import CLUSTER, control

DAY_MS = 86_400_000


class Log(ControlView):
    """A control topic whose records were appended at a time of their own."""

    def __init__(self, *records: tuple[bytes, int]) -> None:
        super().__init__(CLUSTER, RoundSettings(max_ahead_s=10.0))
        for value, appended_ms in records:
            self._take(value, appended_ms=appended_ms)

    def newest(self) -> ControlData | None:
        return self._data

    def close(self) -> None:
        pass


def event(time_ms: int, *, paused: bool, cluster: str = CLUSTER) -> bytes:
    return control(cluster, time_ms, paused=paused)[1]


def is_paused(log: Log) -> bool | None:
    found = log.newest()
    return None if found is None else found.paused


def test_the_newest_event_of_the_cluster_is_obeyed_wherever_it_stands() -> None:
    newest = event(DAY_MS + 2_000, paused=True)
    older = event(DAY_MS + 1_000, paused=False)
    other = event(DAY_MS + 9_000, paused=False, cluster="west-1")
    assert is_paused(Log((newest, DAY_MS), (older, DAY_MS), (other, DAY_MS))) is True
    assert is_paused(Log()) is None


@pytest.mark.parametrize("paused", [True, False])
def test_an_event_from_a_clock_that_is_ahead_is_obeyed_and_hides_no_later_one(*, paused: bool) -> None:
    ahead, later = event(2 * DAY_MS, paused=paused), event(DAY_MS + 1_000, paused=not paused)
    assert is_paused(Log((ahead, DAY_MS))) is paused
    assert is_paused(Log((ahead, DAY_MS), (later, DAY_MS + 1_000))) is not paused
    assert is_paused(Log((later, DAY_MS + 1_000), (ahead, DAY_MS))) is not paused, "wherever it stands"


def test_within_what_the_settings_allow_the_time_of_the_event_counts() -> None:
    first, second = event(DAY_MS + 10_000, paused=True), event(DAY_MS + 9_000, paused=False)
    assert is_paused(Log((first, DAY_MS), (second, DAY_MS + 5_000))) is True
    beyond = event(DAY_MS + 10_001, paused=True)
    assert is_paused(Log((beyond, DAY_MS), (second, DAY_MS + 5_000))) is False


def test_settings_that_an_older_executor_does_not_know_hide_no_pause() -> None:
    message = json.loads(event(DAY_MS, paused=True))
    message["data"]["settings"] = {"pulsar": {"unheard_of": 1}}
    assert is_paused(Log((json.dumps(message).encode(), DAY_MS))) is True
