"""Checks a broker's answers as far as a collector has to, and chooses the bundles whose topics are worth reporting.

A load report goes on as it is, with the bundles of ``pulsar/system`` that it does not list: the controller decides whether its numbers
can be used. Here only answers are refused that are no load report, or another load manager's, because they would look like brokers
without load. What a broker of the extensible load manager published becomes one event with what it owns and what its topics carry.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from policies.splitting.plan import SplitSettings
from streaming.contract.messages import BundleStats, TopicLoad, Traffic
from streaming.contract.pulsar import RATES
from streaming.pulsar.load_data import NoLoadData, PublishedLoad
from streaming.settings.targets import TopicStatsWanted

_REPORT_TYPE = "LocalBrokerData"
_NEAR_RATIO = 0.5
"""Share of a split limit from which a bundle's topics are reported, so that they are there before the limit is reached."""


class ForeignReport(Exception):
    """A broker's answer is no load report of the modular load manager; the text says what it is."""


class BundleLoad(BundleStats, frozen=True):
    """A bundle's load with its sums."""

    @property
    def messages_per_s(self) -> float:
        """Messages per second, in + out."""
        return (self.msgRateIn or 0.0) + (self.msgRateOut or 0.0)

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second, in + out."""
        return (self.msgThroughputIn or 0.0) + (self.msgThroughputOut or 0.0)

    @property
    def sessions_count(self) -> float:
        """Number of producers and consumers."""
        return (self.producerCount or 0.0) + (self.consumerCount or 0.0)


class LoadReportAnswer(msgspec.Struct, frozen=True):
    """The part of a load report that a collector reads."""

    loadReportType: str | None = None  # noqa: N815
    loadManagerClassName: str | None = None  # noqa: N815
    lastStats: dict[str, BundleLoad] | None = None  # noqa: N815
    bundles: list[str] | None = None


_report = msgspec.json.Decoder(LoadReportAnswer)


class _Client(msgspec.Struct, frozen=True, gc=False):
    """A consumer in Pulsar's statistics, of which nothing is read: a topic can have 40,000, and only their number matters."""


class _Subscription(msgspec.Struct, frozen=True, gc=False):
    consumers: list[_Client] | None = None


class _TopicAnswer(Traffic, frozen=True, gc=False):
    """What is read of a topic's statistics."""

    producerCount: float | None = None  # noqa: N815  Pulsar's name; brokers do not list all that they count
    subscriptions: dict[str, _Subscription] | None = None


_bundles = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])
_topics = msgspec.json.Decoder(dict[str, dict[str, _TopicAnswer]])


def read_report(answer: bytes) -> LoadReportAnswer:
    """Raises ``ForeignReport`` for an empty answer, one that is not JSON, and one of another load manager.

    A report with numbers that cannot be read counts as one without bundles here: the controller refuses it, by name.
    """
    if answer.strip() in {b"", b"null"}:
        raise ForeignReport("no load report: its load manager makes none")
    try:
        report = _report.decode(answer)
    except msgspec.ValidationError:
        return LoadReportAnswer()
    except msgspec.DecodeError as error:
        raise ForeignReport(f"the load report is not JSON ({error})") from error
    if report.loadReportType not in {_REPORT_TYPE, None}:
        raise ForeignReport(
            f"a load report of type {report.loadReportType!r} (load manager {report.loadManagerClassName}); "
            f"only {_REPORT_TYPE!r} of the modular load manager can be read"
        )
    return report


def with_system_bundles(report: bytes, bundles: Collection[str]) -> bytes:
    """A load report with ``bundles``, those of ``pulsar/system`` that its broker owns; verbatim where there are none.

    The modular load manager lists a bundle only while a topic of it is loaded, but owning one is what makes a broker a transaction
    coordinator.
    """
    if not bundles:
        return report
    return msgspec.json.encode(
        {**msgspec.json.decode(report, type=dict[str, msgspec.Raw]), "systemBundles": sorted(bundles)}
    )


def wanted_bundles(
    bundles: Mapping[str, BundleLoad], *, wanted: TopicStatsWanted, limits: SplitSettings
) -> set[str] | None:
    """Bundles whose topics are reported; None for all.

    These are the bundles at ``_NEAR_RATIO`` of a split limit, and the broker's heaviest by rate and by throughput: one that
    puts its broker above average and fits no other is split although it is below every limit. A limit of 0 is no limit.
    """
    if wanted == "all":
        return None
    if wanted == "none" or not bundles:
        return set()
    near = {name for name, load in bundles.items() if _is_near(load, limits)}
    for measure in ("messages_per_s", "bytes_per_s"):
        load, name = max((getattr(load, measure), name) for name, load in bundles.items())
        near |= {name} if load > 0 else set()
    return near


def _is_near(load: BundleLoad, limits: SplitSettings) -> bool:
    pairs = (
        (load.topics or 0.0, limits.max_topics_count),
        (load.sessions_count, limits.max_sessions_count),
        (load.messages_per_s, limits.max_messages_per_s),
        (load.bytes_per_s, limits.max_bytes_per_s),
    )
    return any(limit > 0 and value >= _NEAR_RATIO * limit and value > 0 for value, limit in pairs)


def topic_traffic(answer: bytes, wanted: set[str] | None) -> dict[str, dict[str, TopicLoad]]:
    """Traffic and clients by bundle and topic from a broker's ``broker-stats/topics``. Raises ``ForeignReport``.

    Only the ``wanted`` bundles are read, and no consumer becomes an object of its own.
    """
    try:
        return {
            name: {
                topic: _topic_load(stats)
                for topics in _topics.decode(kinds).values()
                for topic, stats in topics.items()
            }
            for namespace, ranges in _bundles.decode(answer).items()
            for range_, kinds in ranges.items()
            if (name := f"{namespace}/{range_}") and (wanted is None or name in wanted)
        }
    except msgspec.DecodeError as error:
        raise ForeignReport(f"unreadable topic statistics ({error})") from error


def _topic_load(answer: _TopicAnswer) -> TopicLoad:
    consumers = (
        None
        if answer.subscriptions is None
        else [subscription.consumers for subscription in answer.subscriptions.values()]
    )
    return TopicLoad(
        msgRateIn=answer.msgRateIn,
        msgRateOut=answer.msgRateOut,
        msgThroughputIn=answer.msgThroughputIn,
        msgThroughputOut=answer.msgThroughputOut,
        producers=answer.producerCount,
        consumers=None
        if consumers is None or None in consumers
        else float(sum(map(len, filter(None, consumers)))),
    )


class _Top(msgspec.Struct, frozen=True):
    bundleName: str  # noqa: N815  Pulsar's names
    stats: BundleLoad


class PublishedAnswer(msgspec.Struct, frozen=True):
    """The part of a broker's published load that a collector reads."""

    load: dict[str, msgspec.Raw]
    top_bundles: msgspec.Raw
    """A JSON list."""
    bundles: dict[str, BundleLoad]
    """The broker's heaviest bundles, by name."""


_load = msgspec.json.Decoder(dict[str, msgspec.Raw])
_top_bundles = msgspec.json.Decoder(list[_Top])


def read_published(published: PublishedLoad) -> PublishedAnswer:
    """Raises ``NoLoadData`` for what is not JSON; the controller refuses numbers that cannot be read, by name."""
    try:
        load = _load.decode(published.load)
        fields = _load.decode(published.top_bundles or b"{}")
    except msgspec.DecodeError as error:
        raise NoLoadData(f"what it published is not JSON of Pulsar's BrokerLoadData ({error})") from error
    top_bundles = fields.get("topBundlesLoadData", msgspec.Raw(b"[]"))
    try:
        top = _top_bundles.decode(top_bundles)
    except msgspec.DecodeError:
        top = []
    return PublishedAnswer(
        load=load,
        top_bundles=top_bundles,
        bundles={bundle.bundleName: bundle.stats for bundle in top},
    )


def broker_load(
    answer: PublishedAnswer, owned: Iterable[str], topics: Mapping[str, Mapping[str, TopicLoad]]
) -> bytes:
    """`data` of the event; ``topics`` of bundles that are not among the heaviest are summed up."""
    other_bundles = {
        bundle: _sum(loads)
        for bundle, loads in topics.items()
        if bundle not in answer.bundles and not bundle.startswith("pulsar/")
    }
    data = {
        **answer.load,
        "topBundlesLoadData": answer.top_bundles,
        "otherBundles": other_bundles,
        "bundles": sorted(owned),
    }
    return msgspec.json.encode(data)


def _sum(topics: Mapping[str, TopicLoad]) -> dict[str, float]:
    sums = {name: sum(getattr(load, name) or 0.0 for load in topics.values()) for name in RATES}
    for name, counts in (
        ("producerCount", [load.producers for load in topics.values()]),
        ("consumerCount", [load.consumers for load in topics.values()]),
    ):
        if None not in counts:
            sums[name] = sum(filter(None, counts))
    return {**sums, "topics": len(topics)}
