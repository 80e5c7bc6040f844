"""What a controller's work takes: from the tick that closes a round to its decision, and from a leader's end to the next decision.

Beside it the same query that decides nothing, and what a controller costs that idles or stands by.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from deploy.local.kafka import LocalKafka
from tests.bench.loads import BUNDLES_COUNT, ROUND_MS, Fleet, tick
from tests.bench.report import Limit, Row, Section, percentile
from tests.bench.running import TRIMTAB, Clients, Controller, local_kafka, prepared, running, started

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


_USUAL_TRIGGER_S = 1.0
_ROUNDS_COUNT = 3


def measure_idle(*, quick: bool) -> Section:
    """CPU of the process tree on a topic that has gone quiet."""
    settle_s, measured_s = (2.0, 3.0) if quick else (90.0, 60.0)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-bench-")))
        kafka = stack.enter_context(local_kafka(directory))
        trimtab = stack.enter_context(
            running(kafka, directory / "idle", name="idle", trigger_interval_s=_USUAL_TRIGGER_S)
        )
        clients = stack.enter_context(Clients(kafka, trimtab))
        first = round(time.time()) * 1000 // ROUND_MS - 60
        for number in range(first, first + _ROUNDS_COUNT):
            clients.send(trimtab, Fleet(brokers_count=10).reports(time_ms=number * ROUND_MS))
            clients.answered_s(trimtab, tick(time_ms=(number + 2) * ROUND_MS))
        time.sleep(settle_s)
        begun, before_s = time.perf_counter(), trimtab.cpu_s()
        time.sleep(measured_s)
        # Spark ends Python workers that idle for a minute: what they used before must not count as negative.
        used_s = sum(after_s - before_s.get(process, 0.0) for process, after_s in trimtab.cpu_s().items())
        share = used_s / (time.perf_counter() - begun)
    return Section(
        title="Idle",
        method=f"CPU of driver, JVM and Python workers over {measured_s:.0f} s without input, at a trigger of "
        f"{_USUAL_TRIGGER_S:g} s, {settle_s:.0f} s after the last decision, when the JVM has compiled what it will; 100 % is one core.",
        rows=[Row(name="process tree", value=100 * share, unit="%", limit=Limit(value=3.0))],
    )


_USUAL_TRIGGER_S2 = 1.0
_LONG_S, _SHORT_S = 10.0, 3.0
"""Lengths of a session."""
_PAIR_BROKERS_COUNT = 10
_LEADS, _STANDS = "has epoch", "standing by as"


@dataclass(slots=True)
class _Pair:
    """A leader, and once it is at work a standby of its name; each fail-over has a new standby."""

    stack: ExitStack
    settings: Path
    leader: Controller = field(init=False)
    standby: Controller = field(init=False)
    _numbers: Iterator[int] = field(init=False, default_factory=count)

    def __post_init__(self) -> None:
        self.leader = self._start(_LEADS)

    def stand_by(self) -> None:
        """Start the standby, and wait until it is ready."""
        self.standby = self._start(_STANDS)

    def end(self, number: signal.Signals) -> float:
        """End the leader; returns when. A kill takes Spark's JVM and its workers, too, as the loss of a machine would."""
        ended = list(self.leader.cpu_s()) if number == signal.SIGKILL else [self.leader.process.pid]
        began_s = time.perf_counter()
        for process in ended:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        return began_s

    def begin_again(self) -> None:
        """The standby leads; another one stands by for it."""
        self.leader.process.wait()
        self.leader = self.standby
        self.stand_by()

    def _start(self, ready: str) -> Controller:
        log = self.settings.with_name(f"run-{next(self._numbers)}.log")
        return self.stack.enter_context(
            started(self.settings, log, name=self.settings.parent.name, ready=ready)
        )


def measure_failover(*, quick: bool) -> Section:
    """The first standby idles for a while; each fail-over begins with a new one."""
    settle_s, idle_s = (2.0, 3.0) if quick else (30.0, 570.0)
    rows, rounds = [], count(first_round())
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-bench-")))
        kafka = stack.enter_context(local_kafka(directory))
        for session_s, limit_s in ((_LONG_S, 12.0), (_SHORT_S, 5.0)):
            with ExitStack() as own:
                pair = _pair(own, kafka, directory, session_s, rounds)
                if not rows:
                    rows.append(_cost(pair, settle_s, idle_s))
                killed_s = _after(kafka, pair, signal.SIGKILL, rounds)
                rows.append(_row(f"kill -9, session of {session_s:g} s", killed_s, limit_s))
                if session_s == _LONG_S:
                    pair.begin_again()
                    rows.append(_row("SIGTERM", _after(kafka, pair, signal.SIGTERM, rounds), 3.0))
    return Section(
        title="Fail-over",
        method="A leader and a standby on one machine, with a checkpoint that both reach, on one Kafka on loopback; the leader has decided before the standby comes. From the "
        "signal to the first decision with a higher epoch that a `read_committed` consumer reads; reports and a closing tick are "
        "sent at once, and again when the old leader has decided on them. One fail-over each, with a new standby; the first one had idled for "
        f"{settle_s + idle_s:g} s, and its CPU was measured in the last {idle_s:g} s (driver, JVM and Python workers; 100 % is one core).",
        rows=rows,
    )


def _pair(
    stack: ExitStack, kafka: LocalKafka, directory: Path, session_s: float, rounds: Iterator[int]
) -> _Pair:
    name = f"session-{session_s:g}"
    controller = f"standby = true\nsession_s = {session_s}"
    settings = prepared(
        kafka, directory / name, name=name, trigger_interval_s=_USUAL_TRIGGER_S2, controller=controller
    )
    pair = _Pair(stack, settings)
    with Clients(kafka, pair.leader) as clients:
        _decide(clients, pair.leader, next(rounds))
    pair.stand_by()
    return pair


def _cost(pair: _Pair, settle_s: float, idle_s: float) -> Row:
    time.sleep(settle_s)  # for the JVM to compile what it will
    begun, before_s = time.perf_counter(), pair.standby.cpu_s()
    time.sleep(idle_s)
    used_s = sum(after_s - before_s.get(process, 0.0) for process, after_s in pair.standby.cpu_s().items())
    share = used_s / (time.perf_counter() - begun)
    return Row(name="CPU of a standby", value=100 * share, unit="%", limit=Limit(value=2.0))


def _decide(clients: Clients, controller: Controller, number: int) -> None:
    """Send what closes a round, and wait for its decision, whichever controller makes it."""
    clients.send(controller, Fleet(brokers_count=_PAIR_BROKERS_COUNT).reports(time_ms=number * ROUND_MS))
    clients.answered_s(controller, closing(number))


def _after(kafka: LocalKafka, pair: _Pair, number: signal.Signals, rounds: Iterator[int]) -> float:
    with Clients(kafka, pair.leader) as clients:
        clients.drain()  # what was decided before
        _decide(clients, pair.leader, next(rounds))
        led_with = clients.epoch
        clients.drain()
        began_s = pair.end(number)
        while clients.epoch <= led_with:  # a leader that stops may decide once more
            _decide(clients, pair.standby, next(rounds))
        return time.perf_counter() - began_s


def _row(name: str, found_s: float, limit_s: float) -> Row:
    return Row(name=name, value=found_s, unit="s", limit=Limit(value=limit_s))
