"""The publisher of a controller, on the system its output's address names."""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Protocol

from streaming.kafka.link import output_link
from streaming.ports.marker import Checkpoint, Marker, RanWith, Seen
from streaming.ports.outbox import OutboundRecord
from streaming.pulsar.link import output_on_pulsar
from streaming.settings import Settings
from streaming.settings.kept import kept_digest

__all__ = ["Publisher", "publisher_of"]


class Publisher(Protocol):
    """What both have in common; contracts and errors are those of ``KafkaPublisher``."""

    def check(self, read: Callable[[], Checkpoint], *, fresh: bool = False, adopt: bool = False) -> None:
        """Raise what ``open`` would raise now, without disturbing the controller that runs."""

    def open(self, read: Callable[[], Checkpoint], *, fresh: bool = False, adopt: bool = False) -> int:
        """Take over as the controller of this name and return its epoch."""

    def publish(self, batch_id: int, query_id: str, records: Sequence[OutboundRecord]) -> Seen:
        """Make a batch's records visible if they are not out already."""

    @property
    def marker(self) -> Marker:
        """What stands for what is out."""

    def ensure_owner(self) -> None:
        """Raise ``Fenced`` when a newer controller of this name has taken over, ``PublishError`` when nobody answers."""

    def is_superseded(self) -> bool:
        """Whether a newer controller of this name has taken over."""

    def close(self) -> None:
        """Close all connections."""


def publisher_of(settings: Settings) -> Publisher:
    """Not yet connected to anything."""
    name, commits_topic = settings.controller.name, settings.topics.commits
    ran_with = RanWith(version=version("trimtab"), settings=kept_digest(settings))
    pulsar = output_on_pulsar(settings)
    if pulsar is not None:
        from streaming.pulsar.publisher import PulsarPublisher  # noqa: PLC0415  loads Pulsar's client

        return PulsarPublisher(pulsar, name=name, commits_topic=commits_topic, ran_with=ran_with)
    from streaming.kafka.publisher import KafkaPublisher  # noqa: PLC0415

    link = output_link(settings)
    return KafkaPublisher(
        link.bootstrap,
        name=name,
        commits_topic=commits_topic,
        ran_with=ran_with,
        client_options=link.client_options(),
        principal=link.principal,
    )
