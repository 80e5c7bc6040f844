"""A warm Pulsar: two brokers and one bookie; each schedule has a namespace of its own for trimtab's topics, and one with traffic.

The traffic leans now to one half of the bundles, now to the other, so that there is always something to decide for the real
collector and executor of that cluster, ``lab.CLUSTER``.
"""

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import pulsar as pulsar_client
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from deploy.local.pulsar import LocalPulsar
from streaming.pulsar.clients import close
from streaming.pulsar.http import AdminError
from tests.faults.world import Sender, World
from tests.live.driving import meanwhile
from tests.live.pulsar.lab import CLUSTER, Lab, connected
from tests.live.pulsar.stage import PulsarStage
from tests.live.stage import Stage

_SEND_MS = 10_000
_READY_S = 60.0
_BUNDLES = 8
_LEAN_S = 12.0
_PAUSE_S = 0.02
_TARGET = """
[targets."{cluster}".pulsar]
admin_url = "{admin_url}"

[pulsar.usage]
cpu_weight = 0
bandwidth_in_weight = 0
bandwidth_out_weight = 0

[pulsar.capacity]
messages_per_s = 40000

[clusters."{cluster}".pulsar.capacity]
messages_per_s = 1000
"""
"""The brokers' own CPU says nothing on a shared machine; the fleet's capacity is that of the demo."""


class _PulsarSender(Sender):
    def __init__(self, pulsar: LocalPulsar, stage: PulsarStage) -> None:
        self._client = connected(pulsar)
        self._stage = stage
        self._producers: dict[str, pulsar_client.Producer] = {}
        self._failed: list[pulsar_client.Result] = []

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        if topic not in self._producers:
            self._producers[topic] = self._client.create_producer(
                self._stage.full_name(topic), send_timeout_millis=_SEND_MS, block_if_queue_full=True
            )
        self._producers[topic].send_async(value, self._sent, partition_key=key.decode())

    def flush(self) -> None:
        for producer in self._producers.values():
            producer.flush()
        failed, self._failed = self._failed, []
        if failed:
            raise TimeoutError(f"{len(failed)} messages were not written: {failed[0]}")

    def close(self) -> None:
        close(self._client)

    def _sent(self, result: pulsar_client.Result, _id: object) -> None:
        if result != pulsar_client.Result.Ok:
            self._failed.append(result)


class PulsarWorld(World):
    """Input and output are both on Pulsar."""

    system = "pulsar"
    brokers = 2

    def __init__(self, directory: Path) -> None:
        self._pulsar = LocalPulsar(directory, brokers=self.brokers)

    def __enter__(self) -> Self:
        self._pulsar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pulsar.stop()

    def stage(self, directory: Path) -> Stage:
        return PulsarStage.of(Lab(self._pulsar), directory)

    def settings(self, stage: Stage, *, base: str, **overrides: object) -> Path:
        target = _TARGET.format(cluster=CLUSTER, admin_url=self._pulsar.admin_url)
        return stage.settings(base=f"{base}\n{target}", **overrides)

    @contextmanager
    def companions(self, stage: Stage, config: Path) -> Iterator[Mapping[str, Sequence[str]]]:
        del stage
        lab = Lab(self._pulsar, bundles_count=_BUNDLES)
        with _leaning_traffic(self._pulsar, [lab.topic_in(each) for each in lab.bundles()]):
            yield {
                program: (word, "pulsar", CLUSTER, "--config", str(config))
                for program, word in (("collector", "collect"), ("executor", "execute"))
            }

    def reconnect(self, stage: Stage) -> None:
        """Do nothing: Pulsar's client finds out by itself."""

    def sender(self, stage: Stage) -> Sender:
        assert isinstance(stage, PulsarStage)
        return _PulsarSender(self._pulsar, stage)

    def stop_broker(self, number: int, *, kill: bool) -> None:
        if kill:
            self._pulsar.kill_broker(number)
        else:
            self._pulsar.stop_broker(number)

    def start_broker(self, number: int) -> None:
        self._pulsar.start_broker(number)

    def signal_broker(self, number: int, signal_: signal.Signals) -> None:
        self._signal(f"broker{number}", signal_)

    def do(self, deed: str, stage: Stage, choice: str) -> None:
        if deed == "unload-topics":
            self._unload(stage)
        elif choice == "over":
            self._pulsar.processes["bookie"].launch()
        else:
            self._pulsar.processes["bookie"].end(signal.SIGTERM)

    def _unload(self, stage: Stage) -> None:
        """Unload all bundles of the namespace; a broker that is on its way back may refuse for a while."""
        assert isinstance(stage, PulsarStage)
        assert stage.lab is not None
        retrying = Retrying(
            retry=retry_if_exception_type(AdminError),
            stop=stop_after_delay(_READY_S),
            wait=wait_fixed(1),
            reraise=True,
        )
        retrying(stage.lab.put, f"namespaces/{stage.lab.namespace}/unload", None)

    def _signal(self, name: str, signal_: signal.Signals) -> None:
        process = self._pulsar.processes[name].process
        assert process is not None, f"{name} does not run"
        process.send_signal(signal_)


@contextmanager
def _leaning_traffic(pulsar: LocalPulsar, topics: Sequence[str]) -> Iterator[None]:
    """Send messages to one half of the topics, then to the other, in turn; lost messages do not matter."""
    client = connected(pulsar)

    def send(stop: threading.Event) -> None:
        producers: dict[str, pulsar_client.Producer] = {}
        while not stop.wait(_PAUSE_S):
            half = int(time.monotonic() / _LEAN_S) % 2
            for number, topic in enumerate(topics):
                with suppress(pulsar_client.PulsarException):
                    if topic not in producers:
                        producers[topic] = client.create_producer(topic, send_timeout_millis=2_000)
                    if number % 2 == half:
                        producers[topic].send_async(b"x" * 100, None)
                        producers[topic].send_async(b"x" * 100, None)

    try:
        with meanwhile(send):
            yield
    finally:
        close(client)
