"""The time from the end of a leader to the next decision, and what the waiting standby costs."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from deploy.local.kafka import LocalKafka
from tests.bench.end_to_end import closing, first_round
from tests.bench.loads import ROUND_MS, Fleet
from tests.bench.report import Limit, Row, Section
from tests.bench.running import Clients, Controller, local_kafka, prepared, started

_TRIGGER_S = 1.0
_LONG_S, _SHORT_S = 10.0, 3.0
"""Lengths of a session."""
_BROKERS_COUNT = 10
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
        kafka, directory / name, name=name, trigger_interval_s=_TRIGGER_S, controller=controller
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
    clients.send(controller, Fleet(brokers_count=_BROKERS_COUNT).reports(time_ms=number * ROUND_MS))
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
