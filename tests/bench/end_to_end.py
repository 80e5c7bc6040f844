"""What a controller's work takes: from the tick that closes a round to its decision, and from a leader's end to the next decision.

Beside it the same query that decides nothing, and what a controller costs that idles or stands by.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count

from tests.bench.loads import BUNDLES_COUNT, ROUND_MS, Fleet, tick
from tests.bench.report import Row, Section, percentile
from tests.bench.running import TRIMTAB, Clients, Controller, bench, on_kafka, run
from tests.support.stage import Stage

_BROKERS_COUNT = 20
_BURST_BROKERS_COUNT = 1000
_QUIET_FLEET = Fleet(brokers_count=10)
_TRIGGER_S, _USUAL_TRIGGER_S = 0.05, 1.0
_LATENESS_MS = 10_000
_SETTLE_S = 0.6
"""Time for a round's reports to be taken before its tick is sent, and for the batch after an answer to end."""
_WARM_UP = 10
_EMPTY = (sys.executable, "-m", "tests.bench.empty_operator")
_AGO_MS = 4 * 3_600_000
"""Rounds begin so far in the past because they follow one another faster than real time."""
_LONG_S, _SHORT_S = 10.0, 3.0
"""Lengths of a session."""
_STANDS = "standing by as"


def first_round() -> int:
    """The number of the first round."""
    return (round(time.time() * 1000) - _AGO_MS) // ROUND_MS


def closing(number: int) -> bytes:
    """The tick that closes a round."""
    return tick(time_ms=(number + 1) * ROUND_MS + _LATENESS_MS)


def measure_end_to_end(*, quick: bool) -> Section:
    """Latency of a decision, interleaved with that of the empty operator."""
    trials = 5 if quick else 100
    fleet, first = Fleet(brokers_count=_BROKERS_COUNT), first_round()
    decided, counted = [], []
    with bench() as (stack, kafka, directory):
        ours, empty = (
            Clients(
                stack,
                run(stack, on_kafka(kafka, directory, name), trigger_interval_s=_TRIGGER_S, command=command),
            )
            for name, command in (("ours", TRIMTAB), ("empty", _EMPTY))
        )
        for number in range(first, first + _WARM_UP + trials):
            ours.send(fleet.reports(time_ms=number * ROUND_MS))
            time.sleep(_SETTLE_S)
            decided.append(ours.answered_s(closing(number)))
            ours.drain()
            time.sleep(_SETTLE_S)
            counted.append(empty.answered_s(closing(number)))
            empty.drain()
    decided, counted = decided[_WARM_UP:], counted[_WARM_UP:]
    ratio = percentile(decided, 0.5) / percentile(counted, 0.5)
    return Section(
        title="End to end",
        method=f"Closing tick sent → action readable by a `read_committed` consumer, on one Kafka on loopback; a cluster of "
        f"{_BROKERS_COUNT} x {BUNDLES_COUNT} whose reports are in before the tick; trigger interval "
        f"{_TRIGGER_S * 1000:.0f} ms. *Empty*: the same query with a `transformWithState` that emits one row and keeps a "
        f"counter. Both run at the same time and are asked in turn, {trials} times each after {_WARM_UP} to warm up.",
        rows=[
            *(
                Row(f"{name}, p{share * 100:.0f}", 1000 * percentile(values, share), "ms")
                for name, values in (("trimtab", decided), ("empty", counted))
                for share in (0.5, 0.9, 0.99)
            ),
            Row("trimtab ÷ empty, p50", ratio, "x", at_most=1.5),
        ],
    )


def measure_burst(*, quick: bool) -> Section:
    """A large cluster whose reports and closing tick arrive at once."""
    fleet, first, waits = Fleet(brokers_count=_BURST_BROKERS_COUNT), first_round(), []
    with bench() as (stack, kafka, directory):
        stage = on_kafka(kafka, directory, "large")
        clients = Clients(stack, run(stack, stage, trigger_interval_s=_USUAL_TRIGGER_S))
        for number in range(first, first + (2 if quick else 10)):
            clients.send(fleet.reports(time_ms=number * ROUND_MS))
            waits.append(clients.answered_s(closing(number)))
            clients.drain()
    return Section(
        title="A large cluster at once",
        method=f"All reports of a round of {_BURST_BROKERS_COUNT} x {BUNDLES_COUNT} and, right behind them, the tick that "
        "closes it; from the tick sent to the first action readable, at the usual trigger of 1 s. In the first round "
        "Spark starts its workers and every name is new.",
        rows=[
            Row("first round after the start", waits[0], "s"),
            Row("later rounds, median", percentile(waits[1:], 0.5), "s", at_most=3.0),
            Row("later rounds, slowest", max(waits[1:]), "s", at_most=3.0),
        ],
    )


def measure_idle(*, quick: bool) -> Section:
    """CPU of the process tree on a topic that has gone quiet."""
    settle_s, measured_s = (2.0, 3.0) if quick else (90.0, 60.0)
    with bench() as (stack, kafka, directory):
        stage = on_kafka(kafka, directory, "idle")
        controller = run(stack, stage, trigger_interval_s=_USUAL_TRIGGER_S)
        clients, first = Clients(stack, controller), first_round()
        for number in range(first, first + 3):
            _decide(clients, number)
        time.sleep(settle_s)
        percent = controller.idle_percent(measured_s)
    return Section(
        title="Idle",
        method=f"CPU of driver, JVM and Python workers over {measured_s:.0f} s without input, at a trigger of "
        f"{_USUAL_TRIGGER_S:g} s, {settle_s:.0f} s after the last decision, when the JVM has compiled what it will; 100 % is one core.",
        rows=[Row("process tree", percent, "%", at_most=3.0)],
    )


def _decide(clients: Clients, number: int) -> None:
    """Send what closes a round, and wait for its decision, whichever controller makes it."""
    clients.send(_QUIET_FLEET.reports(time_ms=number * ROUND_MS))
    clients.answered_s(closing(number))


class _Pair:
    """A leader that has decided, and a standby of its name; each fail-over has a new standby."""

    def __init__(self, stack: ExitStack, stage: Stage, session_s: float, rounds: Iterator[int]) -> None:
        self._stack, self._stage, self._session_s, self._rounds = stack, stage, session_s, rounds
        self._numbers = count()
        self.leader = self._start("has epoch")
        _decide(Clients(stack, self.leader), next(rounds))
        self.standby = self._start(_STANDS)

    def _start(self, ready: str) -> Controller:
        return run(
            self._stack,
            self._stage,
            trigger_interval_s=_USUAL_TRIGGER_S,
            log=f"run-{next(self._numbers)}.log",
            ready=ready,
            controller__standby=True,
            controller__session_s=self._session_s,
        )

    def failover_s(self, number: signal.Signals) -> float:
        """End the leader, and count the seconds to the next one's decision; then the standby leads, with a new one for it.

        A kill takes Spark's JVM and its workers, too, as the loss of a machine would.
        """
        with ExitStack() as own:
            clients = Clients(own, self.leader)
            clients.drain()  # what was decided before
            _decide(clients, next(self._rounds))
            led_with = clients.epoch
            clients.drain()
            ended = list(self.leader.cpu_s()) if number == signal.SIGKILL else [self.leader.child.process.pid]
            began_s = time.perf_counter()
            for process in ended:
                with suppress(ProcessLookupError):
                    os.kill(process, number)
            clients.controller = self.standby
            while clients.epoch <= led_with:  # a leader that stops may decide once more
                _decide(clients, next(self._rounds))
            found_s = time.perf_counter() - began_s
        self.leader.child.wait()
        self.leader, self.standby = self.standby, self._start(_STANDS)
        return found_s


def measure_failover(*, quick: bool) -> Section:
    """The first standby idles for a while; each fail-over begins with a new one."""
    settle_s, idle_s = (2.0, 3.0) if quick else (30.0, 570.0)
    rounds = count(first_round())
    with bench() as (_, kafka, directory):
        with ExitStack() as own:
            long = _Pair(own, on_kafka(kafka, directory, "long"), _LONG_S, rounds)
            time.sleep(settle_s)  # for the JVM to compile what it will
            rows = [Row("CPU of a standby", long.standby.idle_percent(idle_s), "%", at_most=2.0)]
            name = f"kill -9, session of {_LONG_S:g} s"
            rows.append(Row(name, long.failover_s(signal.SIGKILL), "s", at_most=12.0))
            rows.append(Row("SIGTERM", long.failover_s(signal.SIGTERM), "s", at_most=3.0))
        with ExitStack() as own:
            short = _Pair(own, on_kafka(kafka, directory, "short"), _SHORT_S, rounds)
            name = f"kill -9, session of {_SHORT_S:g} s"
            rows.append(Row(name, short.failover_s(signal.SIGKILL), "s", at_most=5.0))
    return Section(
        title="Fail-over",
        method="A leader and a standby on one machine, with a checkpoint that both reach, on one Kafka on loopback; the leader has decided before the standby comes. From the "
        "signal to the first decision with a higher epoch that a `read_committed` consumer reads; reports and a closing tick are "
        "sent at once, and again when the old leader has decided on them. One fail-over each, with a new standby; the first one had idled for "
        f"{settle_s + idle_s:g} s, and its CPU was measured in the last {idle_s:g} s (driver, JVM and Python workers; 100 % is one core).",
        rows=rows,
    )
