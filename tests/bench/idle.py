"""What a controller costs while nothing happens."""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench.loads import ROUND_MS, Fleet, tick
from tests.bench.report import Limit, Row, Section
from tests.bench.running import Clients, local_kafka, running

_TRIGGER_S = 1.0
_ROUNDS_COUNT = 3


def measure_idle(*, quick: bool) -> Section:
    """CPU of the process tree on a topic that has gone quiet."""
    settle_s, measured_s = (2.0, 3.0) if quick else (90.0, 60.0)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-bench-")))
        kafka = stack.enter_context(local_kafka(directory))
        trimtab = stack.enter_context(
            running(kafka, directory / "idle", name="idle", trigger_interval_s=_TRIGGER_S)
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
        f"{_TRIGGER_S:g} s, {settle_s:.0f} s after the last decision, when the JVM has compiled what it will; 100 % is one core.",
        rows=[Row(name="process tree", value=100 * share, unit="%", limit=Limit(value=3.0))],
    )
