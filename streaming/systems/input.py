"""What the input's brokers are asked besides reading: whether its topics are still the ones that were read."""

from streaming.kafka.link import input_link
from streaming.kafka.reading import find_regrown
from streaming.kafka.topics import topic_ids
from streaming.settings import Settings
from streaming.transport.reading import Progress


def input_ids(settings: Settings) -> dict[str, str]:
    """Ids of the input and control topic, as far as there are any: Pulsar gives none. Raises ``NoAnswer``."""
    if settings.input.is_pulsar:
        return {}
    return topic_ids(input_link(settings), [settings.topics.input, settings.topics.control])


def find_regrown_input(settings: Settings, read: Progress) -> str | None:
    """The message about a log that was truncated and has grown again; reading on Pulsar shows that itself. Raises ``NoAnswer``."""
    return None if settings.input.is_pulsar else find_regrown(input_link(settings), read)
