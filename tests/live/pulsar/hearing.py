"""A collector whose events are kept here."""

import json

import msgspec

from streaming.collector.metrics import CollectorMetrics
from streaming.collector.pulsar import PulsarCollector
from streaming.contract.messages import type_of
from streaming.settings import PulsarTarget, Settings
from tests.live.pulsar.lab import CLUSTER


class Heard:
    """Keeps the events of a collector; an ``EventSink``."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def send(self, key: str, value: bytes) -> None:
        """See ``EventSink``."""
        assert key == CLUSTER
        self.values.append(value)

    def flush(self) -> None:
        """Nothing to do: all events are here."""

    def close(self) -> None:
        """Nothing to close."""

    def of(self, kind: type[msgspec.Struct]) -> dict[str, dict[str, object]]:
        """`data` of the newest event of a type, by subject."""
        events = [json.loads(value) for value in self.values]
        return {each["subject"]: each["data"] for each in events if each["type"] == type_of(kind)}


def collector(target: PulsarTarget, heard: Heard, *, settings: Settings | None = None) -> PulsarCollector:
    """A collector of ``CLUSTER``, with the default settings if none are given."""
    return PulsarCollector(
        settings or Settings(), CollectorMetrics(CLUSTER), cluster=CLUSTER, target=target, sink=heard
    )
