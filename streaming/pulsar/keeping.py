"""How long topics on Pulsar keep what is written to them, also what every subscription has acknowledged."""

from collections.abc import Sequence

from streaming.pulsar.link import PulsarLink
from streaming.pulsar.topics import administering, retention_s

__all__ = ["kept_s"]


def kept_s(link: PulsarLink, topics: Sequence[str]) -> dict[str, float]:
    """Seconds by topic. Limits of size are not looked at. Raises ``Unreachable`` or ``StartError``."""
    with administering(link) as admin:
        return {topic: retention_s(admin, link.full_name(topic)) for topic in topics}
