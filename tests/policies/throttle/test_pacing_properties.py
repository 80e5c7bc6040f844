"""What holds for pacing whatever happens: moves come and go, leaders move, traffic changes, reports are missing."""

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing_round import PacingMemory
from policies.throttle.rates import NO_CAPS, Caps, ThrottleSettings
from tests.policies.throttle.moving import MB, Partition
from tests.policies.throttle.test_pacing import ROUND_MS, Cluster

CAN_WAIT_MS = 60_000
AT_ONCE = {"first-throttle", "moves-joined", "minimum-rose", "stale-reports", "finished"}
PARTITIONS = [
    Partition("t-0", [1, 2], [2, 3], 4 * MB, 900 * MB),
    Partition("t-1", [2, 3], [3, 1], 2 * MB, 500 * MB),
    Partition("u-0", [3], [3, 1, 2], 1 * MB, 100 * MB),
    Partition("u-7", [1, 2, 3], [4, 2, 3], 3 * MB, 300 * MB),
]
THERE = ThrottledLists(leader={"t": "0:1,5:5"}, follower={"u": "*"})


@dataclass(frozen=True)
class Happening:
    """One round."""

    rows: tuple[Partition, ...]
    reported: bool
    caps: Caps


@st.composite
def happenings(draw: st.DrawFn) -> Happening:
    rows = []
    for one in draw(st.lists(st.sampled_from(PARTITIONS), unique_by=lambda row: row.name)):
        writes = draw(st.sampled_from([one.writes, one.writes, 0, 9 * MB, 40 * MB, None]))
        leader = draw(st.sampled_from([one.replicas[0], *one.replicas, -1]))
        rows.append(
            replace(one, writes=writes, leader=leader, size=draw(st.sampled_from([one.size, None, 0])))
        )
    cap = draw(st.sampled_from([None, None, 1, 5 * MB, 50 * MB, 500 * MB]))
    caps = NO_CAPS if cap is None else Caps(default_bytes_per_s=cap)
    return Happening(tuple(rows), draw(st.booleans() | st.just(True)), caps)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    rounds=st.lists(happenings(), max_size=25),
    rates=st.sampled_from(["uniform", "per-broker"]),
    deadline_s=st.sampled_from([0.0, 300.0]),
)
def test_whatever_happens(rounds: list[Happening], rates: str, deadline_s: float) -> None:
    cluster = Cluster(settings=ThrottleSettings(rates=rates, deadline_s=deadline_s), lists=THERE)  # type: ignore[arg-type]
    changed_ms = -CAN_WAIT_MS
    for now in rounds:
        before, lists = cluster.memory, cluster.lists
        decision = cluster.round(*now.rows, reported=now.reported, caps=now.caps, room=now.caps)
        explanation = cluster.explanation
        assert explanation is not None
        assert (decision is not None) == (explanation.outcome == "decided")
        if decision is None:
            assert (cluster.memory.added, cluster.memory.rates()) == (before.added, before.rates())
            continue
        assert decision.trigger in AT_ONCE or cluster.now_ms - changed_ms >= CAN_WAIT_MS
        assert decision.trigger == "finished" or decision.set_rates
        if decision.trigger not in {"finished", "moves-left"}:
            changed = decision.set_rates != before.rates() or decision.add != ThrottledLists()
            assert changed, "a decision that changes nothing"
        if decision.trigger in {"first-throttle", "minimum-rose"}:
            assert explanation.plan is not None
            assert explanation.needs is not None
            assert explanation.plan.feasible is (True if explanation.needs.is_whole else None)
        changed_ms = cluster.now_ms
        again = replace(cluster, now_ms=cluster.now_ms - ROUND_MS, memory=before, lists=lists)
        assert again.round(*now.rows, reported=now.reported, caps=now.caps, room=now.caps) == decision
    cluster.round()
    assert cluster.lists == THERE
    assert cluster.memory == PacingMemory()
