"""What is known of a Pulsar cluster, checked: load reports and topic statistics as columns, and the facts that come beside them.

A report comes from a broker's own `LocalBrokerData` or, where the extensible load manager runs, from what the broker publishes.
Whatever cannot be used is refused with its reason.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

import msgspec
import numpy as np

from policies.columns import Floats
from policies.usage import NOT_MEASURED
from policies.wording import digits
from state.events import (
    RATE_IN,
    RATE_OUT,
    SESSIONS,
    SYSTEM_NAMESPACE,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    TOPICS,
    BrokerReport,
    Published,
    RejectReason,
    TopicTraffic,
    is_system_bundle,
    namespace_of,
)
from state.facts import SPLIT_ALGORITHM, Facts, Isolation
from state.overlay import MAX_NAME_CHARACTERS
from state.pulsar.groups import BadPattern, compile_pattern
from streaming.contract.bundles import KnownBundles
from streaming.contract.messages import (
    MAX_NUMBER,
    SHOWN_CHARACTERS,
    BrokerLoadData,
    BundleStats,
    LocalBrokerData,
    PulsarClusterData,
    Resource,
    TopicLoad,
    Traffic,
)
from streaming.contract.refusal import Refusal

_MIN_LIMIT = 1 / MAX_NUMBER
"""Smallest limit above 0 that a percentage can be computed with."""
_ROUNDING = 1e-9
"""Brokers compute usage as a difference: an idle processor comes out as -5.6e-17 of 200 points now and then."""

_packer = msgspec.msgpack.Encoder()
RATES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
"""Columns of a bundle's traffic, in the order of ``state.events``."""
_rates = attrgetter(*RATES)
RESOURCE_NAMES = ("cpu", "bandwidthIn", "bandwidthOut", "directMemory", "memory")
_MAX_COUNT = 2**31 - 1
"""Largest count that is accepted: Pulsar's own counts are 32 bits wide."""


def _packed_row(struct: type[msgspec.Struct]) -> "np.dtype[np.void]":
    """Where the numbers are in a packed struct of floats.

    The struct begins with a mark. For each field follow its name, a mark and a big-endian double.
    """
    names, offsets, at = struct.__struct_fields__, [], 1
    for name in names:
        at += len(_packer.encode(name)) + 1
        offsets.append(at)
        at += 8
    return np.dtype({"names": names, "formats": [">f8"] * len(names), "offsets": offsets, "itemsize": at})


_TOPIC_ROW, _STATS_ROW = _packed_row(TopicLoad), _packed_row(BundleStats)
_known_bundles = KnownBundles()


def local_report(data: LocalBrokerData, broker: tuple[str, str]) -> BrokerReport:
    """The report of ``broker`` (its cluster and id) by its own data. Raises ``Refusal``, also where the data says nothing of a broker."""
    if not any(map(_says_something, msgspec.structs.astuple(data))):
        resources, others = ", ".join(RESOURCE_NAMES), "a rate such as msgRateIn, lastStats, bundles"
        detail = f"data has no usage, no rate and no bundle of the broker: expected Pulsar's LocalBrokerData with {resources}, {others}"
        raise Refusal("bad-data", detail)
    return broker_report(data, broker)


def _says_something(value: object) -> bool:
    """Whether a field is there: a usage, a rate (0 is one), or at least one bundle."""
    if isinstance(value, Resource):
        return value.usage is not None
    return value is not None and value not in ({}, [])


def broker_report(data: LocalBrokerData, broker: tuple[str, str]) -> BrokerReport:
    stats = data.lastStats or {}
    listing = _known_bundles.listing(broker, stats, data.bundles)
    _known_bundles.check({*(data.systemBundles or ())})
    columns = _columns(stats.values(), _STATS_ROW)
    _check_stats(columns, listing.with_stats, BundleStats)
    rows = columns.take(listing.stats_rows, axis=0)
    topics, producers, consumers = rows[:, len(RATES) :].T
    counts = np.empty((len(rows), 2), dtype=np.int64)
    counts[:, TOPICS], counts[:, SESSIONS] = topics, producers + consumers
    rate_in, rate_out, volume_in, volume_out = _broker_rates(data, stats)
    shown_messages_per_s = math.fsum(columns[:, [RATE_IN, RATE_OUT]].ravel().tolist())
    return BrokerReport(
        resources=_resources(data),
        messages_per_s=rate_in + rate_out,
        bytes_per_s=volume_in + volume_out,
        listed_count=listing.listed_count,
        bundles=listing.bundles,
        traffic=rows[:, : len(RATES)],
        has_traffic=listing.has_stats,
        counts=counts,
        system_bundles=sorted({*listing.system_bundles, *filter(is_system_bundle, data.systemBundles)})
        if data.systemBundles
        else listing.system_bundles,
        busy_system_count=sum(
            namespace_of(name) == SYSTEM_NAMESPACE and any(_rates(stats[name]))
            for name in listing.system_bundles
            if name in stats
        ),
        unlisted_messages_per_s=max(0.0, rate_in + rate_out - shown_messages_per_s),
    )


def _columns(rows: Collection[Traffic], packed_row: "np.dtype[np.void]") -> Floats:
    """Columns (n + 1, fields). The last row is 0, for bundles without numbers; null counts as 0, as an absent field does.

    Rows without null have the same size when msgspec packs them, so their numbers are read as columns without a Python
    object for each. This takes a sixth of the time of a list of tuples.
    """
    names = packed_row.names
    assert names is not None
    columns = np.zeros((len(rows) + 1, len(names)))
    packed = _packer.encode(list(rows))
    head_bytes = len(packed) - len(rows) * packed_row.itemsize
    has_null = head_bytes <= 0  # a null takes 8 bytes less than a number, the mark of the list at most 5
    if has_null:
        values = np.array(list(map(attrgetter(*names), rows)), dtype=np.float64)
        columns[:-1] = np.where(np.isnan(values), 0.0, values)
    elif rows:
        table = np.frombuffer(packed, dtype=packed_row, offset=head_bytes)
        for column, name in enumerate(names):
            columns[:-1, column] = table[name]
    return columns


def check_traffic(traffic: Floats, names: Sequence[str]) -> None:
    """Raise ``Refusal`` for a bad number; ``names`` are those of all rows but the last."""
    if traffic.min() >= 0 and traffic.max() <= MAX_NUMBER:
        return
    row = int(np.argmax(((traffic < 0) | (traffic > MAX_NUMBER)).any(axis=1)))
    worst = float(traffic[row].min()) if traffic[row].min() < 0 else float(traffic[row].max())
    raise _bad_rate(f"a rate of {names[row][:SHOWN_CHARACTERS]}", worst)


def _check_stats(columns: Floats, names: Sequence[str], struct: type[Traffic]) -> None:
    """Raise ``Refusal`` for a bad rate or count; ``names`` are those of all rows but the last, ``struct`` has the columns' names."""
    if columns.min() >= 0 and columns.max() <= _MAX_COUNT:
        return
    traffic, counts = columns[:, : len(RATES)], columns[:, len(RATES) :]
    check_traffic(traffic, names)
    bad = np.argwhere((counts < 0) | (counts > _MAX_COUNT))
    if len(bad):
        row, column = bad[0].tolist()
        count = struct.__struct_fields__[len(RATES) + column]
        detail = f"{count} of {names[row][:SHOWN_CHARACTERS]} is {digits(counts[row, column])}, expected 0 to {digits(_MAX_COUNT)}"
        raise Refusal("bad-data", detail)


def _bad_rate(what: str, value: float) -> Refusal:
    if value < 0:
        return Refusal("negative-rate", f"{what} is {value!r}, expected 0 or more")
    return Refusal("bad-data", f"{what} is {value!r}, expected at most {MAX_NUMBER:g}")


def _broker_rates(data: LocalBrokerData, stats: Mapping[str, Traffic]) -> list[float]:
    """The broker's four rates; an absent one is the sum over its bundles."""
    rates = []
    for name, given in zip(RATES, _rates(data), strict=True):
        value = math.fsum(getattr(row, name) or 0.0 for row in stats.values()) if given is None else given
        if not 0 <= value <= MAX_NUMBER:
            raise _bad_rate(name, value)
        rates.append(value)
    return rates


def _resources(data: LocalBrokerData) -> Floats:
    """Usage and limit, (4, 2); heap memory is checked like the others and left out."""
    measured = []
    for name in RESOURCE_NAMES:
        resource: Resource | None = getattr(data, name)
        usage, limit = _measurement(resource)
        if not (0 <= usage <= MAX_NUMBER and (limit <= 0 or _MIN_LIMIT <= limit <= MAX_NUMBER)):
            _check_resource(name, usage, limit)
        measured.append((usage, limit))
    return np.array(measured[:4])


def _measurement(resource: Resource | None) -> tuple[float, float]:
    """Usage and limit. Without a usage both count as not measured; without a limit the usage cannot be judged."""
    if resource is None or resource.usage is None:
        return NOT_MEASURED, NOT_MEASURED
    usage = 0.0 if -_ROUNDING < resource.usage < 0 else resource.usage
    return usage, NOT_MEASURED if resource.limit is None else resource.limit


def _check_resource(name: str, usage: float, limit: float) -> None:
    if usage < 0 and not usage == limit == NOT_MEASURED:
        detail = f"{name}.usage is {usage!r} with limit {limit!r}, expected 0 or more, or -1 with limit -1"
        raise Refusal("negative-usage", detail)
    if usage > MAX_NUMBER or 0 < limit < _MIN_LIMIT or limit > MAX_NUMBER:
        detail = f"{name} has usage {usage!r} and limit {limit!r}: no percentage can be computed of them"
        raise Refusal("bad-data", detail)


def topic_traffic(data: dict[str, dict[str, TopicLoad]]) -> TopicTraffic:
    _known_bundles.check(data.keys())
    names = [topic for topics in data.values() for topic in topics]
    check_lengths("topic", names)
    columns = _columns([row for topics in data.values() for row in topics.values()], _TOPIC_ROW)
    _check_stats(columns, names, TopicLoad)
    traffic = columns[:-1]
    return TopicTraffic(
        bundles=list(data),
        counts=np.array([len(topics) for topics in data.values()], dtype=np.int64),
        topics=names,
        messages_per_s=traffic[:, RATE_IN] + traffic[:, RATE_OUT],
        bytes_per_s=traffic[:, THROUGHPUT_IN] + traffic[:, THROUGHPUT_OUT],
        sessions=traffic[:, len(RATES) :].sum(axis=1).astype(np.int64),
    )


def check_lengths(what: str, names: Iterable[str]) -> None:
    """Raise ``Refusal`` for a name that is too long: a round summary may quote such names for a hundred bundles."""
    longest = max(names, key=len, default="")
    if len(longest) > MAX_NAME_CHARACTERS:
        raise Refusal(
            "bad-data",
            f"{what} {longest[:SHOWN_CHARACTERS]!r} has {len(longest)} characters, at most {MAX_NAME_CHARACTERS} are taken",
        )


_LAST_MS = 221_845_392_000_000
"""Year 9000, the same limit as for the time of an event."""


def published_report(data: BrokerLoadData, broker: tuple[str, str]) -> BrokerReport:
    """The report of ``broker`` (its cluster and id). Raises ``Refusal``."""
    names = [bundle.bundleName for bundle in data.topBundlesLoadData]
    _check(data, names)
    stats = {**data.otherBundles, **{bundle.bundleName: bundle.stats for bundle in data.topBundlesLoadData}}
    given = {name: getattr(data, name) for name in LocalBrokerData.__struct_fields__ if hasattr(data, name)}
    report = broker_report(LocalBrokerData(**given, lastStats=stats), broker)
    volumes = [
        (bundle.stats.msgThroughputIn or 0.0) + (bundle.stats.msgThroughputOut or 0.0)
        for bundle in data.topBundlesLoadData
    ]
    published = Published(
        usage_ratio=data.weightedMaxEMA,
        bytes_per_s=data.msgThroughputEMA,
        updated_ms=data.updatedAt,
        top_bundles=names,
        top_bytes_per_s=np.array(volumes, dtype=np.float64),
    )
    return replace(report, published=published)


def _check(data: BrokerLoadData, names: list[str]) -> None:
    smoothed: tuple[tuple[str, RejectReason], ...] = (
        ("weightedMaxEMA", "negative-usage"),
        ("msgThroughputEMA", "negative-rate"),
    )
    for name, reason in smoothed:
        value = getattr(data, name)
        if value < 0:
            raise Refusal(reason, f"{name} is {value!r}, expected 0 or more")
        if value > MAX_NUMBER:
            raise Refusal("bad-data", f"{name} is {value!r}, expected at most {MAX_NUMBER:g}")
    if not 0 <= data.updatedAt <= _LAST_MS:
        raise Refusal("bad-data", f"updatedAt is {data.updatedAt}, expected milliseconds since 1970")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Refusal("bad-data", f"topBundlesLoadData has {twice[:SHOWN_CHARACTERS]!r} twice")


def facts_of(data: PulsarClusterData) -> Facts:
    """The facts of a cluster. Raises ``Refusal``."""
    check_lengths("broker", data.brokers)
    check_lengths("isolation policy", data.isolation_policies)
    check_lengths("anti-affinity group", data.anti_affinity_groups)
    check_lengths("bundle", data.trimtab_topics)
    check_lengths("failure domain", data.failure_domains)
    for name, policy in data.isolation_policies.items():
        for pattern in (*policy.namespaces, *policy.primary):
            _check_pattern(name, pattern)
    brokers = sorted(data.brokers.items())
    return Facts(
        shedding_brokers=[name for name, broker in brokers if broker.shedding_enabled],
        splitting_brokers=[name for name, broker in brokers if broker.auto_split_enabled],
        unknown_brokers=[
            name for name, broker in brokers if None in (broker.shedding_enabled, broker.auto_split_enabled)
        ],
        isolation=[
            Isolation(name, policy.namespaces, policy.primary)
            for name, policy in sorted(data.isolation_policies.items())
        ],
        anti_affinity={
            group: sorted(data.anti_affinity_groups[group]) for group in sorted(data.anti_affinity_groups)
        },
        restricted_brokers=[
            name
            for name, broker in brokers
            if broker.split_algorithms is not None and SPLIT_ALGORITHM not in broker.split_algorithms
        ],
        failure_domains={name: sorted(data.failure_domains[name]) for name in sorted(data.failure_domains)},
        trimtab_topics={
            bundle: _sums(bundle, data.trimtab_topics[bundle]) for bundle in sorted(data.trimtab_topics)
        },
    )


def _sums(bundle: str, topics: Mapping[str, Traffic]) -> tuple[float, float]:
    """Messages/s and bytes/s of some topics, in + out."""
    rates = np.array([[getattr(topic, name) or 0.0 for name in RATES] for topic in topics.values()])
    rates = rates.reshape(-1, len(RATES))
    if len(rates):
        check_traffic(rates, [f"a topic of {bundle}"] * len(rates))
    return math.fsum(rates[:, :2].ravel().tolist()), math.fsum(rates[:, 2:].ravel().tolist())


def _check_pattern(policy: str, pattern: str) -> None:
    try:
        compile_pattern(pattern)
    except BadPattern as error:
        raise Refusal(
            "bad-data",
            f"isolation policy {policy[:SHOWN_CHARACTERS]!r} has the regular expression {pattern[:SHOWN_CHARACTERS]!r}, which RE2 does not "
            f"understand ({error}): write it without look-around and back-references",
        ) from error
