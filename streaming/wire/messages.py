"""Every message trimtab reads, as typed structs; the JSON Schemas in ``docs/`` are generated from them.

The envelope is decoded strictly; unknown fields of ``data`` are ignored, because Pulsar adds some in every release.
Field names inside ``data`` of load reports are Pulsar's own.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

CLUSTER_PATTERN = r"^[A-Za-z0-9._-]{1,100}(?![\s\S])"
"""A valid cluster name; the look-ahead is an end that no trailing newline slips past."""

MAX_NUMBER = 1e18
"""Largest rate or usage taken: a million times what any broker reaches, and far from overflowing single precision."""

Text = Annotated[str, Meta(min_length=1)]
Cluster = Annotated[str, Meta(pattern=CLUSTER_PATTERN)]
Time = Annotated[datetime, Meta(tz=True)]


class Resource(msgspec.Struct, frozen=True):
    """Pulsar's `ResourceUsage`; -1 and -1, or one of them absent, where the broker could not measure."""

    usage: float | None = None
    limit: float | None = None


class Traffic(msgspec.Struct, frozen=True, gc=False):
    """Rates of a bundle or topic: messages/s and bytes/s; an absent one counts as 0, as in Pulsar."""

    msgRateIn: float | None = 0.0  # noqa: N815
    msgRateOut: float | None = 0.0  # noqa: N815
    msgThroughputIn: float | None = 0.0  # noqa: N815
    msgThroughputOut: float | None = 0.0  # noqa: N815


class LocalBrokerData(msgspec.Struct, frozen=True):
    """What trimtab reads of Pulsar's `LocalBrokerData`; every field is optional."""

    cpu: Resource | None = None
    """Percent of one core, summed; limit 100 x cores."""
    bandwidthIn: Resource | None = None  # noqa: N815
    """Kbit/s."""
    bandwidthOut: Resource | None = None  # noqa: N815
    """Kbit/s."""
    directMemory: Resource | None = None  # noqa: N815
    """MiB."""
    memory: Resource | None = None
    """MiB of heap; checked, never part of the score."""
    msgRateIn: float | None = None  # noqa: N815
    """Messages/s; absent: the sum over `lastStats`. So for the next three."""
    msgRateOut: float | None = None  # noqa: N815
    msgThroughputIn: float | None = None  # noqa: N815
    """Bytes/s."""
    msgThroughputOut: float | None = None  # noqa: N815
    lastStats: dict[str, Traffic] | None = None  # noqa: N815
    """Traffic by bundle."""
    bundles: list[str] | None = None
    """What the broker lists; absent: the keys of `lastStats`."""


class TickData(msgspec.Struct, frozen=True):
    """A collector's sweep is complete."""

    asked: list[str] = []
    failed: dict[str, str] = {}
    """Broker to reason."""


class ActionResultData(msgspec.Struct, frozen=True):
    """What became of an action; the subject is the action's id."""

    outcome: Literal["succeeded", "failed", "skipped"]
    reason: str | None = None


class ControlData(msgspec.Struct, frozen=True):
    """The whole overlay of one cluster; a newer event replaces it whole."""

    paused: bool = False
    mode: Literal["dry-run", "act"] | None = None
    settings: dict[str, object] = {}
    who: str | None = None
    why: str | None = None


class Envelope(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """CloudEvents 1.0 attributes."""

    specversion: Literal["1.0"]
    id: Text
    source: Text
    subject: Text
    time: Time
    cluster: Cluster
    datacontenttype: str | None = "application/json"
    recordedtime: Time | None = None
    """When a log took the event; only in recordings, where no log says so."""


class LoadReportMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.pulsar.load-report.v1"):
    """A broker's load; the subject is the broker id."""

    data: LocalBrokerData


class TopicStatsMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.pulsar.topic-stats.v1"):
    """Traffic by bundle and topic; the subject is the broker id."""

    data: dict[str, dict[str, Traffic]]


class TickMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.tick.v1"):
    """A collector's sweep is complete: it moves the cluster's clock."""

    data: TickData = TickData()


class ActionResultMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.action-result.v1"):
    """What became of an action."""

    data: ActionResultData


class ControlMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.control.v1"):
    """An operator's overlay of one cluster."""

    data: ControlData


Message = LoadReportMessage | TopicStatsMessage | TickMessage | ActionResultMessage | ControlMessage

INPUT_TYPES: tuple[type[Envelope], ...] = (
    LoadReportMessage,
    TopicStatsMessage,
    TickMessage,
    ActionResultMessage,
)
MESSAGE_TYPES: tuple[type[Envelope], ...] = (*INPUT_TYPES, ControlMessage)


def type_of(message: type[Envelope]) -> str:
    """CloudEvents type of a message class."""
    tag = message.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
