"""What the shedding policies remember: by policy, field, and broker or group."""

from policies.shedding.registry import find_policy
from state.facts import Isolation
from state.pulsar import groups
from state.pulsar.groups import Groups

AVG, THRESHOLD = find_policy("avg-shedder"), find_policy("threshold-shedder")
assert AVG is not None
assert THRESHOLD is not None
ONE = Groups(())
BLUE = Groups((Isolation("blue", ["blue/.*"], ["b[12]"]),))
"""Brokers b1 and b2, and the others."""
HITS = {"avg-shedder": {"low_hits": {"b1": 1, "b2": 2, "b3": 3}, "high_hits": {"b3": 9}}}


def test_each_group_recalls_what_was_remembered_of_its_brokers() -> None:
    default, blue = groups.recall_policy(HITS, AVG, BLUE, [0, 1])
    assert (dict(default.low_hits), dict(default.high_hits)) == ({"b3": 3}, {"b3": 9})
    assert (dict(blue.low_hits), dict(blue.high_hits)) == ({"b1": 1, "b2": 2}, {})
    (whole,) = groups.recall_policy(HITS, AVG, ONE, [0])
    assert dict(whole.low_hits) == {"b1": 1, "b2": 2, "b3": 3}
    (nothing,) = groups.recall_policy({}, AVG, ONE, [0])
    assert nothing == AVG.memory()


def test_a_group_that_did_not_run_keeps_what_is_remembered_of_it() -> None:
    after = {1: AVG.memory(low_hits={"b1": 5}, high_hits={"b2": 1})}
    found = groups.remember_policy(HITS, AVG, BLUE, after)
    assert found == {"avg-shedder": {"low_hits": {"b3": 3, "b1": 5}, "high_hits": {"b3": 9, "b2": 1}}}


def test_without_groups_what_is_remembered_is_what_the_round_left() -> None:
    after = {0: AVG.memory(low_hits={"b1": 5}, high_hits={})}
    assert groups.remember_policy(HITS, AVG, ONE, after) == {
        "avg-shedder": {"low_hits": {"b1": 5}, "high_hits": {}}
    }


def test_only_the_policy_in_force_is_remembered() -> None:
    assert groups.keep_policy(HITS, AVG) == HITS
    assert groups.keep_policy(HITS, THRESHOLD) == {}


def test_every_broker_that_is_remembered_is_known_once_in_order() -> None:
    assert groups.remembered_brokers(HITS) == ["b1", "b2", "b3"]
    assert groups.remembered_brokers({}) == []
    assert groups.remembered_brokers({"gone-shedder": {"low_hits": {"b1": 1}}}) == [], (
        "of a policy that was removed"
    )


def test_brokers_that_are_gone_are_forgotten_everywhere() -> None:
    assert groups.keep_brokers(HITS, lambda name: name != "b3") == {
        "avg-shedder": {"low_hits": {"b1": 1, "b2": 2}, "high_hits": {}}
    }


def test_a_broker_that_changes_its_group_begins_anew() -> None:
    assert groups.forget_moved_brokers(HITS, ONE, BLUE) == {
        "avg-shedder": {"low_hits": {"b3": 3}, "high_hits": {"b3": 9}}
    }
    assert groups.forget_moved_brokers(HITS, BLUE, BLUE) == HITS


def test_a_group_that_is_gone_is_forgotten() -> None:
    (name,) = THRESHOLD.broker_fields[:1] or THRESHOLD.group_fields[:1]
    kept = {"threshold-shedder": {name: {"b1": 0.5, "b3": 0.7}}}
    found = groups.forget_moved_brokers(kept, BLUE, ONE)
    assert found == {"threshold-shedder": {name: {"b3": 0.7}}}
