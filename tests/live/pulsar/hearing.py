"""A collector whose events are kept here."""

import json

import msgspec

from streaming.collector.metrics import CollectorMetrics
from streaming.collector.pulsar import PulsarCollector
from streaming.contract.messages import type_of
from streaming.settings import PulsarTarget, Settings
from tests.live.pulsar.lab import CLUSTER


class Heard:
    """Keeps what a collector says; an ``EventSink``."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def send(self, key: str, value: bytes) -> None:
        """See ``EventSink``."""
        assert key == CLUSTER
        self.values.append(value)

    def flush(self) -> None:
        """All is here."""

    def close(self) -> None:
        """Nothing to close."""

    def of(self, kind: type[msgspec.Struct]) -> dict[str, dict[str, object]]:
        """`data` of the newest event of a type, by subject."""
        events = [json.loads(value) for value in self.values]
        return {each["subject"]: each["data"] for each in events if each["type"] == type_of(kind)}


def collector(target: PulsarTarget, heard: Heard, *, settings: Settings | None = None) -> PulsarCollector:
    """Of ``CLUSTER``, with the defaults where no settings are given."""
    return PulsarCollector(
        settings or Settings(), CollectorMetrics(CLUSTER), cluster=CLUSTER, target=target, sink=heard
    )
