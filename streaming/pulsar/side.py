"""One side that is on Pulsar: who does what there."""

from collections.abc import Sequence
from functools import partial

from streaming.pulsar import topics
from streaming.pulsar.events import PulsarEvents, append
from streaming.pulsar.executor import PulsarActions, owned
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.publisher import PulsarPublisher
from streaming.pulsar.reading import PulsarTopicReader, find_lost
from streaming.transport.side import Progress


class PulsarSide:
    """See ``Side``; the signatures are there."""

    def __init__(self, link: PulsarLink) -> None:
        self.link = link
        self.section = link.section
        self.url = link.service_url
        self.full_name = link.full_name
        self.reader = partial(PulsarTopicReader, link)
        self.append = partial(append, link)
        self.events = partial(PulsarEvents, link)
        self.publisher = partial(PulsarPublisher, link)
        self.actions = partial(PulsarActions, link)
        self.owned = partial(owned, link)
        self.find_lost = partial(find_lost, link)
        self.create_topics = partial(topics.create, link)
        self.brokers_seen = partial(topics.brokers_seen, link)
        self.topics_seen = partial(topics.topics_seen, link)

    def is_same(self, other: object) -> bool:
        """See ``Side``."""
        return isinstance(other, PulsarSide) and self.link == other.link

    def find_regrown(self, read: Progress) -> str | None:
        """None: what is written after a truncation is in ledgers of its own, so that reading shows it."""
        del read
        return None

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """None: ids of ledgers are never used again, so a position shows whether the topic is still the same."""
        del topics
        return {}
