"""The exactly-once sink of a controller: what it does is the same for Kafka and Pulsar, how a batch becomes visible is not.

The order at start is fixed: connecting fences older incarnations; only then are marker and checkpoint read, compared, and the
marker written again with the next epoch. That last write is the claim: the process with the highest epoch on the commits topic
is the controller. So a fenced process knows whether it has a successor (it must end), or whether a newcomer refused to start
(it may go on).

A record of the take-over goes to every partition of the actions topic, so that consumers hear of it before the first decision.
Every record carries the epoch in the header `trimtab-epoch`.
A batch is not retried here: the caller does, with back-off, after a `PublishError`.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from streaming.process.closeable import Closeable
from streaming.transport.errors import ADOPT, CheckpointMismatch, Fenced, PublishError, StartWith
from streaming.transport.publishing import (
    BatchState,
    Checkpoint,
    Commit,
    Marker,
    OutboundRecord,
    RanWith,
    begin_batch,
    compare_batch,
    digest,
    next_commit,
    next_start,
    sort_records,
    superseded_error,
)


class Markers(Protocol):
    """A controller's commits, read back. May be used from several threads."""

    def wait_for_epoch_above(self, epoch: int, *, timeout_s: float) -> bool:
        """Whether a marker with a higher epoch is there, or appears within `timeout_s` (0: one short look).

        False also while the broker cannot be reached: publishing raises the error then.
        """

    def close(self) -> None:
        """Close the connection; a later call opens it again."""


class Publisher(Closeable):
    """The sink of the controller `name`; both topics by their full names.

    `announce_on` is the topic of actions, where each take-over is announced in every partition. `ran_with` is noted with each
    batch. `timeout_s` bounds each wait for the broker while publishing, `claim_wait_s` is how long a fenced publisher waits for
    its successor's claim. `publish` is for one thread at a time; `is_superseded` may be called from another.
    """

    def __init__(
        self,
        markers: Markers,
        *,
        name: str,
        commits_topic: str,
        announce_on: str | None,
        ran_with: RanWith,
        timeout_s: float,
        claim_wait_s: float,
    ) -> None:
        self._followed = markers
        self._name = name
        self._commits_topic = commits_topic
        self._announce_on = announce_on
        self._ran_with = ran_with
        self._timeout_s = timeout_s
        self._claim_wait_s = claim_wait_s
        self._commit: Commit | None = None
        """Our newest one."""

    def read_marker(self) -> Marker | None:
        """The newest marker, None if there is none; fences no producer. Raises `PublishError` or `CheckpointMismatch`."""
        newest = self._newest()
        return None if newest is None else newest.marker

    def check(self, read: Callable[[], Checkpoint], *, start_with: StartWith = "checkpoint") -> None:
        """Raise what `open` would raise now, without fencing: after a refusal the running controller goes on.

        The marker is read before the checkpoint, because a batch is planned before it is published.
        """
        before = self.read_marker()
        next_start(before, read(), name=self._name, start_with=start_with, now_s=time.time())

    def open(self, read: Callable[[], Checkpoint], *, start_with: StartWith = "checkpoint") -> int:
        """Take over as the controller of this name and return its epoch, which is above every earlier one.

        `read` reads the checkpoint; it is called when no other process can publish any more. Raises
        `CheckpointMismatch` when it disagrees with the marker and `start_with` says to go on from it,
        `Fenced` when yet another controller starts at the same time, `PublishError` when the broker cannot
        be reached, and whatever `read` raises.
        """
        self._connect()
        try:
            before = self._settled(at_start=True)
            claimed = next_commit(before, read(), name=self._name, start_with=start_with, now_s=time.time())
            self._take_over(claimed, before)
        except Exception:
            self.close()
            raise
        return claimed.marker.epoch

    def publish(self, batch_id: int, query_id: str, records: Sequence[OutboundRecord]) -> BatchState:
        """Make a batch's records visible if they are not out already; a batch that was begun is finished.

        An empty batch is not noted, so gaps in the markers' batch ids are normal; this looks for a successor all the
        same. Raises `CheckpointMismatch`, `Fenced`, or `PublishError`, after which the same batch may be tried again.
        """
        commit = self._owned_commit()
        batch_digest = digest(records)
        state = compare_batch(
            commit.marker,
            batch_id=batch_id,
            query_id=query_id,
            batch_digest=batch_digest,
            version=self._ran_with.version,
        )
        is_begun = state is BatchState.OUT and not commit.is_whole
        if not records or not (state is BatchState.NEW or is_begun):
            self.ensure_owner()
            return state
        begun = commit
        if not is_begun:
            begun = begin_batch(
                commit,
                batch_id=batch_id,
                query_id=query_id,
                batch_digest=batch_digest,
                ran_with=self._ran_with,
            )
        return self._publish(begun, sort_records(records), is_new=not is_begun)

    @property
    def marker(self) -> Marker:
        """Our newest marker, for the last batch that is out or begun; raises `PublishError` before `open`."""
        if self._commit is None:
            raise PublishError(f'the publisher of "{self._name}" is not open: call open() first')
        return self._commit.marker

    def ensure_owner(self) -> None:
        """Ask the broker whether a newer controller of this name has claimed its epoch, and raise `Fenced` if so.

        Raises `PublishError` when there is no answer.
        """
        epoch = self.marker.epoch
        newest = self._newest()
        if newest is not None and newest.marker.epoch > epoch:
            raise self._superseded(epoch)

    def is_superseded(self) -> bool:
        """Whether a newer controller of this name has claimed its epoch. For a watch loop; takes 50 ms at most.

        Without it a controller that has nothing to publish would not notice its successor.
        """
        return self._commit is not None and self._followed.wait_for_epoch_above(
            self._commit.marker.epoch, timeout_s=0
        )

    def close(self) -> None:
        """Close all connections."""
        self._disconnect()
        self._followed.close()

    @property
    @abstractmethod
    def _is_connected(self) -> bool:
        """Whether the last publish left a connection that can be used."""

    @abstractmethod
    def _connect(self) -> None:
        """Connect, which fences the predecessors. Raises `PublishError`."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close what publishes; what is not out by now must not be sent any more."""

    @abstractmethod
    def _newest(self) -> Commit | None:
        """The newest commit at the time of the call, None if there is none. Raises `PublishError` or `CheckpointMismatch`."""

    @abstractmethod
    def _settled(self, *, at_start: bool = False) -> Commit | None:
        """The newest commit once no other process can write; what was under way is waited for, longest at a start."""

    @abstractmethod
    def _take_over(self, claimed: Commit, before: Commit | None) -> None:
        """Write the claim and announce it. Raises `Fenced` or `PublishError`."""

    @abstractmethod
    def _publish(self, begun: Commit, records: Sequence[OutboundRecord], *, is_new: bool) -> BatchState:
        """Make the records, which are in publishing order, visible with their commit. Raises `Fenced` or `PublishError`."""

    def _owned_commit(self) -> Commit:
        """The commit to go on from; connects again if the last publish failed.

        It does not where a successor has claimed a higher epoch: we must not fence it. The log shows what became of the writes
        that failed; it is read once no other process can write there.
        """
        if not self._is_connected:
            self.ensure_owner()
            self._connect()
            try:
                self._commit = self._own_commit(self._settled())
            except (CheckpointMismatch, PublishError, Fenced):
                self._disconnect()
                raise
        assert self._commit is not None, "call open() before publish()"
        return self._commit

    def _own_commit(self, newest: Commit | None) -> Commit:
        epoch = self.marker.epoch
        if newest is None or newest.marker.epoch < epoch:
            raise CheckpointMismatch(
                f'the marker of "{self._name}" has vanished from {self._commits_topic} while in use (epoch '
                f"{epoch}): was the topic deleted or trimmed? Restart with {ADOPT}."
            )
        if newest.marker.epoch > epoch:
            raise self._superseded(epoch)
        return newest

    def _superseded(self, epoch: int) -> Fenced:
        return superseded_error(self._name, epoch=epoch)

    def _failed(self, what: str, why: str, *, epoch: int, is_fenced: bool) -> Fenced | PublishError:
        """What to raise after a write that failed, which says what to do.

        Fencing alone does not mean that there is a successor: the coordinator also fences a transaction that timed
        out, and a newcomer fences first and may then refuse its checkpoint. Only a claim means a successor.
        """
        self._disconnect()
        wait_s = self._claim_wait_s if is_fenced else 0.0
        if self._followed.wait_for_epoch_above(epoch, timeout_s=wait_s):
            return superseded_error(self._name, epoch=epoch)
        return PublishError(f"{what} could not be published to {why}")
