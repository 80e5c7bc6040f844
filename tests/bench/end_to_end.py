"""The time from sending the tick that closes a round to reading its decision; beside the same query that decides nothing."""

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench.loads import BUNDLES_COUNT, ROUND_MS, Fleet, tick
from tests.bench.report import Limit, Row, Section
from tests.bench.running import TRIMTAB, Clients, Controller, local_kafka, running
from tests.bench.timing import percentile

_BROKERS_COUNT = 20
_BURST_BROKERS_COUNT = 1000
_TRIGGER_S = 0.05
_LATENESS_MS = 10_000
_SETTLE_S = 0.6
"""Time for a round's reports to be taken before its tick is sent, and for the batch after an answer to end."""
_WARM_UP = 10
_EMPTY = (sys.executable, "-m", "tests.bench.empty_operator")
_AGO_MS = 4 * 3_600_000
"""Rounds begin so far in the past because they follow one another faster than real time."""


def measure_end_to_end(*, quick: bool) -> Section:
    """Latency of a decision, interleaved with that of the empty operator."""
    trials = 5 if quick else 100
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-bench-")))
        kafka = stack.enter_context(local_kafka(directory))
        ours, empty = (
            stack.enter_context(
                running(kafka, directory / name, name=name, trigger_interval_s=_TRIGGER_S, command=command)
            )
            for name, command in (("ours", TRIMTAB), ("empty", _EMPTY))
        )
        clients = stack.enter_context(Clients(kafka, ours, empty))
        found = _interleaved(clients, ours, empty, trials=trials)
    return Section(
        title="End to end",
        method=f"Closing tick sent → action readable by a `read_committed` consumer, on one Kafka on loopback; a cluster of "
        f"{_BROKERS_COUNT} x {BUNDLES_COUNT} whose reports are in before the tick; trigger interval "
        f"{_TRIGGER_S * 1000:.0f} ms. *Empty*: the same query with a `transformWithState` that emits one row and keeps a "
        f"counter. Both run at the same time and are asked in turn, {trials} times each after {_WARM_UP} to warm up.",
        rows=_compared(*found),
    )


def _interleaved(
    clients: Clients, ours: Controller, empty: Controller, *, trials: int
) -> tuple[list[float], list[float]]:
    fleet, first = Fleet(brokers_count=_BROKERS_COUNT), first_round()
    decided, counted = [], []
    for number in range(first, first + _WARM_UP + trials):
        clients.send(ours, fleet.reports(time_ms=number * ROUND_MS))
        time.sleep(_SETTLE_S)
        decided.append(clients.answered_s(ours, closing(number)))
        clients.drain()
        time.sleep(_SETTLE_S)
        counted.append(clients.answered_s(empty, closing(number)))
        clients.drain()
    return decided[_WARM_UP:], counted[_WARM_UP:]


def _compared(decided: list[float], counted: list[float]) -> list[Row]:
    rows = [
        Row(name=f"{name}, p{share * 100:.0f}", value=1000 * percentile(values, share), unit="ms")
        for name, values in (("trimtab", decided), ("empty", counted))
        for share in (0.5, 0.9, 0.99)
    ]
    ratio = percentile(decided, 0.5) / percentile(counted, 0.5)
    return [*rows, Row(name="trimtab ÷ empty, p50", value=ratio, unit="x", limit=Limit(value=1.5))]


def measure_burst(*, quick: bool) -> Section:
    """A large cluster whose reports and closing tick arrive at once."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-bench-")))
        kafka = stack.enter_context(local_kafka(directory))
        trimtab = stack.enter_context(
            running(kafka, directory / "large", name="large", trigger_interval_s=1.0)
        )
        clients = stack.enter_context(Clients(kafka, trimtab))
        waits = _bursts(clients, trimtab, rounds_count=2 if quick else 10)
    most = Limit(value=3.0)
    return Section(
        title="A large cluster at once",
        method=f"All reports of a round of {_BURST_BROKERS_COUNT} x {BUNDLES_COUNT} and, right behind them, the tick that "
        "closes it; from the tick sent to the first action readable, at the usual trigger of 1 s. In the first round "
        "Spark starts its workers and every name is new.",
        rows=[
            Row(name="first round after the start", value=waits[0], unit="s"),
            Row(name="later rounds, median", value=percentile(waits[1:], 0.5), unit="s", limit=most),
            Row(name="later rounds, slowest", value=max(waits[1:]), unit="s", limit=most),
        ],
    )


def _bursts(clients: Clients, trimtab: Controller, *, rounds_count: int) -> list[float]:
    fleet, first = Fleet(brokers_count=_BURST_BROKERS_COUNT), first_round()
    waits = []
    for number in range(first, first + rounds_count):
        clients.send(trimtab, fleet.reports(time_ms=number * ROUND_MS))
        waits.append(clients.answered_s(trimtab, closing(number)))
        clients.drain()
    return waits


def first_round() -> int:
    """The number of the first round."""
    return (round(time.time() * 1000) - _AGO_MS) // ROUND_MS


def closing(number: int) -> bytes:
    """The tick that closes a round."""
    return tick(time_ms=(number + 1) * ROUND_MS + _LATENESS_MS)
