"""Splitting: the criteria over many bundles, and each algorithm on one bundle of many topics."""

import numpy as np

from policies.splitting.algorithms import ALGORITHMS, divide
from policies.splitting.criteria import split
from policies.splitting.cut import MIB, SplitQuestion, topic_loads
from policies.splitting.plan import SplitMemory, SplitSettings, SplitSnapshot, TopicTable
from policies.splitting.ranges import positions_of
from tests.bench.report import Row, Section, best_cpu_s
from tests.policies.splitting.bundles import FULL_RANGE

_SMALL, _LARGE = 10_000, 100_000
_LIMITS_CARRIED = 3.0
"""How many times its limits the bundle of many topics carries."""
_SHARES = (0.0, 0.01)
"""Share of the bundles above a limit."""
_TOPICS_COUNT = 20
_POSITIONS_COUNT = 1_000_000


def measure_splits(*, quick: bool) -> Section:
    """Criteria, algorithms, positions, and how each grows tenfold."""
    times = 3 if quick else 20
    rows = []
    for share in _SHARES:
        found = {count: _criteria_ms(count, share, times=times) for count in (_SMALL, _LARGE)}
        title = f"criteria, {share:.0%} above a limit"
        rows.append(Row(f"{title}, {_LARGE:,} bundles", found[_LARGE], "ms", at_most=10.0))
        rows.append(Row(f"{title}: {_LARGE:,} ÷ {_SMALL:,}", found[_LARGE] / found[_SMALL], "x"))
    for algorithm in ALGORITHMS:
        found = {count: _algorithm_ms(algorithm, count, times=times) for count in (_SMALL, _LARGE)}
        limit = 100.0 if algorithm == "balanced_flow_divide" else None
        rows.append(Row(f"{algorithm}, {_LARGE:,} topics", found[_LARGE], "ms", at_most=limit))
        rows.append(Row(f"{algorithm}: {_LARGE:,} ÷ {_SMALL:,}", found[_LARGE] / found[_SMALL], "x"))
    rows.append(Row(f"positions of {_POSITIONS_COUNT:,} names", _positions_s(), "s", at_most=1.0))
    return Section(
        title="Splits",
        method=f"Topics with log-normal load, together {_LIMITS_CARRIED:g} times what a bundle may carry; criteria over bundles of "
        f"{_TOPICS_COUNT} topics, ten of them cut. CPU time of one call, the best of {times}.",
        rows=rows,
    )


def _criteria_ms(bundles_count: int, share: float, *, times: int) -> float:
    snapshot = _snapshot(bundles_count, share)
    settings = SplitSettings(max_namespace_bundles_count=0)
    memory = SplitMemory(hits=np.full(bundles_count, settings.hit_count))
    if share:
        assert split(snapshot, memory, settings)[0].decisions, "nothing is split: it measures too little"
    return 1000 * best_cpu_s(lambda: split(snapshot, memory, settings), times=times)


def _snapshot(bundles_count: int, share: float) -> SplitSnapshot:
    draw = np.random.default_rng(1)
    topic_rates = draw.uniform(0.5, 1.5, (bundles_count, _TOPICS_COUNT)) * 1000.0
    topic_rates[draw.permutation(bundles_count)[: round(share * bundles_count)]] *= 2.0
    edges = np.arange(bundles_count + 1) * _TOPICS_COUNT
    table = TopicTable(
        names=[f"t{row}" for row in range(bundles_count * _TOPICS_COUNT)],
        messages_per_s=topic_rates.ravel(),
        bytes_per_s=topic_rates.ravel(),
        sessions=np.zeros(bundles_count * _TOPICS_COUNT, dtype=np.int64),
        starts=edges[:-1],
        ends=edges[1:],
    )
    return SplitSnapshot(
        names=[f"t/n{row}/0x00000000_0xffffffff" for row in range(bundles_count)],
        namespaces=np.arange(bundles_count),
        namespace_bundle_counts=np.ones(bundles_count, dtype=np.int64),
        topic_counts=np.full(bundles_count, _TOPICS_COUNT),
        session_counts=np.full(bundles_count, 50),
        messages_per_s=topic_rates.sum(axis=1),
        bytes_per_s=topic_rates.sum(axis=1),
        may_split=np.ones(bundles_count, dtype=np.bool_),
        waits=np.zeros(bundles_count, dtype=np.bool_),
        decided_count=0,
        has_topic_stats=np.ones(bundles_count, dtype=np.bool_),
        topic_table=table,
    )


def _algorithm_ms(algorithm: str, topics_count: int, *, times: int) -> float:
    draw = np.random.default_rng(1)
    names = [f"persistent://tenant/namespace/topic-{row}" for row in range(topics_count)]
    load = draw.lognormal(0.0, 1.0, (2, topics_count))
    load *= _LIMITS_CARRIED / load.sum(axis=1, keepdims=True)
    topics = topic_loads(
        names, positions=positions_of(names), messages_per_s=load[0] * 30000, bytes_per_s=load[1] * 100 * MIB
    )
    question = SplitQuestion(range=FULL_RANGE, topics=topics, positions=(1 << 30, 1 << 31))
    return 1000 * best_cpu_s(lambda: divide(algorithm, question), times=times)


def _positions_s() -> float:
    names = [f"persistent://tenant/namespace/topic-{row}-partition-0" for row in range(_POSITIONS_COUNT)]
    return best_cpu_s(lambda: positions_of(names), times=3)
