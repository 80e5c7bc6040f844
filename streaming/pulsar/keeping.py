"""How long topics on Pulsar keep messages, even if every subscription has acknowledged them."""

from collections.abc import Sequence

from streaming.pulsar.link import PulsarLink
from streaming.pulsar.topics import open_admin, retention_s


def kept_s(link: PulsarLink, topics: Sequence[str]) -> dict[str, float]:
    """Retention in seconds by topic; limits of size are ignored. Raises ``Unreachable`` or ``StartError``."""
    with open_admin(link) as admin:
        return {topic: retention_s(admin, link.full_name(topic)) for topic in topics}
