"""Throttling: the plan of many moving partitions, a round of pacing them, and the command from file to JSON."""

import json
from functools import partial

import msgspec
import numpy as np

from policies.throttle.batches import batches_of
from policies.throttle.lists import lists_of
from policies.throttle.moves import MoveColumns, Moves, read_moves
from policies.throttle.needs import needs_of
from policies.throttle.pacing import decide
from policies.throttle.pacing_round import PacingMemory, PacingSnapshot
from policies.throttle.rates import RateRule, ThrottleSettings, loads_of, per_broker_plan, uniform_plan
from streaming.planner.throttle_plan import answer_of, make_plan
from streaming.planner.throttle_request import checked_request, read_request
from tests.bench.report import Limit, Row, Section
from tests.bench.timing import best_cpu_s

_SMALL, _LARGE = 10_000, 100_000
_BROKERS_COUNT = 1000
_PARTITIONS_OF_A_TOPIC = 50
_BATCHES_COUNT = 10
_ROUND_MS = 10_000
_LIMIT_S = 1.0


def measure_throttles(*, quick: bool) -> Section:
    """Plan, its parts, pacing, batches, reading and writing JSON, and how the plan grows tenfold."""
    times = 1 if quick else 5
    plans = {count: best_cpu_s(partial(_plan, _columns(count)), times=times) for count in (_SMALL, _LARGE)}
    columns = _columns(_LARGE)
    moves = read_moves(columns).moves
    text = _request(columns)
    request = read_request(text)
    plan = make_plan(checked_request(request), RateRule())
    answer = msgspec.to_builtins(answer_of(plan))
    memory = _first_round(moves)
    rows = [
        Row(name=f"plan, {_LARGE:,} partitions", value=plans[_LARGE], unit="s", limit=Limit(value=_LIMIT_S)),
        Row(name=f"plan, {_SMALL:,} partitions", value=plans[_SMALL], unit="s"),
        Row(name=f"plan: {_LARGE:,} ÷ {_SMALL:,}", value=plans[_LARGE] / plans[_SMALL], unit="x"),
        Row(
            name=f"a round of pacing in which nothing changes, {_LARGE:,} partitions",
            value=best_cpu_s(lambda: _round(moves, memory), times=times),
            unit="s",
            limit=Limit(value=_LIMIT_S),
        ),
        Row(
            name=f"{_BATCHES_COUNT} batches of {_LARGE:,} partitions",
            value=best_cpu_s(lambda: batches_of(moves, RateRule(), count=_BATCHES_COUNT), times=1),
            unit="s",
        ),
        Row(
            name=f"command: reading {len(text) / 1e6:.0f} MB of JSON",
            value=best_cpu_s(lambda: read_request(text), times=times),
            unit="s",
        ),
        Row(
            name="command: planning what was read, its answer included",
            value=best_cpu_s(lambda: answer_of(make_plan(checked_request(request), RateRule())), times=times),
            unit="s",
            limit=Limit(value=_LIMIT_S),
        ),
        Row(
            name="command: writing the answer as JSON",
            value=best_cpu_s(lambda: json.dumps(answer), times=times),
            unit="s",
        ),
    ]
    return Section(
        title="Throttles",
        method=f"Partitions of {_PARTITIONS_OF_A_TOPIC} to a topic with three replicas on {_BROKERS_COUNT:,} brokers, one of them "
        "moving to another broker. A plan is lists, needs, both kinds of rates, durations and fingerprint, from Python's "
        f"own lists of numbers. CPU time of one call, the best of {times}.",
        rows=rows,
    )


def _columns(count: int) -> MoveColumns:
    draw = np.random.default_rng(1)
    # three different brokers and a fourth as destination: a random start and steps that do not meet
    first = draw.integers(0, _BROKERS_COUNT, count)
    brokers = (first[:, None] + np.array([0, 7, 19, 53])) % _BROKERS_COUNT
    return MoveColumns(
        topics=[f"topic-{row // _PARTITIONS_OF_A_TOPIC}" for row in range(count)],
        partitions=[row % _PARTITIONS_OF_A_TOPIC for row in range(count)],
        current=brokers[:, :3].tolist(),
        adding=[()] * count,
        target=brokers[:, 1:].tolist(),
        leaders=brokers[:, 0].tolist(),
        write_bytes_per_s=draw.integers(0, 10**7, count).tolist(),
        log_size_bytes=draw.integers(0, 10**11, count).tolist(),
    )


def _plan(columns: MoveColumns) -> None:
    moves = read_moves(columns).moves
    assert lists_of(moves).leader, "nothing moves: it measures too little"
    loads = loads_of(needs_of(moves))
    uniform_plan(loads, RateRule())
    per_broker_plan(loads, RateRule())
    moves.fingerprint()


def _first_round(moves: Moves) -> PacingMemory:
    decision, memory, _ = decide(
        PacingSnapshot(now_ms=_ROUND_MS, moves=moves), PacingMemory(), ThrottleSettings()
    )
    assert decision is not None
    return memory


def _round(moves: Moves, memory: PacingMemory) -> None:
    snapshot = PacingSnapshot(now_ms=2 * _ROUND_MS, moves=moves, lists=memory.added)
    decision, _, explanation = decide(snapshot, memory, ThrottleSettings())
    assert (decision, explanation.outcome) == (None, "kept")


def _request(columns: MoveColumns) -> bytes:
    rows = zip(
        columns.topics,
        columns.partitions,
        columns.current,
        columns.target,
        columns.leaders,
        columns.write_bytes_per_s,
        columns.log_size_bytes,
        strict=True,
    )
    keys = (
        "topic",
        "partition",
        "current_replicas",
        "target_replicas",
        "leader",
        "write_bytes_per_s",
        "log_size_bytes",
    )
    return json.dumps({"partitions": [dict(zip(keys, row, strict=True)) for row in rows]}).encode()
