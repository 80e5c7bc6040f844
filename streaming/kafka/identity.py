"""Ids of the input's topics: a topic that was deleted and made anew has the same name and another id.

On Kafka the brokers give each topic an id (2.8 and later). Pulsar has none, and needs none here: ids of ledgers are never
used again, so a position shows whether the topic is still the same (``streaming.pulsar.positions``).
"""

from collections.abc import Mapping, Sequence

from streaming.kafka.answers import retry_until_answered
from streaming.kafka.connection import open_admin
from streaming.kafka.link import Link


def topic_ids(link: Link, names: Sequence[str]) -> dict[str, str]:
    """Ids of those topics that have one. Raises ``NoAnswer``."""
    with retry_until_answered(), open_admin(link.bootstrap, link.client_options()) as admin:
        described = admin.describe_topics(list(names))
    return {topic["name"]: str(topic["topic_id"]) for topic in described if _has_id(topic)}


def _has_id(topic: Mapping[str, object]) -> bool:
    return topic["error_code"] == 0 and int(str(topic.get("topic_id") or "0").replace("-", ""), 16) > 0
