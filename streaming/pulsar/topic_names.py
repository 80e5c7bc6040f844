"""What a reader of logs needs from the admin API: partitions, ledgers, and the durable subscription that keeps unread messages."""

from urllib.parse import quote

import msgspec

from streaming.pulsar.admin import AdminError, PulsarAdmin
from streaming.pulsar.positions import Ledger, Log, Position

_PERSISTENT = "persistent://"
_PARTITION = "-partition-"


class NonPersistentTopic(Exception):
    """A topic without a log cannot be read again after a crash."""


class _Partitions(msgspec.Struct, frozen=True):
    partitions: int


class _LedgerStats(msgspec.Struct, frozen=True):
    ledgerId: int  # noqa: N815  Pulsar's names
    entries: int


class _Cursor(msgspec.Struct, frozen=True):
    markDeletePosition: str  # noqa: N815


class _Found(msgspec.Struct, frozen=True):
    ledgerId: int  # noqa: N815
    entryId: int  # noqa: N815


class _InternalStats(msgspec.Struct, frozen=True):
    ledgers: list[_LedgerStats]
    currentLedgerEntries: int  # noqa: N815
    lastConfirmedEntry: str | None = None  # noqa: N815
    cursors: dict[str, _Cursor] = {}


class PartitionLogs:
    """The logs of a topic's partitions, and one durable subscription on each. Every method raises ``AdminError``."""

    def __init__(self, admin: PulsarAdmin, *, subscription: str) -> None:
        self._admin = admin
        self._subscription = subscription

    def partitions(self, topic: str) -> list[str]:
        """Full names of a topic's partitions; the topic's own name if it has none. Raises ``NonPersistentTopic``."""
        if not topic.startswith(_PERSISTENT):
            raise NonPersistentTopic(
                f"{topic} is not persistent: its messages are gone once sent, and a batch could not be read again after "
                f"a crash. Use a {_PERSISTENT}… topic"
            )
        found = self._admin.read(f"{topic_path(topic)}/partitions", _Partitions).partitions
        return partition_names(topic, found)

    def log(self, partition: str) -> Log:
        """The log as it is now. The newest ledger is still being written, so its entries are in a field of their own."""
        stats = self._admin.read(f"{topic_path(partition)}/internalStats", _InternalStats)
        *closed, open_ = stats.ledgers
        newest = Ledger(open_.ledgerId, max(open_.entries, stats.currentLedgerEntries))
        cursor = stats.cursors.get(self._subscription)
        return Log(
            [*(Ledger(each.ledgerId, each.entries) for each in closed), newest],
            written=None if stats.lastConfirmedEntry is None else Position.parse(stats.lastConfirmedEntry),
            acknowledged=None if cursor is None else Position.parse(cursor.markDeletePosition),
        )

    def before(self, partition: str, time_ms: int) -> Position:
        """The position before the first message published at ``time_ms`` or later; the end if there is none."""
        found = position_before(self._admin, partition, time_ms)
        return min(found, self.log(partition).last)

    def protect(self, partition: str) -> None:
        """Make the subscription at the beginning, so that nothing that is there now is trimmed; an existing one stays as it is."""
        body = {"ledgerId": -1, "entryId": -1, "partitionIndex": partition_index(partition)}
        try:
            self._admin.call("PUT", self._path(partition), body=body)
        except AdminError as error:
            if error.failure != "conflict":
                raise

    def _path(self, partition: str) -> str:
        return f"{topic_path(partition)}/subscription/{quote(self._subscription, safe='')}"


def partitions_count(admin: PulsarAdmin, topic: str) -> int | None:
    """Number of partitions, 0 for a topic without partitions; None where there is no such topic. Raises ``AdminError``."""
    path = topic_path(topic)
    try:
        found = admin.read(f"{path}/partitions", _Partitions).partitions
        if not found:
            admin.get(f"{path}/internalStats")
    except AdminError as error:
        if error.failure != "not-found":
            raise
        return None
    return found


def position_before(admin: PulsarAdmin, partition: str, time_ms: int) -> Position:
    """The position before the first message published at ``time_ms`` or later; before the next one to be written if there is none.

    The broker searches its log for it (``getMessageIdByTimestamp``). Raises ``AdminError``.
    """
    found = admin.read(f"{topic_path(partition)}/messageid/{max(0, time_ms)}", _Found)
    return Position(found.ledgerId, found.entryId - 1)


def partition_names(topic: str, count: int) -> list[str]:
    """Full names of the partitions; the topic's own name if it has none."""
    return [f"{topic}{_PARTITION}{number}" for number in range(count)] if count else [topic]


def partition_index(partition: str) -> int:
    """Number of a partition; -1 for a topic without partitions."""
    _, mark, number = partition.rpartition(_PARTITION)
    return int(number) if mark and number.isdigit() else -1


def topic_path(topic: str) -> str:
    """Path of a topic in the admin API."""
    return f"/admin/v2/persistent/{quote(topic.removeprefix(_PERSISTENT))}"
