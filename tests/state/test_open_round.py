"""What an open round keeps of ticks, facts and results: of ticks and of facts the newest, whatever comes first."""

from collections.abc import Callable

import pytest

from state.closing import Identity
from state.controller import SUPERSEDED, USED, Controller
from state.events import Event, Tick
from state.memory import decode_header
from state.store import DictStore
from tests.state.traces import CLUSTER, facts, load, settings_of

KNOWN = (60_000, "m")
"""Time and id of what is known already."""


def tick(time_ms: int, id_: str) -> Tick:
    return Tick(time_ms, id_, ("b1", id_), (("b1", "no answer"),), (("t/n/0x0_0x1", 5),), 7)


def known_facts(time_ms: int, id_: str) -> Event:
    return facts(time_ms / 1000, shedding=[id_], id_=id_)


@pytest.mark.parametrize("event_of", [tick, known_facts], ids=["ticks", "facts"])
@pytest.mark.parametrize(
    ("time_ms", "id_", "is_kept"),
    [
        (60_001, "a", True),
        (59_999, "z", False),
        (60_000, "n", True),
        (60_000, "l", False),
        (60_000, "m", False),
    ],
    ids=["newer", "older", "a greater id", "a lesser id", "a repeat"],
)
def test_the_newest_tick_and_the_newest_facts_of_a_round_are_kept(
    event_of: Callable[[int, str], Event], time_ms: int, id_: str, *, is_kept: bool
) -> None:
    store = DictStore()
    settings = settings_of(rounds={"length_s": 120.0})
    controller = Controller(CLUSTER, store, identity=Identity(), settings=settings)
    known, event = event_of(*KNOWN), event_of(time_ms, id_)
    for each in (load("b1", 59.0), known, event):
        controller.step(each)
    assert controller.take_results()[type(event), USED if is_kept else SUPERSEDED] == (2 if is_kept else 1)
    controller.commit()
    (open_round,) = decode_header(store.header() or b"").rounds.values()
    kept = event if is_kept else known
    assert [each for each in (open_round.tick, open_round.facts) if each is not None] == [kept]
