"""A reassignment on a real Kafka: collector, application and executor pace it to its end, and leave nothing behind."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.local.kafka import OLDEST_KAFKA_LOCK, LocalKafka
from policies.throttle.lists import ThrottledLists
from policies.throttle.rates import BrokerRole
from streaming.kafka.cluster import KafkaCluster
from streaming.kafka.throttles import Throttle, changes_of
from streaming.settings import KafkaTarget, load
from tests.streaming.http_broker import Answer, Asked, http_brokers
from tests.support.moving import CLUSTER, Moving, UsualFetches, pipeline, planned
from tests.support.processes import Patience, Warm, command
from tests.support.stage import Stage

pytestmark = pytest.mark.live

MB = 1_000_000
ASSIGNED = {0: (1, 2), 1: (2, 1)}
TARGET = {0: (1, 3), 1: (1, 3)}
"""Broker 1 is the first replica of both partitions, so that an election of preferred leaders makes it lead both."""
L2, F3 = BrokerRole("leader", 2), BrokerRole("follower", 3)
WRITES = 1 * MB
FILL = 30 * MB
DEADLINE_S = 80
"""Seconds. With so little to copy, long enough for a rate well below what is needed once one broker leads both partitions, also if
a busy machine lets the producers write less than they should."""
BUDGET_S = 480.0
"""Seconds for one move, however long Spark took before: it then fails with what it waits for, long before pytest's limit."""
TRAFFIC = 5 * MB
RULES = f"""
[kafka.rounds]
length_s = 6
lateness_s = 2

[kafka.throttle]
deadline_s = {DEADLINE_S}
min_change_interval_s = 600

[targets."{CLUSTER}".kafka]
"""
"""Changes that can wait are held for 600 s: all that is decided meanwhile is an answer to what happens in the test."""


@pytest.fixture(params=["4.3", pytest.param("3.9", marks=pytest.mark.slow)])
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, brokers: LocalKafka
) -> Iterator[LocalKafka]:
    """Brokers of each version that is tested."""
    if request.param == "4.3":
        yield brokers
        return
    with UsualFetches(tmp_path_factory.mktemp("oldest"), nodes=3, lock=OLDEST_KAFKA_LOCK) as running:
        yield running


@pytest.fixture
def moving(brokers: LocalKafka) -> Iterator[Moving]:
    made = Moving(brokers, ASSIGNED)
    yield made
    made.close()


@pytest.fixture
def metrics() -> Iterator[str]:
    """A metrics page of each broker, whose four counters grow by ``TRAFFIC`` a second each."""

    def page(_: Asked) -> Answer:
        names = (*KafkaTarget().received_metrics, *KafkaTarget().sent_metrics)
        return 200, {}, "".join(f"{name} {time.time() * TRAFFIC}\n" for name in names).encode()

    with http_brokers() as make:
        yield make(page).url


def summaries(stage: Stage) -> list[dict[str, Any]]:
    return stage.data(stage.topics.audit)


def actions(stage: Stage) -> list[dict[str, Any]]:
    return stage.data(stage.topics.actions)


@contextmanager
def told_of(stage: Stage) -> Iterator[None]:
    """Print what the service said of each round if the block fails."""
    try:
        yield
    except BaseException:
        keys = [
            "outcome",
            "trigger",
            "rates_bytes_per_s",
            "min_bytes_per_s",
            "bytes_left",
            "eta_s",
            "eta_basis",
        ]
        for message in summaries(stage):
            shown = [(message["throttle"] or {}).get(key) for key in keys]
            sys.stdout.write(f"{message['round']} {message['reason']} {shown}\n")
        raise


def decided(stage: Stage, trigger: str) -> list[dict[str, Any]]:
    return [each for each in actions(stage) if each["trigger"] == trigger]


def loads(stage: Stage) -> list[dict[str, Any]]:
    return stage.data(stage.topics.input, "kafka.load-report.v1")


def results(stage: Stage) -> list[dict[str, Any]]:
    return stage.data(stage.topics.input, "action-result.v1")


def by_hand(moving: Moving, rates: Mapping[BrokerRole, int | None]) -> None:
    """Set rates, or take them off, as an operator who knows nothing of trimtab."""
    KafkaCluster(moving.admin).apply(changes_of(moving.throttle(), ThrottledLists(), rates))


def test_a_running_move_is_paced_to_its_end(
    brokers: LocalKafka, moving: Moving, metrics: str, warm: Warm, tmp_path: Path
):
    stage = Stage(brokers.bootstrap, f"t-{moving.topic}", tmp_path)
    stage.create_topics()
    plan = tmp_path / "reassignment.json"
    target = (
        f'bootstrap = "{brokers.bootstrap}"\nplanned_file = "{plan}"\nmetrics_url = "{metrics}/{{broker}}"\n'
    )
    config = stage.settings(base=RULES + target)
    settings = load(file=config, flags={}, environ={}).settings
    with told_of(stage), warm.start("run", "--config", str(config), "--from", "earliest") as run:
        moving.fill(FILL)
        with ExitStack() as stack:
            stack.enter_context(pipeline(settings, cluster=CLUSTER))
            run.until(lambda: summaries(stage), "rounds, so that all else is prompt")
            awaited = partial(Patience(BUDGET_S).until, running=[run])
            stack.enter_context(moving.written(WRITES))
            planned(plan, moving.topic, TARGET)
            rate = _throttled_before_it_starts(stage, moving, awaited)
            moving.begin(TARGET)
            began_s = time.monotonic()
            _others_touch_the_throttle(stage, moving, awaited, rate=rate)
            assert moving.is_moving()
            earlier = len(decided(stage, "minimum-rose"))
            moving.admin.elect_leaders(0, {moving.topic: [1]})
            awaited(lambda: moving.leader(1) == 1, what="broker 1 to lead both")
            awaited(lambda: decided(stage, "minimum-rose")[earlier:], what="the rate to be raised")
            awaited(lambda: not moving.is_moving(), what="the end of the move")
            measured_s = time.monotonic() - began_s
            awaited(lambda: moving.throttle() == Throttle(), what="a cluster without a throttle")
            awaited(lambda: len(results(stage)) == len(actions(stage)), what="the last result")
        assert run.terminate() == 0

    predicted_s = actions(stage)[0]["eta_s"]
    sys.stdout.write(f"predicted {predicted_s:.1f} s, measured {measured_s:.1f} s\n")
    assert actions(stage)[-1]["trigger"] == "finished"
    assert decided(stage, "minimum-rose")[earlier]["leader_rate_bytes_per_s"]["1"] > rate
    assert measured_s >= 30
    assert 0.5 <= measured_s / predicted_s <= 2
    assert all(each["outcome"] == "succeeded" for each in results(stage)), results(stage)
    measured = [load["network"] for load in loads(stage) if load["network"]["in_bytes_per_s"] is not None]
    assert {load["broker"] for load in loads(stage) if load["network"] in measured} == {1, 2, 3}
    assert all(TRAFFIC < each["in_bytes_per_s"] < 4 * TRAFFIC for each in measured), "two counters"


def _throttled_before_it_starts(stage: Stage, moving: Moving, awaited: Callable[..., Any]) -> int:
    """Wait until the throttle is set; returns the one rate of all brokers."""
    awaited(
        lambda: any(each["outcome"] == "succeeded" for each in results(stage)), what="the throttle to be set"
    )
    first, set_ = actions(stage)[0], moving.throttle()
    assert first["trigger"] == "first-throttle"
    assert set_.lists.leader == first["add_leader_throttled_replicas"] == {moving.topic: "0:1,0:2,1:1,1:2"}
    assert set_.lists.follower == first["add_follower_throttled_replicas"] == {moving.topic: "0:3,1:3"}
    rate: int = first["leader_rate_bytes_per_s"]["1"]
    assert set(set_.rates_bytes_per_s.values()) == {rate}
    return rate


def _others_touch_the_throttle(
    stage: Stage, moving: Moving, awaited: Callable[..., Any], *, rate: int
) -> None:
    """A rate that is gone is set again; one that was changed is named and kept, and no other broker gets it."""
    changed = rate * 21 // 20
    by_hand(moving, {L2: None, F3: changed})
    awaited(
        lambda: any(
            (message["throttle"] or {}).get("changed_rates_bytes_per_s") == {str(L2): None, str(F3): changed}
            for message in summaries(stage)
        ),
        what="the rates of others to be named",
    )
    again = awaited(lambda: decided(stage, "throttle-lost"), what="the lost rate to be decided again")[0]
    assert again["leader_rate_bytes_per_s"]["2"] >= rate
    assert again["follower_rate_bytes_per_s"]["3"] >= changed
    awaited(lambda: L2 in moving.throttle().rates_bytes_per_s, what="the lost rate to be set again")
    assert moving.throttle().rates_bytes_per_s[F3] >= changed


@pytest.mark.slow
def test_a_rate_below_the_fan_out_minimum_is_refused(brokers: LocalKafka, moving: Moving, tmp_path: Path):
    awaited = Patience(BUDGET_S).until
    low = WRITES * 3 // 2
    path = tmp_path / "reassignment.json"
    planned(path, moving.topic, {0: TARGET[0]})
    moving.fill(20 * MB)
    with moving.written(WRITES):
        asked = ("throttle", "plan", "--bootstrap", brokers.bootstrap, "--input", str(path))
        refused = command(*asked, "--rate", str(low), "--interval", "8", "--apply", code=3)
        answer = json.loads(refused.stdout)
        minimum, usual = (answer[f"leader_min_{kind}bytes_per_s"]["1"] for kind in ("", "write_rate_"))
        assert minimum == 2 * usual, "the write rate times two followers"
        assert usual < low < minimum, "the usual rule takes it for enough"
        assert moving.throttle() == Throttle(), "what would never end is not set"

        lists = ThrottledLists(leader={moving.topic: "0:1,0:2"}, follower={moving.topic: "0:3"})
        rates = {BrokerRole("leader", 1): low, BrokerRole("leader", 2): low, BrokerRole("follower", 3): low}
        KafkaCluster(moving.admin).apply(changes_of(Throttle(), lists, rates))
        moving.begin({0: TARGET[0]})
        seen: list[int] = []
        began_s = time.monotonic()

        def grew() -> bool:
            """Whether the new replica falls behind, once the quota window's credit is spent."""
            seen.append(moving.left_bytes({0: TARGET[0]}))
            return time.monotonic() - began_s > 15 and seen[-1] > min(seen) + 2 * MB

        awaited(grew, what="the new replica to fall behind")
        assert moving.is_moving()
        moving.cancel()
        none = ThrottledLists(leader={moving.topic: ""}, follower={moving.topic: ""})
        KafkaCluster(moving.admin).apply(changes_of(moving.throttle(), none, dict.fromkeys(rates)))
