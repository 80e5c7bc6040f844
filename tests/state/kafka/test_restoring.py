"""Throttles that were published and are not decided again: all of them together are what is wanted and may be there."""

from typing import Any

import msgspec
import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing_plan import PacingMemory
from policies.throttle.progress import Watch
from state.kafka.memory import Asked, KafkaMemory, ThrottleConfigs
from state.kafka.restoring import restore
from state.outputs import Output, output
from state.outputs.types import THROTTLE_TYPE
from tests.state.kafka.test_actions import FIRST, action

FIRST_MS, SECOND_MS, THIRD_MS = 10_000, 20_000, 30_000
EXPIRES_AT, EXPIRES_MS = "1970-01-01T00:05:00.000Z", 300_000
NONE_LEFT = msgspec.structs.replace(
    action(FIRST),
    expires_at=EXPIRES_AT,
    add_leader_throttled_replicas={},
    add_follower_throttled_replicas={},
    leader_rate_bytes_per_s={},
    follower_rate_bytes_per_s={},
)
"""A throttle that changes nothing, to be filled in."""


def published(time_ms: int, trigger: str, **fields: Any) -> Output:
    data = msgspec.structs.replace(NONE_LEFT, trigger=trigger, **fields)
    return output(
        kind="action",
        type_=THROTTLE_TYPE,
        subject="reassignments",
        cluster="east-1",
        number=time_ms // 10_000,
        place=0,
        time_ms=time_ms,
        data=data,
        dry_run=data.dry_run,
    )


def restored(*outputs: Output, **before: Any) -> KafkaMemory:
    memory = KafkaMemory(**before)
    restore(memory, outputs)
    return memory


BEGIN: dict[str, Any] = {
    "add_leader_throttled_replicas": {"t": "0:1,0:2"},
    "add_follower_throttled_replicas": {"t": "0:3"},
    "leader_rate_bytes_per_s": {"1": 24, "2": 24},
    "follower_rate_bytes_per_s": {"3": 24},
}
JOIN: dict[str, Any] = {
    "add_leader_throttled_replicas": {"t": "1:1", "u": "0:2"},
    "leader_rate_bytes_per_s": {"1": 50},
    "follower_rate_bytes_per_s": {"3": 60},
}
BEGUN = published(FIRST_MS, "first-throttle", **BEGIN)
JOINED = published(SECOND_MS, "moves-joined", **JOIN)
ALL_ADDED = ThrottledLists(leader={"t": "0:1,0:2,1:1", "u": "0:2"}, follower={"t": "0:3"})


def test_a_published_throttle_is_wanted_and_waits_for_its_result() -> None:
    lists = ThrottledLists(leader={"t": "0:1,0:2"}, follower={"t": "0:3"})
    wanted = ThrottleConfigs(lists, {1: 24, 2: 24}, {3: 24})
    found = restored(BEGUN)
    assert found.pacing == PacingMemory(
        begun_ms=FIRST_MS,
        changed_ms=FIRST_MS,
        added=lists,
        leader_rates={1: 24, 2: 24},
        follower_rates={3: 24},
        first_rate_bytes_per_s=24,
    )
    assert found.asked == Asked(BEGUN.id, EXPIRES_MS, wanted)
    assert found.attempted == wanted
    assert found.confirmed == ThrottleConfigs()
    assert not found.is_shadow


def test_a_later_throttle_adds_its_entries_and_has_all_the_rates_that_are_wanted() -> None:
    found = restored(BEGUN, JOINED)
    assert found.pacing == PacingMemory(
        begun_ms=FIRST_MS,
        changed_ms=SECOND_MS,
        added=ALL_ADDED,
        leader_rates={1: 50},
        follower_rates={3: 60},
        first_rate_bytes_per_s=24,
    )
    assert found.asked == Asked(JOINED.id, EXPIRES_MS, ThrottleConfigs(ALL_ADDED, {1: 50}, {3: 60}))


def test_whatever_one_of_them_set_may_be_on_the_cluster() -> None:
    found = restored(BEGUN, JOINED)
    assert found.attempted == ThrottleConfigs(ALL_ADDED, {1: 50, 2: 24}, {3: 60})


def test_entries_that_a_throttle_takes_off_are_not_wanted_any_more() -> None:
    left = published(
        SECOND_MS,
        "moves-left",
        remove_leader_throttled_replicas={"t": "0:2"},
        remove_follower_throttled_replicas={"t": "0:3"},
        leader_rate_bytes_per_s={"1": 24},
        clear_leader_rates=[2],
        clear_follower_rates=[3],
    )
    found = restored(BEGUN, left)
    assert found.pacing.added == ThrottledLists(leader={"t": "0:1"})
    assert (found.pacing.leader_rates, found.pacing.follower_rates) == ({1: 24}, {})
    assert found.asked is not None
    assert found.asked.wanted == ThrottleConfigs(ThrottledLists(leader={"t": "0:1"}), {1: 24}, {})


def test_after_the_throttle_that_ends_it_nothing_is_wanted_and_the_rest_may_still_be_there() -> None:
    finished = published(
        THIRD_MS,
        "finished",
        remove_leader_throttled_replicas={"t": "0:1,0:2"},
        remove_follower_throttled_replicas={"t": "0:3"},
        clear_leader_rates=[1, 2],
        clear_follower_rates=[3],
    )
    found = restored(BEGUN, finished)
    assert found.pacing == PacingMemory()
    assert found.asked == Asked(finished.id, EXPIRES_MS, ThrottleConfigs())
    lists = ThrottledLists(leader={"t": "0:1,0:2"}, follower={"t": "0:3"})
    assert found.attempted == ThrottleConfigs(lists, {1: 24, 2: 24}, {3: 24})
    again = restored(BEGUN, finished, published(40_000, "first-throttle", **BEGIN))
    assert again.pacing.begun_ms == 40_000, "another move begins anew"


def test_a_throttle_of_a_dry_run_is_wanted_and_nothing_of_it_is_on_the_cluster() -> None:
    found = restored(published(FIRST_MS, "first-throttle", **BEGIN, dry_run=True))
    assert found.is_shadow
    assert (found.asked, found.attempted) == (None, ThrottleConfigs())
    assert (found.pacing.leader_rates, found.pacing.follower_rates) == ({1: 24, 2: 24}, {3: 24})
    assert found.pacing.begun_ms == FIRST_MS


@pytest.mark.parametrize(
    ("triggers", "is_fallback"),
    [
        (["first-throttle"], False),
        (["first-throttle", "stale-reports"], True),
        (["first-throttle", "stale-reports", "reports-back"], False),
    ],
    ids=str,
)
def test_rates_for_the_worst_case_are_known_as_such(triggers: list[str], *, is_fallback: bool) -> None:
    outputs = [published(10_000 * at, trigger, **BEGIN) for at, trigger in enumerate(triggers)]
    assert restored(*outputs).pacing.is_fallback is is_fallback


def test_what_is_known_of_the_move_besides_the_throttle_stays() -> None:
    before = PacingMemory(
        begun_ms=5_000,
        safe_leader_mins={1: 7},
        stale_rounds=2,
        watch=Watch(begun_ms=5_000),
        leader_rates={9: 1},
    )
    found = restored(JOINED, pacing=before).pacing
    assert (found.begun_ms, found.safe_leader_mins, found.stale_rounds) == (5_000, {1: 7}, 2)
    assert found.watch == Watch(begun_ms=5_000)
    assert found.leader_rates == {1: 50}


def test_where_nothing_was_published_nothing_changes() -> None:
    assert restored() == KafkaMemory()


SHOWN = published(
    FIRST_MS,
    "first-throttle",
    add_follower_throttled_replicas={"t": "0:4"},
    follower_rate_bytes_per_s={"4": 9},
    dry_run=True,
)


def test_a_throttle_after_one_of_a_dry_run_begins_anew() -> None:
    """The dry-run's own was never on the cluster, whether or not it showed the end of it."""
    found = restored(SHOWN, published(SECOND_MS, "first-throttle", **BEGIN))
    lists = ThrottledLists(leader={"t": "0:1,0:2"}, follower={"t": "0:3"})
    assert (found.is_shadow, found.pacing.begun_ms) == (False, SECOND_MS)
    assert found.pacing.added == lists
    assert found.asked is not None
    assert found.asked.wanted.lists == lists


def test_after_a_dry_run_in_between_it_goes_on_from_what_was_really_decided() -> None:
    shown = published(SECOND_MS, "moves-joined", **JOIN | {"dry_run": True})
    joined = published(THIRD_MS, "moves-joined", **JOIN | {"add_leader_throttled_replicas": {"u": "0:2"}})
    found = restored(BEGUN, shown, joined)
    assert (found.is_shadow, found.pacing.begun_ms) == (False, FIRST_MS)
    assert found.pacing.added == ThrottledLists(leader={"t": "0:1,0:2", "u": "0:2"}, follower={"t": "0:3"})
