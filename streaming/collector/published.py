"""What a broker published, what it owns and what its topics carry, as one event."""

from collections.abc import Iterable, Mapping

import msgspec

from streaming.collector.reports import BundleLoad
from streaming.contract.messages import TopicLoad
from streaming.contract.pulsar import RATES
from streaming.pulsar.load_data import NoLoadData, PublishedLoad


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
        found = _top_bundles.decode(top_bundles)
    except msgspec.DecodeError:
        found = []
    return PublishedAnswer(
        load=load,
        top_bundles=top_bundles,
        bundles={each.bundleName: each.stats for each in found},
    )


def broker_load(
    answer: PublishedAnswer, owned: Iterable[str], topics: Mapping[str, Mapping[str, TopicLoad]]
) -> bytes:
    """`data` of the event; ``topics`` of bundles that are not among the heaviest are summed up."""
    others = {
        bundle: _sum(each)
        for bundle, each in topics.items()
        if bundle not in answer.bundles and not bundle.startswith("pulsar/")
    }
    data = {
        **answer.load,
        "topBundlesLoadData": answer.top_bundles,
        "otherBundles": others,
        "bundles": sorted(owned),
    }
    return msgspec.json.encode(data)


def _sum(topics: Mapping[str, TopicLoad]) -> dict[str, float]:
    sums = {name: sum(getattr(each, name) or 0.0 for each in topics.values()) for name in RATES}
    for name, counts in (
        ("producerCount", [each.producers for each in topics.values()]),
        ("consumerCount", [each.consumers for each in topics.values()]),
    ):
        known = [each for each in counts if each is not None]
        sums |= {name: sum(known)} if len(known) == len(counts) else {}
    return {**sums, "topics": len(topics)}
