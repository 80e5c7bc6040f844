"""From a record's bytes to an event, or to the reason why not; one pass over the JSON, numbers straight to columns.

Nothing here raises for a bad record. The good path is one typed decode; only a record that fails it is looked at
again (``diagnose``) to name what is wrong.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter

import msgspec
import numpy as np

from policies.columns import Floats, Ints
from policies.usage import NOT_MEASURED
from state.engine.patterns import BadPattern, compiled
from state.engine.summary import MAX_REMARK_CHARACTERS
from state.events import (
    RATE_IN,
    RATE_OUT,
    SESSIONS,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    TOPICS,
    ActionResult,
    BrokerReport,
    ClusterFacts,
    Control,
    Event,
    KafkaLoadReport,
    LoadReport,
    Reassignment,
    Rejection,
    RejectReason,
    Tick,
    TopicStats,
    TopicTraffic,
)
from state.facts import SPLIT_ALGORITHM, Facts, Isolation
from state.outputs import rfc3339
from streaming.contract.bundles import BadBundleName, KnownBundles
from streaming.contract.diagnose import diagnose
from streaming.contract.kafka import BadReport, broker_logs, moves_report
from streaming.contract.messages import (
    MAX_NAME_CHARACTERS,
    MAX_NUMBER,
    ActionResultMessage,
    BundleStats,
    CommonMessage,
    ControlData,
    ControlMessage,
    KafkaLoadReportMessage,
    KafkaMessage,
    LoadReportMessage,
    LocalBrokerData,
    Message,
    PulsarClusterData,
    PulsarClusterMessage,
    PulsarMessage,
    Resource,
    TickMessage,
    TopicStatsMessage,
    Traffic,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR = 9000
"""Events beyond it are refused: ends and expiries computed from them would leave the calendar."""

_MIN_LIMIT = 1 / MAX_NUMBER
"""Smallest limit above 0 that a percentage can be computed with."""

_decoder = msgspec.json.Decoder(Message)
_packer = msgspec.msgpack.Encoder()
_RATES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
"""Columns of a bundle's traffic, in the order of ``state.events``."""
_rates = attrgetter(*_RATES)
_COUNTS = ("topics", "producerCount", "consumerCount")
_MAX_COUNT = 2**31 - 1
"""Largest count taken: Pulsar's own are 32 bits wide."""


def _packed_row(struct: type[msgspec.Struct]) -> "np.dtype[np.void]":
    """Where the numbers are in a packed struct of floats.

    A mark, then each field's name, a mark and a big-endian double.
    """
    names, offsets, at = struct.__struct_fields__, [], 1
    for name in names:
        at += len(_packer.encode(name)) + 1
        offsets.append(at)
        at += 8
    return np.dtype({"names": names, "formats": [">f8"] * len(names), "offsets": offsets, "itemsize": at})


_TRAFFIC_ROW, _STATS_ROW = _packed_row(Traffic), _packed_row(BundleStats)
_known_bundles = KnownBundles()


class _Refused(Exception):
    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.detail)
        self.rejection = rejection


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded down."""
    delta = moment - _EPOCH
    return (delta.days * 86400 + delta.seconds) * 1000 + delta.microseconds // 1000


def decode(
    value: bytes | None,
    *,
    key: str | None = None,
    appended_ms: int | None = None,
    partition: int | None = None,
) -> tuple[str, Event | Rejection]:
    """The cluster of a record with its event, or with why it is refused.

    ``key`` is the record's key, None where there is none to compare (files); ``appended_ms`` the log's time. The
    cluster of a refused record is empty unless it is valid and equal to the key.
    """
    if value is None:
        detail = "the record has no value: an event was expected, not a tombstone"
        return "", Rejection(reason="not-json", detail=detail)
    try:
        message = _decoder.decode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return diagnose(value, key, error)
    if key is not None and key != message.cluster:
        detail = f"the record's key is {key[:200]!r}, its cluster {message.cluster!r}: they must be equal"
        return "", Rejection(reason="cluster-mismatch", detail=detail)
    try:
        _check_attributes(message)
        if appended_ms is None and message.recordedtime is not None:
            appended_ms = to_ms(message.recordedtime)
        return message.cluster, (
            _kafka_event(message, appended_ms, partition)
            if isinstance(message, KafkaMessage)
            else _event(message, appended_ms, partition)
        )
    except _Refused as refused:
        return message.cluster, refused.rejection
    except BadReport as error:
        return message.cluster, Rejection(reason="bad-data", detail=str(error))


def _check_attributes(message: Message) -> None:
    if message.datacontenttype is not None and not message.datacontenttype.startswith("application/json"):
        detail = f"datacontenttype is {message.datacontenttype[:200]!r}, expected 'application/json'"
        raise _Refused(Rejection(reason="not-cloudevent", detail=detail))
    _check_time("time", message.time, reason="bad-time")
    if message.recordedtime is not None:
        _check_time("recordedtime", message.recordedtime, reason="bad-time")


def _check_time(name: str, moment: datetime, *, reason: RejectReason) -> None:
    if moment < _EPOCH or moment.year >= _LAST_YEAR:
        detail = f"{name} {moment.isoformat()} is not between 1970 and {_LAST_YEAR}"
        raise _Refused(Rejection(reason=reason, detail=detail))


def _event(message: PulsarMessage | CommonMessage, appended_ms: int | None, partition: int | None) -> Event:
    id_, time_ms = message.id, to_ms(message.time)
    match message:
        case LoadReportMessage():
            return LoadReport(
                id=id_,
                time_ms=time_ms,
                appended_ms=appended_ms,
                partition=partition,
                broker=message.subject,
                report=_report(message.data, (message.cluster, message.subject)),
            )
        case TopicStatsMessage():
            return TopicStats(
                id=id_,
                time_ms=time_ms,
                appended_ms=appended_ms,
                partition=partition,
                broker=message.subject,
                traffic=_topic_traffic(message.data),
            )
        case TickMessage(data=data):
            return Tick(
                id=id_,
                time_ms=time_ms,
                appended_ms=appended_ms,
                partition=partition,
                asked=tuple(sorted(data.asked)),
                failed=tuple(sorted(data.failed.items())),
            )
        case ActionResultMessage(data=result):
            return ActionResult(
                id=id_,
                time_ms=time_ms,
                appended_ms=appended_ms,
                partition=partition,
                action_id=message.subject,
                outcome=result.outcome,
            )
        case PulsarClusterMessage(data=found):
            return ClusterFacts(
                id=id_, time_ms=time_ms, appended_ms=appended_ms, partition=partition, facts=_facts(found)
            )
        case ControlMessage(data=overlay):
            return Control(
                id=id_,
                time_ms=time_ms,
                appended_ms=appended_ms,
                paused=overlay.paused,
                mode=overlay.mode,
                overlay=msgspec.json.encode(overlay.settings, order="sorted"),
                who=(overlay.who or "")[:MAX_REMARK_CHARACTERS],
                why=(overlay.why or "")[:MAX_REMARK_CHARACTERS],
                resumed_ms=_resumed_ms(overlay, time_ms),
                forget=overlay.forget,
            )


def _facts(found: PulsarClusterData) -> Facts:
    _check_lengths("broker", found.brokers)
    _check_lengths("isolation policy", found.isolation_policies)
    _check_lengths("anti-affinity group", found.anti_affinity_groups)
    _check_lengths("bundle", found.own_topics)
    for name, policy in found.isolation_policies.items():
        for pattern in (*policy.namespaces, *policy.primary):
            _check_pattern(name, pattern)
    brokers = sorted(found.brokers.items())
    return Facts(
        shedding_brokers=[name for name, broker in brokers if broker.shedding_enabled],
        splitting_brokers=[name for name, broker in brokers if broker.auto_split_enabled],
        unknown_brokers=[
            name for name, broker in brokers if None in (broker.shedding_enabled, broker.auto_split_enabled)
        ],
        isolation=[
            Isolation(name, policy.namespaces, policy.primary)
            for name, policy in sorted(found.isolation_policies.items())
        ],
        anti_affinity={
            group: sorted(found.anti_affinity_groups[group]) for group in sorted(found.anti_affinity_groups)
        },
        restricted_brokers=[
            name
            for name, broker in brokers
            if broker.split_algorithms is not None and SPLIT_ALGORITHM not in broker.split_algorithms
        ],
        own_topics={bundle: _sums(bundle, found.own_topics[bundle]) for bundle in sorted(found.own_topics)},
    )


def _check_lengths(what: str, names: Iterable[str]) -> None:
    """What is said of a bundle, such as why it stays, may name one of them; a round says it of a hundred bundles."""
    longest = max(names, key=len, default="")
    if len(longest) > MAX_NAME_CHARACTERS:
        raise BadReport(
            f"{what} {longest[:200]!r} has {len(longest)} characters, at most {MAX_NAME_CHARACTERS} are taken"
        )


def _sums(bundle: str, topics: Mapping[str, Traffic]) -> tuple[float, float]:
    """Messages/s and bytes/s of some topics, in + out."""
    rates = np.array([[getattr(each, name) or 0.0 for name in _RATES] for each in topics.values()])
    rates = rates.reshape(-1, len(_RATES))
    if len(rates):
        _check_traffic(rates, [f"a topic of {bundle}"] * len(rates))
    return math.fsum(rates[:, :2].ravel().tolist()), math.fsum(rates[:, 2:].ravel().tolist())


def _check_pattern(policy: str, pattern: str) -> None:
    try:
        compiled(pattern)
    except BadPattern as error:
        raise BadReport(
            f"isolation policy {policy[:200]!r} has the regular expression {pattern[:200]!r}, which RE2 does not "
            f"understand ({error}): say it without look-around and back-references"
        ) from error


def _resumed_ms(overlay: ControlData, time_ms: int) -> int | None:
    if overlay.resumed_at is None:
        return None
    _check_time("resumed_at", overlay.resumed_at, reason="bad-data")
    resumed_ms = to_ms(overlay.resumed_at)
    if resumed_ms > time_ms:
        detail = (
            f"resumed_at is {rfc3339(resumed_ms)}, after the event's own time {rfc3339(time_ms)}: nobody can know yet "
            "that later actions work"
        )
        raise _Refused(Rejection(reason="bad-data", detail=detail))
    return resumed_ms


def _kafka_event(
    message: KafkaMessage, appended_ms: int | None, partition: int | None
) -> KafkaLoadReport | Reassignment:
    """Raises ``BadReport``."""
    id_, time_ms = message.id, to_ms(message.time)
    if isinstance(message, KafkaLoadReportMessage):
        return KafkaLoadReport(
            id=id_,
            time_ms=time_ms,
            appended_ms=appended_ms,
            partition=partition,
            broker=message.subject,
            logs=broker_logs(message.data, subject=message.subject),
        )
    return Reassignment(
        id=id_,
        time_ms=time_ms,
        appended_ms=appended_ms,
        partition=partition,
        report=moves_report(message.data),
    )


def _report(data: LocalBrokerData, broker: tuple[str, str]) -> BrokerReport:
    stats = data.lastStats or {}
    try:
        listing = _known_bundles.listing(broker, stats, data.bundles)
    except BadBundleName as error:
        raise _refused_name(error) from error
    columns = _columns(stats.values(), _STATS_ROW)
    _check_stats(columns, listing.with_stats)
    found = columns.take(listing.stats_rows, axis=0)
    rate_in, rate_out, volume_in, volume_out = _broker_rates(data, stats)
    return BrokerReport(
        resources=_resources(data),
        messages_per_s=rate_in + rate_out,
        bytes_per_s=volume_in + volume_out,
        listed_count=listing.listed_count,
        bundles=listing.bundles,
        traffic=found[:, : len(_RATES)],
        has_traffic=listing.has_stats,
        counts=_topics_and_sessions(found[:, len(_RATES) :]),
    )


def _topics_and_sessions(counts: Floats) -> Ints:
    """(n, 2) of (n, 3): producers and consumers are both sessions."""
    found = np.empty((len(counts), 2), dtype=np.int64)
    found[:, TOPICS] = counts[:, 0]
    found[:, SESSIONS] = counts[:, 1] + counts[:, 2]
    return found


def _refused_name(error: BadBundleName) -> _Refused:
    return _Refused(Rejection(reason="bad-bundle-name", detail=str(error)))


def _columns(rows: Collection[Traffic], packed_row: "np.dtype[np.void]") -> Floats:
    """(n + 1, fields); the last row is 0, for bundles without any; null counts as 0, as an absent field does.

    Packed by msgspec, rows without null are of one size, and their numbers are read as columns with no Python object
    between: a sixth of the time of a list of tuples.
    """
    names = packed_row.names
    assert names is not None
    columns = np.zeros((len(rows) + 1, len(names)))
    packed = _packer.encode(list(rows))
    head_bytes = len(packed) - len(rows) * packed_row.itemsize
    has_null = head_bytes <= 0  # a null takes 8 bytes less than a number, the mark of the list at most 5
    if has_null:
        found = np.array(list(map(attrgetter(*names), rows)), dtype=np.float64)
        columns[:-1] = np.where(np.isnan(found), 0.0, found)
    elif rows:
        table = np.frombuffer(packed, dtype=packed_row, offset=head_bytes)
        for column, name in enumerate(names):
            columns[:-1, column] = table[name]
    return columns


def _check_traffic(traffic: Floats, names: Sequence[str]) -> None:
    """``names`` are those of all rows but the last."""
    if traffic.min() >= 0 and traffic.max() <= MAX_NUMBER:
        return
    row = int(np.argmax(((traffic < 0) | (traffic > MAX_NUMBER)).any(axis=1)))
    worst = float(traffic[row].min()) if traffic[row].min() < 0 else float(traffic[row].max())
    raise _Refused(_bad_rate(f"a rate of {names[row][:200]}", worst))


def _check_stats(columns: Floats, names: Sequence[str]) -> None:
    """``names`` are those of all rows but the last."""
    if columns.min() >= 0 and columns.max() <= _MAX_COUNT:
        return
    traffic, counts = columns[:, : len(_RATES)], columns[:, len(_RATES) :]
    _check_traffic(traffic, names)
    bad = np.argwhere((counts < 0) | (counts > _MAX_COUNT))
    if len(bad):
        row, column = bad[0].tolist()
        detail = (
            f"{_COUNTS[column]} of {names[row][:200]} is {counts[row, column]:g}, expected 0 to {_MAX_COUNT}"
        )
        raise _Refused(Rejection(reason="bad-data", detail=detail))


def _bad_rate(what: str, value: float) -> Rejection:
    if value < 0:
        return Rejection(reason="negative-rate", detail=f"{what} is {value!r}, expected 0 or more")
    return Rejection(reason="bad-data", detail=f"{what} is {value!r}, expected at most {MAX_NUMBER:g}")


def _broker_rates(data: LocalBrokerData, stats: Mapping[str, Traffic]) -> list[float]:
    """The broker's four rates; an absent one is the sum over its bundles."""
    rates = []
    for name, given in zip(_RATES, _rates(data), strict=True):
        value = math.fsum(getattr(row, name) or 0.0 for row in stats.values()) if given is None else given
        if not 0 <= value <= MAX_NUMBER:
            raise _Refused(_bad_rate(name, value))
        rates.append(value)
    return rates


def _resources(data: LocalBrokerData) -> Floats:
    """(4, 2) usage and limit; heap memory is checked like the others and left out."""
    found = []
    for name, resource in (
        ("cpu", data.cpu),
        ("bandwidthIn", data.bandwidthIn),
        ("bandwidthOut", data.bandwidthOut),
        ("directMemory", data.directMemory),
        ("memory", data.memory),
    ):
        usage, limit = _measurement(resource)
        if not (0 <= usage <= MAX_NUMBER and (limit <= 0 or _MIN_LIMIT <= limit <= MAX_NUMBER)):
            _check_resource(name, usage, limit)
        found.append((usage, limit))
    return np.array(found[:4])


def _measurement(resource: Resource | None) -> tuple[float, float]:
    """Usage and limit; a limit without a usage says nothing, a usage without a limit cannot be judged."""
    if resource is None or resource.usage is None:
        return NOT_MEASURED, NOT_MEASURED
    return resource.usage, NOT_MEASURED if resource.limit is None else resource.limit


def _check_resource(name: str, usage: float, limit: float) -> None:
    if usage < 0 and not usage == limit == NOT_MEASURED:
        detail = f"{name}.usage is {usage!r} with limit {limit!r}, expected 0 or more, or -1 with limit -1"
        raise _Refused(Rejection(reason="negative-usage", detail=detail))
    if usage > MAX_NUMBER or 0 < limit < _MIN_LIMIT or limit > MAX_NUMBER:
        detail = f"{name} has usage {usage!r} and limit {limit!r}: no percentage can be computed of them"
        raise _Refused(Rejection(reason="bad-data", detail=detail))


def _topic_traffic(data: dict[str, dict[str, Traffic]]) -> TopicTraffic:
    try:
        _known_bundles.check(data.keys())
    except BadBundleName as error:
        raise _refused_name(error) from error
    names = [topic for topics in data.values() for topic in topics]
    _check_lengths("topic", names)
    traffic = _columns([row for topics in data.values() for row in topics.values()], _TRAFFIC_ROW)
    _check_traffic(traffic, names)
    return TopicTraffic(
        bundles=list(data),
        counts=np.array([len(topics) for topics in data.values()], dtype=np.int64),
        topics=names,
        messages_per_s=traffic[:-1, RATE_IN] + traffic[:-1, RATE_OUT],
        bytes_per_s=traffic[:-1, THROUGHPUT_IN] + traffic[:-1, THROUGHPUT_OUT],
    )
