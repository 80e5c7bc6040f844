"""The input and control topics on Pulsar: making them, and checking them at start.

Existing topics and namespaces are never altered. What a namespace's policies would do to unread records is said with the
command that mends it.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from streaming.pulsar_admin import AdminError, HttpClient, PulsarAdmin
from streaming.pulsar_admin.http import CredentialsError
from streaming.pulsar_log.topics import PartitionLogs
from streaming.settings import PulsarTarget, Settings
from streaming.topics import INPUT_RETENTION_MS, Difference, Outcome, StartError, TopicOutcome

__all__ = ["create", "validate"]

Value = TypeVar("Value")
_MS_PER_MINUTE = 60_000


class _Retention(msgspec.Struct, frozen=True):
    retentionTimeInMinutes: int = 0  # noqa: N815  Pulsar's names
    retentionSizeInMB: int = 0  # noqa: N815


def create(settings: Settings, *, input_partitions: int) -> list[TopicOutcome]:
    """Make the topics that are missing; raises ``StartError``."""
    return _asking(settings, lambda admin: _create(admin, settings, input_partitions))


def validate(settings: Settings) -> list[str]:
    """Warnings. Raises ``StartError`` for an address that cannot be reached and for a missing topic."""
    return _asking(settings, lambda admin: _validate(admin, settings))


def _create(admin: PulsarAdmin, settings: Settings, input_partitions: int) -> list[TopicOutcome]:
    found: list[TopicOutcome] = []
    for name, partitions in ((settings.topics.input, input_partitions), (settings.topics.control, 0)):
        topic = settings.input.pulsar.full_name(name)
        if _exists(admin, settings, topic):
            found.append(TopicOutcome(topic=topic, outcome=Outcome.ALREADY_RIGHT))
            continue
        path = f"/admin/v2/{topic.replace('://', '/')}"
        if partitions > 1:
            admin.call("PUT", f"{path}/partitions", body=partitions)
        else:
            admin.call("PUT", path)
        found.append(TopicOutcome(topic=topic, outcome=Outcome.CREATED))
    return found


def _validate(admin: PulsarAdmin, settings: Settings) -> list[str]:
    pulsar, names = settings.input.pulsar, settings.topics
    wanted = [pulsar.full_name(name) for name in (names.input, names.control)]
    missing = [topic for topic in wanted if not _exists(admin, settings, topic)]
    if missing:
        raise StartError(
            f"topics missing at {settings.input.url}: {', '.join(missing)}. Run: trimtab topics create"
        )
    return [str(difference) for difference in _policies(admin, pulsar.namespace)]


def _policies(admin: PulsarAdmin, namespace: str) -> Iterator[Difference]:
    """What would take records away before they are read, or before they are read again."""
    path = f"/admin/v2/namespaces/{namespace}"
    retention = _or_none(admin, f"{path}/retention", _Retention) or _Retention()
    minutes = INPUT_RETENTION_MS // _MS_PER_MINUTE
    if 0 <= retention.retentionTimeInMinutes < minutes or retention.retentionSizeInMB == 0:
        yield Difference(
            topic=namespace,
            setting="retention",
            found=f"{retention.retentionTimeInMinutes} minutes, {retention.retentionSizeInMB} MB",
            expected=f"{minutes} minutes or more, or -1",
            remedy=f"A start with --fresh finds no control events otherwise. Run: pulsar-admin namespaces "
            f"set-retention {namespace} --time {minutes}m --size -1",
            tolerable=True,
        )
    ttl_s = _or_none(admin, f"{path}/messageTTL", int)
    if ttl_s:
        yield Difference(
            topic=namespace,
            setting="messageTTL",
            found=f"{ttl_s} s",
            expected="unset",
            remedy=f"It takes unread records away. Run: pulsar-admin namespaces remove-message-ttl {namespace}",
            tolerable=True,
        )


def _or_none(admin: PulsarAdmin, path: str, kind: type[Value]) -> Value | None:
    """Unset policies are answered with nothing, or with null."""
    text = admin.get(path).strip()
    return None if text in {b"", b"null"} else msgspec.json.decode(text, type=kind)


def _exists(admin: PulsarAdmin, settings: Settings, topic: str) -> bool:
    logs = PartitionLogs(admin, subscription=settings.input.pulsar.subscription)
    try:
        logs.log(logs.partitions(topic)[0])
    except AdminError as error:
        if error.failure != "not-found":
            raise
        return False
    return True


def _asking(settings: Settings, ask: Callable[[PulsarAdmin], Value]) -> Value:
    pulsar = settings.input.pulsar
    target = PulsarTarget(admin_url=pulsar.admin_url, token_file=pulsar.token_file, ca_file=pulsar.ca_file)
    try:
        with HttpClient(target) as http:
            return ask(PulsarAdmin(http, target))
    except (AdminError, CredentialsError) as error:
        raise StartError(str(error)) from error
