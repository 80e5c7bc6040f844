"""A broker that comes back and moves between disks on a real Kafka: paced from the first byte to the end, and nothing is left behind."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.local.kafka import LocalKafka
from policies.throttle.lists import ThrottledLists
from policies.throttle.roles import BrokerRole
from streaming.kafka.client import Unanswered
from streaming.kafka.lags import Lags
from streaming.kafka.throttles import Throttle, changes_of
from streaming.settings import load
from tests.support.moving import BROKERS, CLUSTER, RECORD_BYTES, Moving, TwoDisks, collecting, pipeline
from tests.support.processes import TRIMTAB, Child, Patience, Warm, until
from tests.support.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1200)]

MB = 1_000_000
ASSIGNED = {0: (1, 2, 3), 1: (2, 1, 3), 2: (1, 3, 2), 3: (2, 3, 1)}
WRITES = MB // 10
RATE = 3 * MB // 2
"""Followers get a little less than their rate, because they wait whenever they are held back. So it is far above the minimum."""
AWAY_S = 60.0
MISSED_BYTES = 40 * MB
SETTLED_S, SPAN_S = 15.0, 30.0
WINDOW_S = 11.0
"""Kafka's quota window: what it allows passes at once, and again when that has left the window. So a span may hold a window's worth
more than its length says; over all of the recovery that hardly counts."""
BUDGET_S = 600.0
RULES = f"""
[kafka.rounds]
length_s = 6
lateness_s = 2

[kafka.throttle]
floor_bytes_per_s = {RATE}
min_change_interval_s = 12
recovery_after_s = 10
recovery_min_bytes = {MB}

[kafka.capacity]
disk_bytes_per_s = {2 * MB}

[targets."{CLUSTER}".kafka]
"""


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoDisks]:
    with TwoDisks(tmp_path_factory.mktemp("two-disks"), nodes=3) as running:
        yield running


@pytest.fixture
def moving(disks: TwoDisks) -> Iterator[Moving]:
    made = Moving(disks, ASSIGNED)
    yield made
    made.connect()
    made.close()


@pytest.fixture
def stage(kafka: LocalKafka, disks: TwoDisks, moving: Moving, tmp_path: Path) -> Stage:
    """Trimtab's own topics are on another cluster, which loses no broker."""
    made = Stage(kafka.bootstrap, f"t-{moving.topic}", tmp_path)
    made.create_topics()
    made.settings(base=f'{RULES}bootstrap = "{disks.bootstrap}"\n')
    return made


@pytest.fixture
def config(stage: Stage) -> Path:
    return stage.directory / "trimtab.toml"


def actions(stage: Stage) -> list[dict[str, Any]]:
    return stage.data(stage.topics.actions)


def rate_of(stage: Stage, role: str, broker: int) -> int | None:
    """The newest rate that was decided for a role."""
    rates = [action[f"{role}_rate_bytes_per_s"].get(str(broker)) for action in actions(stage)]
    return next((rate for rate in reversed(rates) if rate), None)


def foretold_s(stage: Stage, began_unix_s: float) -> float:
    """The end, in seconds since then, as the first round foretold it that could."""
    for message in stage.data(stage.topics.audit):
        throttle = message["throttle"] or {}
        if throttle.get("eta_s") and not throttle["planned"]:
            at_s = datetime.fromisoformat(throttle["as_of"]).timestamp() - began_unix_s
            if at_s >= 0:
                return float(at_s + throttle["eta_s"])
    raise AssertionError("no round foretold the end")


def by_hand(
    moving: Moving, rates: Mapping[BrokerRole, int | None], lists: ThrottledLists | None = None
) -> None:
    """Set rates and lists, or take rates off, as an operator who knows nothing of trimtab."""
    moving.cluster.apply(changes_of(moving.throttle(), lists or ThrottledLists(), rates))


def ends_of(moving: Moving, broker: int) -> int | None:
    """Records in a broker's own logs of the topic, all together; None while it does not tell all of them."""
    where = [(moving.topic, number) for number in ASSIGNED]
    ends = moving.cluster.replica_end_offsets(broker, where)
    return sum(ends.values()) if len(ends) == len(where) else None


def record_bytes(moving: Moving) -> float:
    """Mean size of a record of the topic."""
    leaders = {where: state.leader for where, state in moving.cluster.partitions([moving.topic]).items()}
    lags = Lags.read(moving.cluster, leaders, counted=list(leaders), behind={})
    sizes = moving.cluster.log_sizes(list(leaders), BROKERS).sizes_bytes
    size = sum(sizes[where][leader] for where, leader in leaders.items())
    return size / sum(lags.ends[where] - lags.starts[where] for where in leaders)


def test_a_broker_that_comes_back_is_held_from_its_first_fetch_to_its_last(
    disks: TwoDisks, moving: Moving, stage: Stage, config: Path, warm: Warm
):
    settings = load(file=config, flags={}, environ={}).settings
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        awaited = partial(Patience(BUDGET_S).until, running=[run])
        with ExitStack() as stack:
            stack.enter_context(moving.written(WRITES))
            stack.enter_context(pipeline(settings, cluster=CLUSTER))
            awaited(lambda: stage.data(stage.topics.audit), what="a round")
            stopped_s = moving.miss(3, MISSED_BYTES)
            moving.fill(MISSED_BYTES // 2, record_bytes=RECORD_BYTES, only=(0,))  # in sync after the others
            awaited(lambda: rate_of(stage, "leader", 1), what="the leaders' side, before the broker is back")
            awaited(lambda: time.monotonic() - stopped_s > AWAY_S, what="the broker to have missed enough")
            before = moving.cluster.throttle(topics=[moving.topic], brokers=[1, 2]).throttle
            assert len(before.rates_bytes_per_s) == 2
            assert before.lists.follower == {moving.topic: "0:3,1:3,2:3,3:3"}

            disks.start_node(3)
            moving.connect()
            began_s, began_unix_s, seen = time.monotonic(), time.time(), list[tuple[float, int]]()

            def caught_up() -> bool:
                """Whether the replicas of broker 3 are in sync; notes how far it is."""
                try:
                    states = moving.cluster.partitions([moving.topic])
                    ends = ends_of(moving, 3)
                    seen.extend([] if ends is None else [(time.monotonic() - began_s, ends)])
                except Unanswered:
                    moving.connect()
                    return False
                return all(3 in state.in_sync for state in states.values())

            awaited(caught_up, what="broker 3 to be in sync")
            measured_s = time.monotonic() - began_s
            awaited(lambda: actions(stage)[-1]["trigger"] == "finished", what="the end of the throttle")
            moving.connect()
            awaited(lambda: moving.throttle() == Throttle(), what="a cluster without a throttle")
        assert run.terminate() == 0
    foretold = foretold_s(stage, began_unix_s)
    bytes_each = record_bytes(moving)
    settled = [each for each in seen if each[0] > SETTLED_S]
    fastest = max(
        (end - start) * bytes_each / (end_s - start_s)
        for start_s, start in settled
        for end_s, end in settled
        if end_s - start_s >= SPAN_S
    )
    mean = (settled[-1][1] - settled[0][1]) * bytes_each / (settled[-1][0] - settled[0][0])
    rate = rate_of(stage, "follower", 3)
    first = settled[0][1] - seen[0][1]
    sys.stdout.write(
        f"foretold {foretold:.0f} s, measured {measured_s:.0f} s; rate {rate}, mean {mean:.0f}, fastest {fastest:.0f} bytes/s, "
        f"{first * bytes_each / MB:.1f} MB in the first {SETTLED_S:.0f} s\n"
    )
    assert rate is not None
    assert mean <= 1.1 * rate
    assert fastest <= (1 + WINDOW_S / SPAN_S) * rate
    assert 1 / 1.5 <= measured_s / foretold <= 1.5
    assert any(action["remove_follower_throttled_replicas"] for action in actions(stage)[:-1])
    results = stage.data(stage.topics.input, "action-result.v1")
    assert all(result["outcome"] == "succeeded" for result in results), results


def test_a_move_between_disks_is_paced_and_the_rate_before_it_comes_back(
    moving: Moving, stage: Stage, config: Path, warm: Warm
):
    settings = load(file=config, flags={}, environ={}).settings
    moving.fill(30 * MB)
    disk, where = BrokerRole("disk", 1), (moving.topic, 0)
    logs = moving.cluster.log_sizes([where], [1])
    (other,) = set(logs.directories[1]) - {logs.directory_of[where][1]}
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        awaited = partial(Patience(BUDGET_S).until, running=[run])
        with moving.written(WRITES), pipeline(settings, cluster=CLUSTER):
            awaited(lambda: stage.data(stage.topics.audit), what="a round")
            by_hand(moving, {disk: 500_000})
            moving.admin.alter_replica_log_dirs({(*where, 1): other})
            awaited(lambda: rate_of(stage, "disk", 1) == 2 * MB, what="its rate to be decided")
            awaited(lambda: moving.throttle().rates_bytes_per_s == {disk: 2 * MB}, what="its rate to be set")
            awaited(
                lambda: moving.cluster.log_sizes([where], [1]).directory_of[where][1] == other,
                what="the replica in its new directory",
            )
            awaited(lambda: actions(stage)[-1]["trigger"] == "finished", what="the end of the throttle")
            awaited(
                lambda: moving.throttle().rates_bytes_per_s == {disk: 500_000}, what="the rate from before"
            )
        assert run.terminate() == 0
    by_hand(moving, {disk: None})
    until(lambda: moving.throttle() == Throttle(), what="a broker without a rate")
    assert actions(stage)[0]["copies"] == {"disk": 1}


def started(program: str, config: Path) -> Child:
    """The controller or the executor, as a process of its own."""
    words = {"run": ("run",), "execute": ("execute", "kafka", CLUSTER)}[program]
    return Child((*TRIMTAB, *words, "--config", str(config)), config.with_name(f"{program}.log"))


def in_sync(moving: Moving) -> bool:
    """Whether all replicas are; a broker that comes back may not be reached at once."""
    try:
        return all(
            len(state.in_sync) == len(state.replicas)
            for state in moving.cluster.partitions([moving.topic]).values()
        )
    except Unanswered:
        moving.connect()
        return False


def test_controller_and_executor_killed_in_the_middle_of_a_recovery_lose_no_throttle_and_leave_none(
    disks: TwoDisks, moving: Moving, stage: Stage, config: Path
):
    settings = load(file=config, flags={}, environ={}).settings
    awaited = Patience(BUDGET_S).until
    with ExitStack() as stack:
        stack.enter_context(moving.written(WRITES))
        stack.enter_context(collecting(settings, cluster=CLUSTER))
        first = [stack.enter_context(started(program, config)) for program in ("run", "execute")]
        awaited(lambda: stage.data(stage.topics.audit), what="a round", running=first)
        stopped_s = moving.miss(3, MISSED_BYTES)
        awaited(lambda: rate_of(stage, "leader", 1), what="the leaders' side", running=first)
        awaited(lambda: time.monotonic() - stopped_s > AWAY_S, what="the broker to have missed enough")
        disks.start_node(3)
        moving.connect()
        awaited(
            lambda: rate_of(stage, "follower", 3), what="the rate of the broker that is back", running=first
        )
        awaited(lambda: BrokerRole("follower", 3) in moving.throttle().rates_bytes_per_s, what="it to be set")
        for each in first:
            each.close()
        there = moving.throttle()
        assert not in_sync(moving), "it is in the middle"

        second = [stack.enter_context(started(program, config)) for program in ("run", "execute")]
        assert moving.throttle() == there, "it holds while nobody is there"
        awaited(lambda: in_sync(moving), what="broker 3 to be in sync", running=second)
        awaited(lambda: moving.throttle() == Throttle(), what="a cluster without a throttle", running=second)
    outcomes = {result["outcome"] for result in stage.data(stage.topics.input, "action-result.v1")}
    assert outcomes <= {"succeeded", "skipped"}


def test_a_recovery_a_reassignment_and_a_move_between_disks_at_once_share_one_plan(
    disks: TwoDisks, moving: Moving, stage: Stage, config: Path, warm: Warm
):
    settings = load(file=config, flags={}, environ={}).settings
    other = Moving(disks, {0: (1, 2)})
    other.fill(60 * MB)
    moving.fill(30 * MB, record_bytes=RECORD_BYTES)
    listed = ThrottledLists(leader={other.topic: "0:1"})
    disk, where = BrokerRole("disk", 1), (moving.topic, 0)
    logs = moving.cluster.log_sizes([where], [1])
    (path,) = set(logs.directories[1]) - {logs.directory_of[where][1]}
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        awaited = partial(Patience(BUDGET_S).until, running=[run])
        with moving.written(WRITES), other.written(WRITES), pipeline(settings, cluster=CLUSTER):
            awaited(lambda: stage.data(stage.topics.audit), what="a round")
            stopped_s = moving.miss(3, MISSED_BYTES)
            awaited(lambda: rate_of(stage, "leader", 1), what="the leaders' side")
            awaited(lambda: time.monotonic() - stopped_s > AWAY_S, what="the broker to have missed enough")
            by_hand(moving, {disk: 500_000})
            by_hand(other, {}, listed)  # it has its leader's rate from its first byte
            disks.start_node(3)
            for each in (moving, other):
                each.connect()
            moving.admin.alter_replica_log_dirs({(*where, 1): path})
            other.begin({0: (1, 3)})
            kinds = {"recovery", "reassignment", "disk"}
            awaited(
                lambda: [action for action in actions(stage) if kinds <= action["copies"].keys()],
                what="one action for all kinds",
            )
            awaited(lambda: in_sync(moving) and not other.is_moving(), what="all replicas to be in sync")
            awaited(
                lambda: moving.cluster.log_sizes([where], [1]).directory_of[where][1] == path,
                what="the replica in its new directory",
            )
            awaited(
                lambda: (
                    moving.throttle() == Throttle(rates_bytes_per_s={disk: 500_000})
                    and other.throttle().lists == listed
                ),
                what="the throttle from before",
            )
        assert run.terminate() == 0
    by_hand(moving, {disk: None})
    other.close()
    last = [action for action in actions(stage) if kinds <= action["copies"].keys()][-1]
    assert last["follower_rate_bytes_per_s"]["3"] >= RATE > 5 * WRITES, (
        "one rate for all that broker 3 receives"
    )
    assert WRITES < last["disk_rate_bytes_per_s"]["1"] <= 2 * MB
    results = stage.data(stage.topics.input, "action-result.v1")
    assert all(result["outcome"] == "succeeded" for result in results), results
