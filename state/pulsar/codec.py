"""The compact encoding of a Pulsar cluster's memory.

Every value begins with the version of its layout (``state.layouts``). Columns are little-endian bytes, names are one
newline-joined text, structs are arrays. A changed field, here or in what is encoded, changes the layout: see there what to do.
"""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from policies.columns import Bools
from policies.costs import LEARNED_COUNT, CostMemory
from policies.splitting.plan import BlindCut
from policies.usage import RESOURCES
from state.events import BrokerReport, Published, TopicTraffic
from state.layouts import seal, unseal
from state.pulsar.memory import (
    Fleet,
    Gathered,
    Names,
    PolicyMemory,
    ShadowMoves,
    WaitingReport,
    WaitingTopics,
)


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
    policies: PolicyMemory
    namespaces: list[str]
    namespace: bytes
    split_averages: bytes
    split_samples: bytes
    split_hits: bytes
    shadow: ShadowMoves
    costs: tuple[bytes, list[str], bytes]
    counts: bytes
    above_limit_rounds: bytes
    unmeasured_rounds: bytes
    idle_since_ms: bytes
    blind_cuts: dict[str, BlindCut]
    listed_count: int
    has_absent: bool
    overlapping: list[str]
    gathered: Gathered | None


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
    published: tuple[float, float, int, str, bytes] | None
    system_bundles: str


class _TopicsBytes(msgspec.Struct, array_like=True):
    time_ms: int
    id: str
    bundles: str
    counts: bytes
    topics: list[str]
    messages_per_s: bytes
    bytes_per_s: bytes
    sessions: bytes


_fleet_decoder = msgspec.msgpack.Decoder(_FleetBytes)
_report_decoder = msgspec.msgpack.Decoder(_ReportBytes)
_topics_decoder = msgspec.msgpack.Decoder(_TopicsBytes)


_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "broker_last_ms": ("<i8", ()),
    "starts": ("<i8", ()),
    "listed_rows": ("<u4", ()),
    "run_start_ms": ("<i8", ()),
    "owner": ("<i4", ()),
    "averages": ("<f8", (4,)),
    "samples": ("<u4", ()),
    "last_ms": ("<i8", ()),
    "namespace": ("<u4", ()),
    "split_averages": ("<f8", (2,)),
    "split_samples": ("<u4", ()),
    "split_hits": ("<u4", ()),
    "counts": ("<u4", (2,)),
    "above_limit_rounds": ("u1", (len(RESOURCES),)),
    "unmeasured_rounds": ("u1", (len(RESOURCES),)),
    "idle_since_ms": ("<i8", ()),
}
"""How a column of the fleet is stored: the type of its numbers, and the shape of a row."""
_SPLIT_COLUMNS = ("split_averages", "split_samples", "split_hits")
_SAME = (
    "brokers",
    "policies",
    "namespaces",
    "shadow",
    "blind_cuts",
    "listed_count",
    "has_absent",
    "overlapping",
    "gathered",
)
"""Fields that are stored as they are."""


def _split(joined: str) -> list[str]:
    return joined.split("\n") if joined else []


def _column(value: bytes, dtype: str, *shape: int) -> NDArray[Any]:
    """A column from its bytes; whole numbers are int64."""
    column = np.frombuffer(value, dtype=dtype).reshape(-1, *shape)
    return column if dtype == "<f8" else column.astype(np.int64, copy=False)


def encode_fleet(fleet: Fleet) -> bytes:
    """Bytes of a fleet; about 100 bytes a bundle. Columns with nothing to remember, as those of splits while these are off, are empty."""
    empty = () if fleet.split_samples.any() or fleet.split_hits.any() else _SPLIT_COLUMNS
    empty = empty if fleet.counts.any() else (*empty, "counts")
    columns: dict[str, Any] = {
        name: b"" if name in empty else getattr(fleet, name).astype(dtype, copy=False).tobytes()
        for name, (dtype, _) in _COLUMNS.items()
    }
    return seal(
        _FleetBytes(
            bundles=fleet.bundle_names.text,
            owed_skip=np.packbits(fleet.owed_skip).tobytes(),
            costs=(fleet.costs.sums.tobytes(), list(fleet.costs.names), fleet.costs.factors.tobytes()),
            **columns,
            **{name: getattr(fleet, name) for name in _SAME},
        )
    )


def decode_fleet(value: bytes) -> Fleet:
    """Fleet from bytes. Raises what ``unseal`` does."""
    body = _fleet_decoder.decode(unseal("fleet", value))
    fields: dict[str, Any] = {name: getattr(body, name) for name in _SAME}
    for name, (dtype, shape) in _COLUMNS.items():
        fields[name] = _column(getattr(body, name), dtype, *shape)
    fleet = Fleet(bundle_names=Names(text=body.bundles), **fields)
    count = len(fleet.owner)
    fleet.owed_skip = _unpack(body.owed_skip, count)
    for name in (*_SPLIT_COLUMNS, "counts"):
        column = getattr(fleet, name)
        if not len(column):
            setattr(fleet, name, np.zeros((count, *column.shape[1:]), dtype=column.dtype))
    sums, names, factors = body.costs
    fleet.costs = CostMemory(
        _column(sums, "<f8").reshape(LEARNED_COUNT, -1), names, _column(factors, "<f8", 2 * LEARNED_COUNT)
    )
    return fleet


def _unpack(bits: bytes, count: int) -> Bools:
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=count).astype(np.bool_)


def encode_report(waiting: WaitingReport) -> bytes:
    """Bytes of a waiting report."""
    report = waiting.report
    return seal(
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
            _encode_published(report.published),
            "\n".join(report.system_bundles),
        )
    )


def _encode_published(published: Published | None) -> tuple[float, float, int, str, bytes] | None:
    if published is None:
        return None
    names, volumes = "\n".join(published.top_bundles), published.top_bytes_per_s.tobytes()
    return published.usage_ratio, published.bytes_per_s, published.updated_ms, names, volumes


def _decode_published(encoded: tuple[float, float, int, str, bytes] | None) -> Published | None:
    if encoded is None:
        return None
    usage_ratio, bytes_per_s, updated_ms, names, volumes = encoded
    return Published(
        usage_ratio=usage_ratio,
        bytes_per_s=bytes_per_s,
        updated_ms=updated_ms,
        top_bundles=_split(names),
        top_bytes_per_s=_column(volumes, "<f8"),
    )


def decode_report(value: bytes) -> WaitingReport:
    """Waiting report from bytes. Raises what ``unseal`` does."""
    body = _report_decoder.decode(unseal("report", value))
    bundles = _split(body.bundles)
    return WaitingReport(
        body.time_ms,
        body.id,
        BrokerReport(
            resources=_column(body.resources, "<f8", 2),
            messages_per_s=body.messages_per_s,
            bytes_per_s=body.bytes_per_s,
            listed_count=body.listed_count,
            bundles=bundles,
            traffic=_column(body.traffic, "<f8", 4),
            has_traffic=_unpack(body.has_traffic, len(bundles)),
            counts=_column(body.counts, "<u4", 2),
            system_bundles=_split(body.system_bundles),
            published=_decode_published(body.published),
        ),
    )


def encode_topics(waiting: WaitingTopics) -> bytes:
    """Bytes of waiting topic statistics."""
    traffic = waiting.traffic
    return seal(
        _TopicsBytes(
            waiting.time_ms,
            waiting.id,
            "\n".join(traffic.bundles),
            traffic.counts.astype("<u4").tobytes(),
            traffic.topics,
            traffic.messages_per_s.tobytes(),
            traffic.bytes_per_s.tobytes(),
            traffic.sessions.astype("<u4").tobytes(),
        )
    )


def decode_topics(value: bytes) -> WaitingTopics:
    """Waiting topic statistics from bytes. Raises what ``unseal`` does."""
    body = _topics_decoder.decode(unseal("topics", value))
    return WaitingTopics(
        body.time_ms,
        body.id,
        TopicTraffic(
            bundles=_split(body.bundles),
            counts=_column(body.counts, "<u4"),
            topics=body.topics,
            messages_per_s=_column(body.messages_per_s, "<f8"),
            bytes_per_s=_column(body.bytes_per_s, "<f8"),
            sessions=_column(body.sessions, "<u4"),
        ),
    )
