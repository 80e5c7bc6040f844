"""What holds for every reassignment; Hypothesis looks for a counterexample."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.throttle.batches import batches_of
from policies.throttle.copies import Copies
from policies.throttle.lists import lists_of
from policies.throttle.needs import known_needs_of, needs_of
from policies.throttle.rates import Caps, RateRule, least_time_s, loads_of, per_broker_plan, uniform_plan
from policies.throttle.roles import of_role
from tests.policies.throttle.moving import Partition, read

CHECKED = settings(max_examples=30, deadline=None, derandomize=True)
AMOUNTS = st.one_of(st.none(), st.integers(0, 50), st.integers(0, 2**63 - 1))
BROKERS = st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True)


@st.composite
def partitions(draw: st.DrawFn, amounts: st.SearchStrategy[int | None] = AMOUNTS) -> list[Partition]:
    names = draw(
        st.lists(
            st.sampled_from([f"{topic}-{n}" for topic in ("a", "b", "a-b") for n in (0, 2, 10)]), unique=True
        )
    )
    found = []
    for name in names:
        replicas = draw(BROKERS)
        found.append(
            Partition(
                name,
                replicas,
                draw(BROKERS),
                draw(amounts),
                draw(amounts),
                leader=draw(st.sampled_from([*replicas, -1])),
                isr=draw(st.lists(st.integers(0, 7), unique=True)),
                present=draw(st.dictionaries(st.integers(0, 7), st.integers(0, 60))),
            )
        )
    return found


def everything(rows: list[Partition], rule: RateRule) -> object:
    """All results for these rows, comparable."""
    reassignment = read(*rows)
    copies = reassignment.copies
    needs = needs_of(copies)
    loads = loads_of(needs, known_needs_of(copies))
    return (
        copies.names(),
        copies.fingerprint(),
        reassignment.without_data_movement,
        lists_of(copies),
        needs,
        uniform_plan(loads, rule),
        per_broker_plan(loads, rule),
    )


def dumb_minimums(rows: list[Partition]) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Leader, follower and failover-safe minimum, partition by partition; every rate known.

    Nothing is written to a partition without a leader.
    """
    leader: dict[int, int] = {}
    follower: dict[int, int] = {}
    safe: dict[int, int] = {}
    for row in rows:
        added = set(row.target) - set(row.replicas)
        if not added:
            continue
        is_led = row.leader is not None and row.leader >= 0
        writes = (row.writes or 0) if is_led else 0
        need = (row.writes or 0) * (len(set(row.replicas) | added) - 1)
        if is_led:
            leader[row.leader] = leader.get(row.leader, 0) + need
        for broker in added:
            follower[broker] = follower.get(broker, 0) + writes
        for broker in row.replicas:
            safe[broker] = safe.get(broker, 0) + need
    return leader, follower, safe


@CHECKED
@given(rows=partitions(), data=st.data())
def test_nothing_depends_on_the_order_of_partitions_or_replicas(
    rows: list[Partition], data: st.DataObject
) -> None:
    shuffled = [
        Partition(
            row.name,
            data.draw(st.permutations(row.replicas)),
            data.draw(st.permutations(row.target)),
            row.writes,
            row.size,
            leader=row.leader,
            isr=data.draw(st.permutations(row.isr)),
            present=dict(reversed(list(row.present.items()))),
        )
        for row in data.draw(st.permutations(rows))
    ]
    rule = RateRule(deadline_s=Fraction(7))
    assert everything(shuffled, rule) == everything(rows, rule)


@CHECKED
@given(rows=partitions(st.integers(0, 2**63 - 1)))
def test_minimums_are_those_of_adding_up_partition_by_partition(rows: list[Partition]) -> None:
    needs = needs_of(read(*rows).copies)
    found = (
        of_role(needs.min_bytes_per_s, "leader"),
        of_role(needs.min_bytes_per_s, "follower"),
        of_role(needs.failover_safe_min_bytes_per_s, "leader"),
    )
    assert found == dumb_minimums(rows)


@CHECKED
@given(rows=partitions())
def test_the_failover_safe_minimum_is_never_below_the_minimum(rows: list[Partition]) -> None:
    copies = read(*rows).copies
    needs = needs_of(copies)
    for role, minimum in needs.min_bytes_per_s.items():
        safe = needs.failover_safe_min_bytes_per_s.get(role)
        if minimum is not None and safe is not None:
            assert safe >= minimum


@CHECKED
@given(rows=partitions(st.integers(1, 2**40)), fourth=st.integers(8, 9))
def test_another_follower_raises_the_minimum_of_its_leader(rows: list[Partition], fourth: int) -> None:
    more = [
        Partition(
            row.name, [*row.replicas, fourth], [*row.target, fourth], row.writes, row.size, leader=row.leader
        )
        for row in rows
    ]
    before, after = needs_of(read(*rows).copies), needs_of(read(*more).copies)
    for broker, minimum in of_role(before.min_bytes_per_s, "leader").items():
        assert minimum is not None
        assert (of_role(after.min_bytes_per_s, "leader")[broker] or 0) > minimum
    assert of_role(after.min_bytes_per_s, "follower") == of_role(before.min_bytes_per_s, "follower")


@CHECKED
@given(
    rows=partitions(),
    headroom=st.fractions(0, 2),
    floor=st.integers(1, 2**40),
    deadline=st.none() | st.fractions(Fraction(1, 10), 10**6),
)
def test_without_a_cap_rates_are_whole_and_what_is_known_and_has_headroom_is_feasible(
    rows: list[Partition], headroom: Fraction, floor: int, deadline: Fraction | None
) -> None:
    rule = RateRule(headroom_ratio=headroom, floor_bytes_per_s=floor, deadline_s=deadline)
    copies = read(*rows).copies
    loads = loads_of(needs_of(copies), known_needs_of(copies))
    for plan in (uniform_plan(loads, rule).plan, per_broker_plan(loads, rule)):
        assert all(rate is None or (type(rate) is int and rate >= floor) for rate in plan.rates.values())
        if headroom > 0:
            has_minimums = all(load.min_bytes_per_s is not None for load in loads)
            assert plan.feasible is (True if has_minimums else None)
            least_s = least_time_s(plan.rates, loads)
            if deadline is not None and least_s is not None:
                assert least_s <= float(deadline) * (1 + 1e-12)


def in_order(copies: Copies) -> list[tuple[str, int]]:
    return list(
        zip([copies.topics[place] for place in copies.topic.tolist()], copies.partition.tolist(), strict=True)
    )


@CHECKED
@given(rows=partitions(st.integers(0, 100)), data=st.data())
def test_batches_hold_every_move_once_and_each_fits_under_the_cap_or_is_alone(
    rows: list[Partition], data: st.DataObject
) -> None:
    copies = read(*rows).copies
    cap = data.draw(st.integers(1, 400))
    found = batches_of(copies, RateRule(floor_bytes_per_s=1, caps=Caps(default_bytes_per_s=cap)), count=None)
    assert sorted(name for batch in found.batches for name in in_order(batch.copies)) == in_order(copies)
    for batch in found.batches:
        assert len(batch.copies) == 1 or batch.plan.plan.feasible
    if len(copies):
        count = data.draw(st.integers(1, len(copies)))
        counted = batches_of(copies, RateRule(), count=count)
        assert len(counted.batches) == count
        assert sorted(name for batch in counted.batches for name in in_order(batch.copies)) == in_order(
            copies
        )
