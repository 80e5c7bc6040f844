"""The live proof: three real processes beside a real cluster with real traffic, unbalanced at first.

Measured by the brokers' own reports, before and after.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.pulsar.http import AdminError
from tests.live.driving import Warm, until
from tests.live.pulsar.balancing import all_at_first, controller, rates, trio, unbalanced
from tests.live.pulsar.lab import Lab, change_events_hash
from tests.live.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.slow]

HOT_TOPICS = 6


def is_balanced(loads: Sequence[float], *, share: float = 0.5) -> bool:
    """Every broker carries some of it, none as much as ``share``."""
    return bool(loads) and min(loads) > 0 and max(loads) < share * sum(loads)


def went_astray(result: dict[str, object]) -> bool:
    """Whether Pulsar put the bundle at another broker than it was told to; it rests there until its cooldown is over."""
    return "it landed on" in str(result["reason"])


@pytest.mark.parametrize("policy", ["fleet-planner", "avg-shedder"])
def test_an_unbalanced_cluster_is_balanced_a_hot_bundle_is_cut_and_nothing_is_done_twice(
    any_pulsar: LocalPulsar, stage: Stage, warm: Warm, tmp_path: Path, policy: str
) -> None:
    pulsar = any_pulsar
    hot = Lab(pulsar, bundles_count=1)
    (bundle,) = hot.bundles()
    hot_topics = [hot.topic_in(bundle, number=number) for number in range(HOT_TOPICS)]
    with controller(pulsar, stage, warm, policy=policy) as running, unbalanced(pulsar) as lab:
        before = until(lambda: all_at_first(lab), what="traffic", running=[pulsar])
        with trio(lab, stage, running, tmp_path) as three:

            def balanced() -> list[float]:
                found = rates(lab, pulsar.broker_ids)
                astray = any(went_astray(result) for _, result in three.results())
                return found if is_balanced(found, share=0.6 if astray else 0.5) else []

            after = until(balanced, what="balance", running=three.alive)
            with hot.traffic(hot_topics):
                until(lambda: len(hot.bundles()) > 1, what="a cut", running=three.alive)
                three.wait_for_all_results()
        decided, results = three.actions(), three.results()
    assert max(after) / sum(after) < 0.6 * max(before) / sum(before), (
        "shares: a busy machine's traffic is not steady"
    )
    assert Counter(id_ for id_, _ in results) == dict.fromkeys(decided, 1), "each action has one result"
    done = {id_ for id_, result in results if result["outcome"] == "succeeded"}
    put_back = [str(result["reason"]) for id_, result in results if id_ not in done]
    assert all("still on" in reason for reason in put_back), "Pulsar may give it back"
    assert not any(result["was_done_before"] for _, result in results)
    targets = Counter(decided[id_]["bundle"] for id_ in done)
    assert set(targets.values()) == {1}, "no bundle is moved or cut twice"
    (cut,) = (each for each in decided.values() if each["type"].endswith("split.v1"))
    _assert_as_predicted(hot, cut)


def _assert_as_predicted(hot: Lab, cut: dict[str, object]) -> None:
    """The bundles are those of the decision, and the topics are where it predicted them."""
    children = cut["children"]
    assert isinstance(children, list)
    predicted = {f"{hot.namespace}/{each['range']}": each["topics_count"] for each in children}
    own = change_events_hash(hot.namespace)
    found = {
        str(bundle): len(hot.admin.topics(bundle)) + bundle.range.contains(own) for bundle in hot.bundles()
    }
    assert found == predicted
    assert sum(found.values()) == HOT_TOPICS + 1, "Pulsar's own topic of the namespace is one, too"


def test_a_broker_killed_in_the_middle_is_named_nothing_wrong_is_done_and_the_rest_is_balanced(
    any_pulsar: LocalPulsar, stage: Stage, warm: Warm, tmp_path: Path
) -> None:
    pulsar = any_pulsar
    with controller(pulsar, stage, warm) as running, unbalanced(pulsar) as lab:
        until(lambda: all_at_first(lab), what="traffic", running=[pulsar])
        with trio(lab, stage, running, tmp_path) as three:
            until(three.results, what="a first move", running=three.alive)
            killed = next(iter(three.actions().values()))["destination_broker"]
            left = [broker for broker in pulsar.broker_ids if broker != killed]
            pulsar.kill_broker(1 + pulsar.broker_ids.index(killed))
            try:

                def rest_balanced() -> bool:
                    found: list[float] = []
                    with suppress(AdminError):  # until its session ends, others may redirect to it
                        found = rates(lab, left)
                    return bool(found) and max(found) < 0.62 * sum(found)

                until(rest_balanced, what="balance of the rest", running=three.alive)
                three.wait_for_all_results()
                named = [tick["data"]["failed"].get(killed) for tick in three.input("trimtab.tick.v1")]
                rounds = three.rounds()
                decided, results = three.actions(), three.results()
            finally:
                pulsar.start_broker(1 + pulsar.broker_ids.index(killed))
    assert any("check admin_url" in reason for reason in named if reason), "the collector names it"
    assert named[-1] is None, "and asks it no more once Pulsar lists it no more"
    without = {each["round"] for each in rounds if killed not in each["brokers_reporting"]}
    assert without, "rounds went on without it"
    for id_, action in decided.items():
        brokers = {action["source_broker"], action["destination_broker"]}
        assert killed not in brokers or action["round"] not in without, (
            f"{id_} was decided about a dead broker"
        )
    assert Counter(id_ for id_, _ in results) == dict.fromkeys(decided, 1), "each action has one result"
    for id_, result in results:
        moved = decided[id_]
        if result["outcome"] != "succeeded":
            assert killed in (moved["source_broker"], moved["destination_broker"]), result
            assert result["reason"]
    assert set(Counter(each["bundle"] for each in decided.values()).values()) == {1}, "nothing is moved twice"
