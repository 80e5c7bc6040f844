"""One side that is on Kafka: who does what there."""

from functools import partial

from streaming.kafka import topics
from streaming.kafka.events import KafkaEvents, append
from streaming.kafka.executor import ActionsTopic, owned
from streaming.kafka.link import Link
from streaming.kafka.publisher import KafkaPublisher
from streaming.kafka.reading import TopicReader, find_lost, find_regrown


class KafkaSide:
    """See ``Side``; the signatures are there."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.section = link.section
        self.url = f"kafka://{link.bootstrap}"
        self.reader = partial(TopicReader, link)
        self.append = partial(append, link)
        self.events = partial(KafkaEvents, link)
        self.publisher = partial(KafkaPublisher, link)
        self.actions = partial(ActionsTopic, link)
        self.owned = partial(owned, link)
        self.find_lost = partial(find_lost, link)
        self.find_regrown = partial(find_regrown, link)
        self.topic_ids = partial(topics.topic_ids, link)
        self.create_topics = partial(topics.create, link)
        self.brokers_seen = partial(topics.brokers_seen, link)
        self.topics_seen = partial(topics.topics_seen, link)

    def is_same(self, other: object) -> bool:
        """See ``Side``."""
        return isinstance(other, KafkaSide) and (self.link.bootstrap, self.link.security) == (
            other.link.bootstrap,
            other.link.security,
        )

    def full_name(self, topic: str) -> str:
        """See ``Side``."""
        return topic
