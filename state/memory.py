"""What is remembered of one cluster, and its compact encoding.

Three kinds of value: the *header* (clock, open rounds, control, guards), the *fleet* (brokers, bundles, policy memory)
and the reports and topic statistics waiting in open rounds. Every value begins with ``VERSION``: a newer one is refused, because a program
that does not know it could only guess. Columns are little-endian bytes, names one newline-joined text.
"""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from policies.shedding.avg_shedder import AvgShedderMemory
from policies.shedding.threshold_shedder import ThresholdShedderMemory
from policies.snapshot import Ints
from policies.usage import Bools, Floats
from state.events import BrokerReport, TopicTraffic
from state.settings import Mode

VERSION = 1
"""Version of the encoding; raise it when a field changes meaning, and teach ``_body`` to upgrade the older one."""


class NewerStateError(Exception):
    """The memory was written by a newer trimtab."""


class ControlRecord(msgspec.Struct, frozen=True, array_like=True):
    """A control event and the first round it applies to."""

    time_ms: int
    id: str
    paused: bool
    mode: Mode | None
    overlay: bytes
    who: str
    why: str
    applies_from: int
    arrived_late: bool

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)


class TickRecord(msgspec.Struct, frozen=True, array_like=True):
    """The newest sweep of a round."""

    time_ms: int
    id: str
    asked: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]


class ResultRecord(msgspec.Struct, frozen=True, array_like=True, order=True):
    """What became of an action, applied when its round closes."""

    time_ms: int
    id: str
    action_id: str
    outcome: str


class OpenRound(msgspec.Struct, array_like=True):
    """What is known of a round before it closes, beside its reports."""

    spans: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """First and last report time of each stretch without a gap above ``max_report_age_s``, ascending."""
    tick: TickRecord | None = None
    results: list[ResultRecord] = msgspec.field(default_factory=list)
    has_topics: bool = False
    """Whether statistics of topics wait for its close."""


class PastAction(msgspec.Struct, array_like=True):
    """A decision about one bundle: while it rests or is in flight, the bundle is masked."""

    action_id: str
    decided_ms: int
    """End of the round that decided it."""
    expires_ms: int
    dry_run: bool
    in_flight: bool = True
    failed: bool = False


class PastSplit(msgspec.Struct, frozen=True, array_like=True):
    """What a decided split leaves to each child, so that the children do not begin blind."""

    until_ms: int
    """Later they are no children of it."""
    children: list[tuple[str, float, float]]
    """Full name, and its share of the parent's message rate and of its throughput; none where topics were not known."""


class PastUnloads(msgspec.Struct, frozen=True, array_like=True):
    """How many unloads a round decided."""

    ended_ms: int
    count: int
    dry_run: bool


class Header(msgspec.Struct, array_like=True):
    """Clock, open rounds, control and guards of one cluster."""

    length_ms: int
    newest_ms: int | None = None
    """Newest accepted event time; None before the first event."""
    next_round: int | None = None
    """First round that is still open."""
    partition: int | None = None
    """Partition of the input topic the cluster's records come from."""
    is_known: bool = False
    """Whether a load report was ever accepted."""
    rounds: dict[int, OpenRound] = msgspec.field(default_factory=dict)
    last_summary: int | None = None
    """Number of the last round with a summary."""
    last_report_ms: int | None = None
    """Newest report time of the last round with a summary."""
    rounds_since_start: int = 0
    last_mode: Mode | None = None
    control: list[ControlRecord] = msgspec.field(default_factory=list)
    actions: dict[str, PastAction] = msgspec.field(default_factory=dict)
    """Newest unload of each bundle, while it still masks."""
    unloads: list[PastUnloads] = msgspec.field(default_factory=list)
    """Of the last hour, ascending."""
    splits: dict[str, PastAction] = msgspec.field(default_factory=dict)
    """Newest split of each bundle and of each child of one, while it still masks."""
    inheritances: dict[str, PastSplit] = msgspec.field(default_factory=dict)
    """By parent, while its children may still appear for the first time."""


class Fleet:
    """Brokers and bundles of one cluster and what the policies remember of them. Replaced, never mutated in place."""

    __slots__ = (
        "averages",
        "avg_shedder",
        "broker_last_ms",
        "brokers",
        "bundles",
        "last_ms",
        "listed_rows",
        "namespace",
        "namespaces",
        "owed_skip",
        "owner",
        "run_start_ms",
        "samples",
        "split_averages",
        "split_hits",
        "split_samples",
        "starts",
        "threshold_shedder",
    )

    def __init__(self) -> None:
        self.brokers: list[str] = []
        """Broker ids, ascending; k of them."""
        self.broker_last_ms: Ints = np.zeros(0, dtype=np.int64)
        """Time of each broker's newest snapshot report, (k,)."""
        self.starts: Ints = np.zeros(1, dtype=np.int64)
        """(k + 1,): entries ``starts[i]:starts[i + 1]`` of the two columns below are broker i's listings."""
        self.listed_rows: Ints = np.zeros(0, dtype=np.int64)
        """Bundle row of each listing."""
        self.run_start_ms: Ints = np.zeros(0, dtype=np.int64)
        """When the unbroken run of each listing began."""
        self.bundles: list[str] = []
        """Bundle names; b of them."""
        self.owner: Ints = np.zeros(0, dtype=np.int64)
        """Broker row that owns each bundle, -1 where that broker is forgotten, (b,)."""
        self.averages: Floats = np.zeros((0, 4))
        """Running averages of the traffic, (b, 4)."""
        self.samples: Ints = np.zeros(0, dtype=np.int64)
        """Samples in the average, at most ``bundle_average_samples``, (b,)."""
        self.last_ms: Ints = np.zeros(0, dtype=np.int64)
        """When each bundle was last listed, (b,)."""
        self.owed_skip: Bools = np.zeros(0, dtype=np.bool_)
        """Whether the owner's next sample is its first after a move, (b,)."""
        self.namespaces: list[str] = []
        """Namespaces of the bundles; s of them."""
        self.namespace: Ints = np.zeros(0, dtype=np.int64)
        """Row of each bundle's namespace, (b,)."""
        self.split_averages: Floats = np.zeros((0, 2))
        """Message rate and throughput, in + out, as the split criteria average them, (b, 2)."""
        self.split_samples: Ints = np.zeros(0, dtype=np.int64)
        """Samples in them, at most ``average_samples``, (b,); none while splits are switched off."""
        self.split_hits: Ints = np.zeros(0, dtype=np.int64)
        """Rounds in a row each bundle was above a limit, (b,)."""
        self.avg_shedder = AvgShedderMemory()
        self.threshold_shedder = ThresholdShedderMemory()

    def forget_policies(self) -> None:
        """Start again with hit counts and history."""
        self.split_hits = np.zeros_like(self.split_hits)
        self.avg_shedder = AvgShedderMemory()
        self.threshold_shedder = ThresholdShedderMemory()


class _FleetBytes(msgspec.Struct, array_like=True):
    brokers: list[str]
    broker_last_ms: bytes
    starts: bytes
    listed_rows: bytes
    run_start_ms: bytes
    bundles: str
    owner: bytes
    averages: bytes
    samples: bytes
    last_ms: bytes
    owed_skip: bytes
    low_hits: dict[str, int]
    high_hits: dict[str, int]
    history_ratio: dict[str, float]
    namespaces: list[str]
    namespace: bytes
    split_averages: bytes
    split_samples: bytes
    split_hits: bytes


class _ReportBytes(msgspec.Struct, array_like=True):
    time_ms: int
    id: str
    resources: bytes
    messages_per_s: float
    bytes_per_s: float
    listed_count: int
    bundles: str
    traffic: bytes
    has_traffic: bytes
    counts: bytes


class _TopicsBytes(msgspec.Struct, array_like=True):
    time_ms: int
    id: str
    bundles: str
    counts: bytes
    topics: list[str]
    messages_per_s: bytes
    bytes_per_s: bytes


class WaitingReport(msgspec.Struct, frozen=True):
    """A broker's newest report of an open round."""

    time_ms: int
    id: str
    report: BrokerReport

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)


class WaitingTopics(msgspec.Struct, frozen=True):
    """A broker's newest topic statistics of an open round."""

    time_ms: int
    id: str
    traffic: TopicTraffic

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)


_encoder = msgspec.msgpack.Encoder()
_header_decoder = msgspec.msgpack.Decoder(Header)
_fleet_decoder = msgspec.msgpack.Decoder(_FleetBytes)
_report_decoder = msgspec.msgpack.Decoder(_ReportBytes)
_topics_decoder = msgspec.msgpack.Decoder(_TopicsBytes)


def _body(value: bytes) -> memoryview:
    if value[0] > VERSION:
        raise NewerStateError(
            f"the memory in the checkpoint has version {value[0]}, this trimtab knows {VERSION}: "
            f"run the trimtab that wrote it or a newer one, or start over with --fresh"
        )
    return memoryview(value)[1:]


def _seal(body: Any) -> bytes:
    return bytes([VERSION]) + _encoder.encode(body)


def _ints(value: bytes) -> NDArray[np.int64]:
    return np.frombuffer(value, dtype="<i8")


def _split(joined: str) -> list[str]:
    return joined.split("\n") if joined else []


def encode_header(header: Header) -> bytes:
    """Bytes of a header."""
    return _seal(header)


def decode_header(value: bytes) -> Header:
    """Header from bytes. Raises ``NewerStateError``."""
    return _header_decoder.decode(_body(value))


def encode_fleet(fleet: Fleet) -> bytes:
    """Bytes of a fleet; about 90 bytes a bundle."""
    return _seal(
        _FleetBytes(
            fleet.brokers,
            fleet.broker_last_ms.tobytes(),
            fleet.starts.tobytes(),
            fleet.listed_rows.astype("<u4").tobytes(),
            fleet.run_start_ms.tobytes(),
            "\n".join(fleet.bundles),
            fleet.owner.astype("<i4").tobytes(),
            fleet.averages.tobytes(),
            fleet.samples.astype("<u4").tobytes(),
            fleet.last_ms.tobytes(),
            np.packbits(fleet.owed_skip).tobytes(),
            dict(fleet.avg_shedder.low_hits),
            dict(fleet.avg_shedder.high_hits),
            dict(fleet.threshold_shedder.history_ratio),
            fleet.namespaces,
            fleet.namespace.astype("<u4").tobytes(),
            *_split_columns(fleet),
        )
    )


def _split_columns(fleet: Fleet) -> tuple[bytes, bytes, bytes]:
    """Averages, samples and hits of splits; empty where there is nothing to remember, as while splits are off."""
    if not fleet.split_samples.any() and not fleet.split_hits.any():
        return b"", b"", b""
    return (
        fleet.split_averages.tobytes(),
        fleet.split_samples.astype("<u4").tobytes(),
        fleet.split_hits.astype("<u4").tobytes(),
    )


def decode_fleet(value: bytes) -> Fleet:
    """Fleet from bytes. Raises ``NewerStateError``."""
    body = _fleet_decoder.decode(_body(value))
    fleet = Fleet()
    fleet.brokers = body.brokers
    fleet.broker_last_ms = _ints(body.broker_last_ms)
    fleet.starts = _ints(body.starts)
    fleet.listed_rows = np.frombuffer(body.listed_rows, dtype="<u4").astype(np.int64)
    fleet.run_start_ms = _ints(body.run_start_ms)
    fleet.bundles = _split(body.bundles)
    fleet.owner = np.frombuffer(body.owner, dtype="<i4").astype(np.int64)
    fleet.averages = np.frombuffer(body.averages, dtype="<f8").reshape(-1, 4)
    fleet.samples = np.frombuffer(body.samples, dtype="<u4").astype(np.int64)
    fleet.last_ms = _ints(body.last_ms)
    fleet.owed_skip = _unpack(body.owed_skip, len(fleet.bundles))
    fleet.avg_shedder = AvgShedderMemory(low_hits=body.low_hits, high_hits=body.high_hits)
    fleet.threshold_shedder = ThresholdShedderMemory(history_ratio=body.history_ratio)
    fleet.namespaces = body.namespaces
    fleet.namespace = np.frombuffer(body.namespace, dtype="<u4").astype(np.int64)
    fleet.split_averages = _or_zeros(np.frombuffer(body.split_averages, dtype="<f8").reshape(-1, 2), fleet)
    fleet.split_samples = _or_zeros(np.frombuffer(body.split_samples, dtype="<u4").astype(np.int64), fleet)
    fleet.split_hits = _or_zeros(np.frombuffer(body.split_hits, dtype="<u4").astype(np.int64), fleet)
    return fleet


def _or_zeros(column: NDArray[Any], fleet: Fleet) -> NDArray[Any]:
    return column if len(column) else np.zeros((len(fleet.bundles), *column.shape[1:]), dtype=column.dtype)


def _unpack(bits: bytes, count: int) -> Bools:
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=count).astype(np.bool_)


def encode_report(waiting: WaitingReport) -> bytes:
    """Bytes of a waiting report."""
    report = waiting.report
    return _seal(
        _ReportBytes(
            waiting.time_ms,
            waiting.id,
            report.resources.tobytes(),
            report.messages_per_s,
            report.bytes_per_s,
            report.listed_count,
            "\n".join(report.bundles),
            report.traffic.tobytes(),
            np.packbits(report.has_traffic).tobytes(),
            report.counts.astype("<u4").tobytes(),
        )
    )


def decode_report(value: bytes) -> WaitingReport:
    """Waiting report from bytes. Raises ``NewerStateError``."""
    body = _report_decoder.decode(_body(value))
    bundles = _split(body.bundles)
    return WaitingReport(
        body.time_ms,
        body.id,
        BrokerReport(
            resources=np.frombuffer(body.resources, dtype="<f8").reshape(-1, 2),
            messages_per_s=body.messages_per_s,
            bytes_per_s=body.bytes_per_s,
            listed_count=body.listed_count,
            bundles=bundles,
            traffic=np.frombuffer(body.traffic, dtype="<f8").reshape(-1, 4),
            has_traffic=_unpack(body.has_traffic, len(bundles)),
            counts=np.frombuffer(body.counts, dtype="<u4").astype(np.int64).reshape(-1, 2),
        ),
    )


def encode_topics(waiting: WaitingTopics) -> bytes:
    """Bytes of waiting topic statistics."""
    traffic = waiting.traffic
    return _seal(
        _TopicsBytes(
            waiting.time_ms,
            waiting.id,
            "\n".join(traffic.bundles),
            traffic.counts.astype("<u4").tobytes(),
            traffic.topics,
            traffic.messages_per_s.tobytes(),
            traffic.bytes_per_s.tobytes(),
        )
    )


def decode_topics(value: bytes) -> WaitingTopics:
    """Waiting topic statistics from bytes. Raises ``NewerStateError``."""
    body = _topics_decoder.decode(_body(value))
    return WaitingTopics(
        body.time_ms,
        body.id,
        TopicTraffic(
            bundles=_split(body.bundles),
            counts=np.frombuffer(body.counts, dtype="<u4").astype(np.int64),
            topics=body.topics,
            messages_per_s=np.frombuffer(body.messages_per_s, dtype="<f8"),
            bytes_per_s=np.frombuffer(body.bytes_per_s, dtype="<f8"),
        ),
    )
