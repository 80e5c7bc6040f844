"""The publisher of a controller, on the system its output's address names."""

from importlib.metadata import version

from streaming.kafka.link import output_link
from streaming.pulsar.link import output_on_pulsar
from streaming.settings import Settings
from streaming.settings.kept import kept_digest
from streaming.transport.publishing import Publisher, RanWith


def publisher_of(settings: Settings) -> Publisher:
    """The publisher of a controller with these settings, not yet connected to anything."""
    name, commits_topic = settings.controller.name, settings.topics.commits
    ran_with = RanWith(version=version("trimtab"), settings=kept_digest(settings))
    pulsar = output_on_pulsar(settings)
    if pulsar is not None:
        from streaming.pulsar.publisher import PulsarPublisher  # noqa: PLC0415  loads Pulsar's client

        return PulsarPublisher(
            pulsar,
            name=name,
            commits_topic=commits_topic,
            announce_on=settings.topics.actions,
            ran_with=ran_with,
        )
    from streaming.kafka.publisher import KafkaPublisher  # noqa: PLC0415

    link = output_link(settings)
    return KafkaPublisher(
        link.bootstrap,
        name=name,
        commits_topic=commits_topic,
        announce_on=settings.topics.actions,
        ran_with=ran_with,
        client_options=link.client_options(),
        principal=link.principal,
    )
