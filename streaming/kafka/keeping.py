"""How long topics on Kafka keep what is written to them."""

import math
from collections.abc import Sequence

from streaming.kafka.link import Link
from streaming.kafka.topics import connected_admin, describe

_MS_PER_S = 1000


def kept_s(link: Link, topics: Sequence[str]) -> dict[str, float]:
    """Retention in seconds by topic, as far as known; limits of size are ignored. Raises ``Unreachable`` or ``StartError``."""
    with connected_admin(link.bootstrap, link.client_options()) as admin:
        found, _ = describe(admin, list(topics))
    kept = {name: int(topic.configs["retention.ms"]) for name, topic in found.items() if topic.configs}
    return {name: math.inf if each < 0 else each / _MS_PER_S for name, each in kept.items()}
