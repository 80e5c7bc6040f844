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
    shadow: ShadowMoves = {}
    costs: tuple[bytes, list[str], bytes] = (b"", [], b"")
    counts: bytes = b""
    above_limit_rounds: bytes = b""
    unmeasured_rounds: bytes = b""
    idle_since_ms: bytes = b""
    blind_cuts: dict[str, BlindCut] = {}
    listed_count: int = 0
    has_absent: bool = False
    overlapping: list[str] = []
    gathered: Gathered | None = None


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
    published: tuple[float, float, int, str, bytes] | None = None
    pulsars_own: str = ""


class _TopicsBytes(msgspec.Struct, array_like=True):
    time_ms: int
    id: str
    bundles: str
    counts: bytes
    topics: list[str]
    messages_per_s: bytes
    bytes_per_s: bytes
    sessions: bytes = b""


_fleet_decoder = msgspec.msgpack.Decoder(_FleetBytes)
_report_decoder = msgspec.msgpack.Decoder(_ReportBytes)
_topics_decoder = msgspec.msgpack.Decoder(_TopicsBytes)


def _ints(value: bytes) -> NDArray[np.int64]:
    return np.frombuffer(value, dtype="<i8")


def _counts(value: bytes) -> NDArray[np.int64]:
    return np.frombuffer(value, dtype="u1").astype(np.int64).reshape(-1, len(RESOURCES))


def _split(joined: str) -> list[str]:
    return joined.split("\n") if joined else []


def encode_fleet(fleet: Fleet) -> bytes:
    """Bytes of a fleet; about 100 bytes a bundle."""
    return seal(
        _FleetBytes(
            fleet.brokers,
            fleet.broker_last_ms.tobytes(),
            fleet.starts.tobytes(),
            fleet.listed_rows.astype("<u4").tobytes(),
            fleet.run_start_ms.tobytes(),
            fleet.bundle_names.text,
            fleet.owner.astype("<i4").tobytes(),
            fleet.averages.tobytes(),
            fleet.samples.astype("<u4").tobytes(),
            fleet.last_ms.tobytes(),
            np.packbits(fleet.owed_skip).tobytes(),
            fleet.policies,
            fleet.namespaces,
            fleet.namespace.astype("<u4").tobytes(),
            *_split_columns(fleet),
            fleet.shadow,
            (fleet.costs.sums.tobytes(), list(fleet.costs.names), fleet.costs.factors.tobytes()),
            fleet.counts.astype("<u4").tobytes() if fleet.counts.any() else b"",
            fleet.above_limit_rounds.astype("u1").tobytes(),
            fleet.unmeasured_rounds.astype("u1").tobytes(),
            fleet.idle_since_ms.tobytes(),
            fleet.blind_cuts,
            fleet.listed_count,
            fleet.has_absent,
            fleet.overlapping,
            fleet.gathered,
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
    """Fleet from bytes. Raises what ``unseal`` does."""
    body = _fleet_decoder.decode(unseal("fleet", value))
    fleet = Fleet()
    fleet.brokers = body.brokers
    fleet.broker_last_ms = _ints(body.broker_last_ms)
    fleet.above_limit_rounds = _counts(body.above_limit_rounds)
    fleet.unmeasured_rounds = _counts(body.unmeasured_rounds)
    fleet.idle_since_ms = _ints(body.idle_since_ms)
    fleet.starts = _ints(body.starts)
    fleet.listed_rows = np.frombuffer(body.listed_rows, dtype="<u4").astype(np.int64)
    fleet.run_start_ms = _ints(body.run_start_ms)
    fleet.bundle_names = Names(text=body.bundles)
    fleet.owner = np.frombuffer(body.owner, dtype="<i4").astype(np.int64)
    fleet.averages = np.frombuffer(body.averages, dtype="<f8").reshape(-1, 4)
    fleet.samples = np.frombuffer(body.samples, dtype="<u4").astype(np.int64)
    fleet.last_ms = _ints(body.last_ms)
    fleet.owed_skip = _unpack(body.owed_skip, len(fleet.owner))
    fleet.policies = body.policies
    fleet.shadow = body.shadow
    sums, names, factors = body.costs
    if sums:
        fleet.costs = CostMemory(
            np.frombuffer(sums, dtype="<f8").reshape(LEARNED_COUNT, -1),
            names,
            np.frombuffer(factors, dtype="<f8").reshape(-1, 2 * LEARNED_COUNT),
        )
    fleet.blind_cuts = body.blind_cuts
    fleet.listed_count, fleet.has_absent = body.listed_count, body.has_absent
    fleet.overlapping, fleet.gathered = body.overlapping, body.gathered
    fleet.namespaces = body.namespaces
    fleet.namespace = np.frombuffer(body.namespace, dtype="<u4").astype(np.int64)
    fleet.counts = _or_zeros(np.frombuffer(body.counts, dtype="<u4").astype(np.int64).reshape(-1, 2), fleet)
    fleet.split_averages = _or_zeros(np.frombuffer(body.split_averages, dtype="<f8").reshape(-1, 2), fleet)
    fleet.split_samples = _or_zeros(np.frombuffer(body.split_samples, dtype="<u4").astype(np.int64), fleet)
    fleet.split_hits = _or_zeros(np.frombuffer(body.split_hits, dtype="<u4").astype(np.int64), fleet)
    return fleet


def _or_zeros(column: NDArray[Any], fleet: Fleet) -> NDArray[Any]:
    return column if len(column) else np.zeros((len(fleet.owner), *column.shape[1:]), dtype=column.dtype)


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
            "\n".join(report.pulsars_own),
        )
    )


def _encode_published(published: Published | None) -> tuple[float, float, int, str, bytes] | None:
    if published is None:
        return None
    names, volumes = "\n".join(published.top_bundles), published.top_bytes_per_s.tobytes()
    return published.usage_ratio, published.bytes_per_s, published.updated_ms, names, volumes


def _decode_published(found: tuple[float, float, int, str, bytes] | None) -> Published | None:
    if found is None:
        return None
    usage_ratio, bytes_per_s, updated_ms, names, volumes = found
    return Published(
        usage_ratio=usage_ratio,
        bytes_per_s=bytes_per_s,
        updated_ms=updated_ms,
        top_bundles=_split(names),
        top_bytes_per_s=np.frombuffer(volumes, dtype="<f8"),
    )


def decode_report(value: bytes) -> WaitingReport:
    """Waiting report from bytes. Raises what ``unseal`` does."""
    body = _report_decoder.decode(unseal("report", value))
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
            pulsars_own=_split(body.pulsars_own),
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
            counts=np.frombuffer(body.counts, dtype="<u4").astype(np.int64),
            topics=body.topics,
            messages_per_s=np.frombuffer(body.messages_per_s, dtype="<f8"),
            bytes_per_s=np.frombuffer(body.bytes_per_s, dtype="<f8"),
            sessions=np.frombuffer(body.sessions or bytes(4 * len(body.topics)), dtype="<u4").astype(
                np.int64
            ),
        ),
    )
