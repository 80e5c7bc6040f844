"""Examines brokers and topics on Pulsar for a person: reports everything that is wrong, at once, and changes nothing."""

import time

import pulsar

from streaming.pulsar.clients import close
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.topic_names import partitions_count
from streaming.pulsar.topics import differences_of, open_admin, specs_of, time_to_live
from streaming.settings import Settings
from streaming.transport.errors import Unreachable
from streaming.transport.topics import BrokersSeen, Denied, TopicsSeen

_TIMEOUT_S = 10.0


def brokers_seen(link: PulsarLink, topic: str) -> BrokersSeen:
    """The brokers at both of their addresses: the admin API's, and the log's, where a topic is looked up.

    Raises ``Unreachable`` or ``StartError``.
    """
    with open_admin(link) as admin:
        version, ahead_s = admin.version(), admin.ahead_s(time.time)
    client = link.client(timeout_s=_TIMEOUT_S)
    try:
        client.get_topic_partitions(link.full_name(topic))
    except (pulsar.ConnectError, pulsar.Timeout, pulsar.LookupError) as error:
        raise Unreachable(
            f"{link.service_url} does not answer, though {link.place.admin_url} does: {error!r}. Check {link.section}.url, "
            "and whether the brokers' advertised addresses can be reached from here"
        ) from error
    finally:
        close(client)
    return BrokersSeen(text="brokers of Pulsar", version=version, ahead_s=ahead_s)


def topics_seen(settings: Settings, link: PulsarLink) -> TopicsSeen:
    """The topics of the side that ``link`` leads to. Raises ``Unreachable`` or ``StartError``."""
    specs = specs_of(settings, input_partitions=0)[link]
    executors = link.full_name(settings.topics.executor_kafka)
    with open_admin(link) as admin:
        found = {spec: partitions_count(admin, spec.name) for spec in specs}
        differences = [
            each
            for spec, partitions in found.items()
            if partitions is not None
            for each in differences_of(admin, spec, partitions)
        ]
        warnings = list(time_to_live(admin, link.place.namespace))
    missing = [spec for spec, partitions in found.items() if partitions is None]
    optional = [spec for spec in missing if spec.is_optional or spec.name == executors]
    return TopicsSeen(
        count=len(specs),
        missing=tuple(spec.name for spec in missing if spec not in optional),
        missing_optional=tuple(spec.name for spec in optional),
        differences=tuple(differences),
        warnings=tuple(
            Denied(what=each.partition(" Run: ")[0], remedy=f"Run: {each.partition(' Run: ')[2]}")
            for each in warnings
        ),
    )
