"""Examines brokers and topics on Kafka for a person: reports everything that is wrong, at once, and changes nothing.

``topics.validate`` stops at the first kind of obstacle and only knows what keeps a controller from starting; here
everything is reported, also settings that a new topic would have and an older one may lack.
"""

from collections.abc import Iterator, Sequence

from policies.wording import counted
from streaming.kafka.link import Link
from streaming.kafka.permissions import (
    TopicPermissions,
    acl_command,
    beat_operations,
    controller_operations,
    missing_by_topic,
)
from streaming.kafka.topic_specs import TopicSpec, select_specs, specs_of
from streaming.kafka.topics import TopicFound, connected_admin, describe, differences_of, setting_difference
from streaming.settings import TopicNames
from streaming.transport.topics import BrokersSeen, Denied, Difference, TopicsSeen

_AT_LEAST = ("retention.ms", "min.compaction.lag.ms")
"""Settings that are chosen for new topics; a smaller value takes records away early."""
_WITHOUT_LIMIT = -1


def brokers_seen(link: Link) -> BrokersSeen:
    """The brokers that answer. Raises ``Unreachable`` or ``StartError``. Kafka does not report the time of its clocks."""
    with connected_admin(link.bootstrap, link.client_options()) as admin:
        brokers = admin.describe_cluster()["brokers"]
        found = admin.get_broker_version_data(int(brokers[0]["broker_id"])).broker_version
    count = len(brokers)
    return BrokersSeen(text=f"{counted(count, 'broker')} of Kafka", version=".".join(map(str, found)))


def topics_seen(
    link: Link, names: TopicNames, *, max_record_bytes: int, only: frozenset[str] | None
) -> TopicsSeen:
    """The topics (of ``only``, where given). Raises ``Unreachable`` or ``StartError``."""
    specs = select_specs(specs_of(names, input_partitions=None, max_record_bytes=max_record_bytes), only)
    with connected_admin(link.bootstrap, link.client_options()) as admin:
        found, permissions = describe(admin, [spec.name for spec in specs])
    hidden = {each.name for each in permissions if each.hidden}
    optional = {names.executor_kafka, *(spec.name for spec in specs if spec.optional)}
    gone = [spec.name for spec in specs if spec.name not in found and spec.name not in hidden]
    there = [(spec, found[spec.name]) for spec in specs if spec.name in found]
    return TopicsSeen(
        count=len(specs),
        missing=tuple(name for name in gone if name not in optional),
        missing_optional=tuple(name for name in gone if name in optional),
        differences=tuple(
            difference
            for spec, topic in there
            if topic.configs  # Kafka leaves them out if we may not DescribeConfigs
            for difference in (
                *differences_of(spec, topic, link.bootstrap),
                *_find_shorter_retention(spec, topic, link),
            )
        ),
        unwell=tuple(difference for spec, topic in there for difference in _find_unwell(spec, topic, link)),
        denied=tuple(_find_denied(link, names, permissions)),
    )


def _find_shorter_retention(spec: TopicSpec, found: TopicFound, link: Link) -> Iterator[Difference]:
    for setting in _AT_LEAST:
        wanted, kept = int(spec.chosen.get(setting, 0)), int(found.configs.get(setting, _WITHOUT_LIMIT))
        if _WITHOUT_LIMIT < kept < wanted:
            yield setting_difference(
                spec,
                setting,
                str(kept),
                f"{wanted} or more",
                link.bootstrap,
                value=str(wanted),
                tolerable=True,
            )


def _find_unwell(spec: TopicSpec, found: TopicFound, link: Link) -> Iterator[Difference]:
    needed = int(found.configs.get("min.insync.replicas", 1))
    for state in found.states:
        if state.leader is None:
            yield _make_difference(spec, f"leader of partition {state.number}", "none", "a broker", link)
        elif state.in_sync_count < state.replicas_count:
            yield _make_difference(
                spec,
                f"replicas in sync of partition {state.number}",
                str(state.in_sync_count),
                f"{state.replicas_count}, and {needed} to write",
                link,
                tolerable=state.in_sync_count >= needed,
            )


def _make_difference(
    spec: TopicSpec, what: str, found: str, expected: str, link: Link, *, tolerable: bool = False
) -> Difference:
    return Difference(
        topic=spec.name,
        setting=what,
        found=found,
        expected=expected,
        remedy=f"Bring its brokers back: kafka-topics.sh --bootstrap-server {link.bootstrap} --describe --topic {spec.name}",
        tolerable=tolerable,
    )


def _find_denied(link: Link, names: TopicNames, permissions: Sequence[TopicPermissions]) -> Iterator[Denied]:
    beats = beat_operations(names)
    for topic, operations in missing_by_topic({**controller_operations(names), **beats}, permissions):
        yield Denied(
            what=f"{link.principal} lacks the permission {' and '.join(operations)} on topic {topic}",
            remedy=f"Run: {acl_command(link.subject, 'topic', topic, operations)}",
            tolerable=topic in beats,
        )
