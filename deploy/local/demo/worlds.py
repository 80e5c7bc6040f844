"""The two worlds of the demo: a simulated fleet that follows its decisions, and a real Pulsar cluster with traffic."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from kafka import KafkaProducer

from deploy.local.demo.fleet import CLUSTER, Fleet
from deploy.local.demo.shop import Shop
from deploy.local.demo.topics import Decided, Received, reports_of, results_of, tick_of
from deploy.local.pulsar import LocalPulsar
from deploy.local.pulsar_settings import LoadManager
from streaming.contract.messages import Envelope
from streaming.kafka.client import close_producer
from streaming.settings import TopicNames, load

FLEET_SETTINGS = Path(__file__).with_name("demo.toml")
PULSAR_SETTINGS = Path(__file__).with_name("pulsar.toml")
BROKERS_COUNT = 3
"""Brokers of the real cluster."""
SWEEP_S = 2.0
"""Seconds between sweeps of the fleet: two sweeps a round."""
SEND_TIMEOUT_S = 15.0

ShowStep = Callable[[str], AbstractContextManager[None]]
"""Shows what is being waited for in a block."""

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What trimtab balances, and the programs that connect it to a controller."""

    settings_file: Path
    environment: Mapping[str, str]
    """Settings that are known only now."""
    commands: Sequence[Sequence[str]]
    check: Callable[[], None]
    """Raises an error if a process of the world has ended by itself."""
    advance: Callable[[Iterable[Received]], None]
    """Is given what became readable, and lets the world go on."""


@contextmanager
def fleet_world(bootstrap: str) -> Iterator[World]:
    """Six simulated brokers: they report their load to the topics, and follow the actions that come back."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
    try:
        yield World(
            settings_file=FLEET_SETTINGS,
            environment={},
            commands=[],
            check=lambda: None,
            advance=_ReportingFleet(producer).advance,
        )
    finally:
        close_producer(producer, wait_s=2)


class _ReportingFleet:
    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        self._input = TopicNames().input
        self._lateness_s = load(file=FLEET_SETTINGS, flags={}, environ={}).settings.pulsar.rounds.lateness_s
        self._fleet = Fleet()
        self._next_sweep_s = self._sweep_after(time.time())

    def advance(self, received: Iterable[Received]) -> None:
        """Follow what was decided, and report a sweep when it is time."""
        now_s = time.time()
        now_ms = round(now_s * 1000)
        for each in received:
            if isinstance(each, Decided) and not each.action.dry_run:
                refusal = self._fleet.follow(each.action_id, each.action, now_ms=now_ms)
                self._send([] if refusal is None else results_of([refusal], now_ms=now_ms))
        if now_s >= self._next_sweep_s:
            sweep = self._fleet.sweep(now_ms)
            self._send([*reports_of(sweep), *results_of(sweep.finished, now_ms=now_ms)])
            self._send([tick_of(sweep)])
            self._next_sweep_s = self._sweep_after(now_s)

    def _sweep_after(self, now_s: float) -> float:
        """The next sweep is a round's lateness after an even second, so that its tick closes the round at once."""
        return ((now_s - self._lateness_s) // SWEEP_S + 1) * SWEEP_S + self._lateness_s

    def _send(self, messages: Iterable[Envelope]) -> None:
        sent = [
            self._producer.send(self._input, key=CLUSTER.encode(), value=_encoder.encode(message))
            for message in messages
        ]
        for future in sent:
            future.get(timeout=SEND_TIMEOUT_S)


@contextmanager
def pulsar_world(directory: Path, show_step: ShowStep, *, extensible: bool) -> Iterator[World]:
    """A real cluster with all traffic at one broker at the start; a collector and an executor connect it to trimtab."""
    manager: LoadManager = "extensible" if extensible else "modular"
    pulsar = LocalPulsar(directory / "pulsar", brokers=BROKERS_COUNT, load_manager=manager)
    processes = f"ZooKeeper, a bookie and {BROKERS_COUNT} brokers with the {manager} load manager"
    with ExitStack() as stack:
        with show_step(f"starting Pulsar: {processes}"):
            stack.enter_context(pulsar)
        shop = Shop(pulsar)
        with show_step("putting all bundles on one broker"):
            shop.open()
        with show_step("starting traffic"):
            stack.enter_context(shop.busy(directory / "traffic.log"))
        yield World(
            settings_file=PULSAR_SETTINGS,
            environment={
                "TRIMTAB_TARGETS": json.dumps({CLUSTER: {"pulsar": {"admin_url": pulsar.admin_url}}})
            },
            commands=[["collect", "pulsar", CLUSTER], ["execute", "pulsar", CLUSTER]],
            check=pulsar.check,
            advance=lambda _: None,
        )
