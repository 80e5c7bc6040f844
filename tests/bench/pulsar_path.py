"""The same controller with all its topics on Pulsar, beside one with all of them on Kafka: latency and throughput."""

import json
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pulsar

from deploy.local.pulsar import StandalonePulsar
from tests.bench.end_to_end import closing, first_round
from tests.bench.loads import BUNDLES_COUNT, CLUSTER, ROUND_MS, Fleet
from tests.bench.report import Row, Section, percentile
from tests.bench.running import Clients, Controller, System, is_leader, local_kafka, running, wait_for

_BROKERS_COUNT = 20
_TRIGGER_S = 0.05
_SETTLE_S = 0.6
_WARM_UP = 10
_BACKLOG_BROKERS_COUNT = 100
_POLL_MS = 20


class PulsarClients(System):
    """Like ``Clients``, on Pulsar."""

    def __init__(self, broker: StandalonePulsar, controller: Controller) -> None:
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self._client = pulsar.Client(broker.service_url, logger=quiet)
        self._producer = self._client.create_producer(
            controller.input, block_if_queue_full=True, batching_enabled=False
        )
        self._reader = self._client.create_reader(controller.actions, pulsar.MessageId.earliest)

    def send(self, controller: Controller, values: Sequence[bytes]) -> None:
        """Send events of the cluster, and wait until the log has them."""
        del controller
        for value in values:
            self._producer.send_async(value, None, partition_key=CLUSTER)
        self._producer.flush()

    def drain(self) -> None:
        """Forget the decisions readable now."""
        while self._next(10 * _POLL_MS) is not None:
            pass

    def answers(self, controller: Controller) -> list[bytes]:
        """A decision that has become readable; waits a moment for one."""
        del controller
        found = self._next(_POLL_MS)
        return [] if found is None or is_leader(found) else [found]

    def _next(self, wait_ms: int) -> bytes | None:
        try:
            return bytes(self._reader.read_next(timeout_millis=wait_ms).data())
        except pulsar.Timeout:
            return None

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def measure_pulsar(*, quick: bool) -> Section:
    """Both run at the same time and are asked in turn; the backlogs are worked off one after the other."""
    trials, rounds_count = (3, 3) if quick else (60, 30)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-bench-")))
        kafka = stack.enter_context(local_kafka(directory))
        broker = stack.enter_context(StandalonePulsar(directory / "pulsar"))
        on_kafka = stack.enter_context(
            running(kafka, directory / "k", name="on-kafka", trigger_interval_s=_TRIGGER_S)
        )
        on_pulsar = stack.enter_context(
            running(broker, directory / "p", name="on-pulsar", trigger_interval_s=_TRIGGER_S)
        )
        pulsar_clients = PulsarClients(broker, on_pulsar)
        stack.callback(pulsar_clients.close)
        systems: list[tuple[str, System, Controller]] = [
            ("Kafka", stack.enter_context(Clients(kafka, on_kafka)), on_kafka),
            ("Pulsar", pulsar_clients, on_pulsar),
        ]
        waits = _latencies(systems, trials=trials)
        rates = {
            name: _reports_per_s(system, controller, rounds_count) for name, system, controller in systems
        }
    return Section(
        title="Pulsar beside Kafka",
        method=f"All topics on one Kafka, or on one standalone Pulsar with deduplication, both on loopback and without "
        f"flushing to disk. Latency: closing tick sent → action readable, a cluster of {_BROKERS_COUNT} x {BUNDLES_COUNT}, "
        f"trigger interval {_TRIGGER_S * 1000:.0f} ms, {trials} times each in turn. Throughput: {rounds_count} rounds of "
        f"{_BACKLOG_BROKERS_COUNT} x {BUNDLES_COUNT} are in the topic at once; their reports ÷ the time from the first one "
        "sent to the last round's action readable.",
        rows=[
            *(
                Row(
                    name=f"{name}, latency p{share * 100:.0f}",
                    value=1000 * percentile(waits[name], share),
                    unit="ms",
                )
                for name in waits
                for share in (0.5, 0.9, 0.99)
            ),
            *(Row(name=f"{name}, reports", value=rate, unit="1/s") for name, rate in rates.items()),
        ],
    )


def _latencies(systems: Sequence[tuple[str, System, Controller]], *, trials: int) -> dict[str, list[float]]:
    fleet, first = Fleet(brokers_count=_BROKERS_COUNT), first_round()
    waits: dict[str, list[float]] = {name: [] for name, _, _ in systems}
    for number in range(first, first + _WARM_UP + trials):
        for name, system, controller in systems:
            system.send(controller, fleet.reports(time_ms=number * ROUND_MS))
            time.sleep(_SETTLE_S)
            waits[name].append(system.answered_s(controller, closing(number)))
            system.drain()
    return {name: values[_WARM_UP:] for name, values in waits.items()}


def _reports_per_s(system: System, controller: Controller, rounds_count: int) -> float:
    """Reports per second, of a larger fleet and in rounds two hours later, so that none of them is late."""
    fleet, first = Fleet(brokers_count=_BACKLOG_BROKERS_COUNT), first_round() + 7_200_000 // ROUND_MS
    last = first + rounds_count - 1
    begun = time.perf_counter()
    for number in range(first, last + 1):
        system.send(controller, [*fleet.reports(time_ms=number * ROUND_MS), closing(number)])
    wait_for(lambda: _is_answered(system, controller, last), controller)
    return rounds_count * _BACKLOG_BROKERS_COUNT / (time.perf_counter() - begun)


def _is_answered(system: System, controller: Controller, number: int) -> bool:
    return any(json.loads(value)["data"]["round"] >= number for value in system.answers(controller))
