"""The same controller with all its topics on Pulsar, beside one with all of them on Kafka: latency and throughput."""

import json
import time
from collections.abc import Mapping, Sequence

import pulsar

from deploy.local.pulsar import StandalonePulsar
from tests.bench.end_to_end import closing, first_round
from tests.bench.loads import BUNDLES_COUNT, CLUSTER, ROUND_MS, Fleet
from tests.bench.report import Row, Section, percentile
from tests.bench.running import SETTINGS, Clients, Controller, System, bench, on_kafka, run
from tests.support.pulsar import Lab, PulsarStage, connected
from tests.support.stage import is_leader

_BROKERS_COUNT = 20
_TRIGGER_S = 0.05
_SETTLE_S = 0.6
_WARM_UP = 10
_BACKLOG_BROKERS_COUNT = 100
_POLL_MS = 20


class PulsarClients(System):
    """Like ``Clients``, on Pulsar."""

    def __init__(self, broker: StandalonePulsar, controller: Controller) -> None:
        super().__init__(controller)
        stage = controller.stage
        assert isinstance(stage, PulsarStage)
        self._client = connected(broker)
        self._producer = self._client.create_producer(
            stage.full_name(stage.topics.input), block_if_queue_full=True, batching_enabled=False
        )
        actions = stage.full_name(stage.topics.actions)
        self._reader = self._client.create_reader(actions, pulsar.MessageId.earliest)

    def send(self, values: Sequence[bytes], *, cluster: str = CLUSTER) -> None:
        for value in values:
            self._producer.send_async(value, None, partition_key=cluster)
        self._producer.flush()

    def drain(self) -> None:
        while self._next(10 * _POLL_MS) is not None:
            pass

    def answers(self) -> list[bytes]:
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
    with bench() as (stack, kafka, directory):
        broker = stack.enter_context(StandalonePulsar(directory / "pulsar"))
        (directory / "p").mkdir()
        there = PulsarStage("", "on-pulsar", directory / "p", lab=Lab(broker, bundles_count=1))
        there.create_topics(base=SETTINGS)
        stack.callback(there.close)
        stages = (on_kafka(kafka, directory, "on-kafka"), there)
        on_one, on_other = (run(stack, stage, trigger_interval_s=_TRIGGER_S) for stage in stages)
        pulsar_clients = PulsarClients(broker, on_other)
        stack.callback(pulsar_clients.close)
        systems: dict[str, System] = {"Kafka": Clients(stack, on_one), "Pulsar": pulsar_clients}
        waits = _latencies(systems, trials=trials)
        rates = {name: _reports_per_s(system, rounds_count) for name, system in systems.items()}
    return Section(
        title="Pulsar beside Kafka",
        method=f"All topics on one Kafka, or on one standalone Pulsar with deduplication, both on loopback and without "
        f"flushing to disk. Latency: closing tick sent → action readable, a cluster of {_BROKERS_COUNT} x {BUNDLES_COUNT}, "
        f"trigger interval {_TRIGGER_S * 1000:.0f} ms, {trials} times each in turn. Throughput: {rounds_count} rounds of "
        f"{_BACKLOG_BROKERS_COUNT} x {BUNDLES_COUNT} are in the topic at once; their reports ÷ the time from the first one "
        "sent to the last round's action readable.",
        rows=[
            *(
                Row(f"{name}, latency p{share * 100:.0f}", 1000 * percentile(found, share), "ms")
                for name, found in waits.items()
                for share in (0.5, 0.9, 0.99)
            ),
            *(Row(f"{name}, reports", rate, "1/s") for name, rate in rates.items()),
        ],
    )


def _latencies(systems: Mapping[str, System], *, trials: int) -> dict[str, list[float]]:
    fleet, first = Fleet(brokers_count=_BROKERS_COUNT), first_round()
    waits: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(first, first + _WARM_UP + trials):
        for name, system in systems.items():
            system.send(fleet.reports(time_ms=number * ROUND_MS))
            time.sleep(_SETTLE_S)
            waits[name].append(system.answered_s(closing(number)))
            system.drain()
    return {name: values[_WARM_UP:] for name, values in waits.items()}


def _reports_per_s(system: System, rounds_count: int) -> float:
    """Reports per second, of a larger fleet and in rounds two hours later, so that none of them is late."""
    fleet, first = Fleet(brokers_count=_BACKLOG_BROKERS_COUNT), first_round() + 7_200_000 // ROUND_MS
    last = first + rounds_count - 1
    begun = time.perf_counter()
    for number in range(first, last + 1):
        system.send([*fleet.reports(time_ms=number * ROUND_MS), closing(number)])
    system.wait_for(lambda: any(json.loads(value)["data"]["round"] >= last for value in system.answers()))
    return rounds_count * _BACKLOG_BROKERS_COUNT / (time.perf_counter() - begun)
