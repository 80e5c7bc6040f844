"""Publishes micro-batches to Pulsar, each output once, and hands over cleanly from one controller to the next.

It uses producer name and sequence id with the broker's deduplication (PIP-6), and an exclusive producer of the controller's own
commits topic (PIP-68), whose last message is the marker. The order at start is fixed: the exclusive producer fences older
incarnations; only then are marker and checkpoint read, compared, and the marker written again with the next epoch, which
is the claim. A batch is: its marker as begun, its outputs, its marker as finished (see ``streaming.pulsar.commits``).

Differences from Kafka: a batch becomes visible output by output, topic by topic in publishing order, not at once; every
consumer sees it, also while it is being written. The broker forgets a producer name that was not connected for longer than
``brokerDeduplicationProducerInactivityTimeoutMinutes`` (6 h): a controller that was killed in the middle of a batch and
started again later than that repeats the part of the batch that was out.
This module does not retry a batch: the caller does, with back-off, after a `PublishError`.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, groupby
from operator import attrgetter

import pulsar

from streaming.contract.leader import encode_leader
from streaming.process.closing import Closing
from streaming.pulsar.clients import is_denied
from streaming.pulsar.commits import (
    Acknowledged,
    Commit,
    NotSent,
    Producers,
    PulsarMarkers,
    announcer_name,
    begin_batch,
    claim_name,
    encode_commit,
    finish,
    producer_name,
    sequence_id,
)
from streaming.pulsar.link import PulsarLink
from streaming.transport.errors import ADOPT, CheckpointMismatch, Fenced, NotAllowed, PublishError, StartWith
from streaming.transport.publishing import (
    UNNAMED,
    BatchState,
    Checkpoint,
    Marker,
    OutboundRecord,
    RanWith,
    compare_batch,
    digest,
    pieces,
    sort_records,
    superseded_error,
)


def commits_topic_of(commits_topic: str, name: str) -> str:
    """The commits topic of one controller: only one producer at a time may write to it."""
    return f"{commits_topic}-{name}"


class PulsarPublisher(Closing):
    """The exactly-once sink of the controller `name`; topics are in the namespace of `link`.

    `announce_on` is the topic of actions, where each take-over is announced in every partition. `ran_with` is noted with
    each batch. `timeout_s` bounds each wait for the broker, `claim_wait_s` how long a fenced publisher waits for its
    successor's claim, `handover_s` how long one waits for its predecessor to let go of the outputs. `publish` is for one
    thread at a time; `is_superseded` may be called from another.
    """

    def __init__(
        self,
        link: PulsarLink,
        *,
        name: str,
        commits_topic: str,
        announce_on: str | None = None,
        ran_with: RanWith = UNNAMED,
        timeout_s: float = 20.0,
        claim_wait_s: float = 5.0,
        handover_s: float = 30.0,
    ) -> None:
        self._link = link
        self._name = name
        self._announce_on = None if announce_on is None else link.full_name(announce_on)
        self._ran_with = ran_with
        self._commits_topic = link.full_name(commits_topic_of(commits_topic, name))
        self._timeout_s = timeout_s
        self._claim_wait_s = claim_wait_s
        self._handover_s = handover_s
        self._markers = PulsarMarkers(link, self._commits_topic, timeout_s=timeout_s)
        self._producers: Producers | None = None
        self._commit: Commit | None = None

    def read_marker(self) -> Marker | None:
        """The newest marker, None if there is none; see ``KafkaPublisher.read_marker``."""
        newest = self._markers.newest()
        return None if newest is None else newest.marker

    def check(self, read: Callable[[], Checkpoint], *, start_with: StartWith = "checkpoint") -> None:
        """Raise what ``open`` would raise now, without fencing; see ``KafkaPublisher.check``."""
        before = self._markers.newest()
        self._next(before, read(), start_with)

    def open(self, read: Callable[[], Checkpoint], *, start_with: StartWith = "checkpoint") -> int:
        """Take over as the controller of this name and return its epoch, which is above every earlier one.

        Arguments and errors are those of ``KafkaPublisher.open``.
        """
        self._producers = self._connect()
        try:
            before = self._markers.newest()
            claim = self._next(before, read(), start_with)
            begin = partial(self._begin, self._producers, claim, before)
            self._attempt(begin, epoch=claim.marker.epoch, what="the start marker")
        except Exception:
            self.close()
            raise
        return claim.marker.epoch

    def _next(self, before: Commit | None, checkpoint: Checkpoint, start_with: StartWith) -> Commit:
        return claim_name(before, checkpoint, name=self._name, start_with=start_with, now_s=time.time())

    def publish(
        self,
        batch_id: int,
        query_id: str,
        records: Sequence[OutboundRecord],
    ) -> BatchState:
        """Make a batch's records visible if they are not out already; a batch that was begun is finished.

        An empty batch is not noted, so gaps in the markers' batch ids are normal; this looks for a successor all the
        same. Raises `CheckpointMismatch`, `Fenced`, or `PublishError`, after which the same batch may be tried again.
        """
        commit = self._owned_commit()
        batch_digest = digest(records)
        ran_with = self._ran_with
        found = compare_batch(
            commit.marker,
            batch_id=batch_id,
            query_id=query_id,
            batch_digest=batch_digest,
            version=ran_with.version,
        )
        if not records or found is BatchState.OTHERWISE or (found is BatchState.OUT and commit.is_whole):
            self.ensure_owner()
            return found
        if found is BatchState.OUT:
            begin = commit
        else:
            begin = begin_batch(
                commit,
                batch_id=batch_id,
                query_id=query_id,
                batch_digest=batch_digest,
                ran_with=ran_with,
            )
        sent = Acknowledged()
        self._attempt(
            lambda: self._publish(begin, records, sent, is_new=bool(found)),
            epoch=commit.marker.epoch,
            what=f"batch {batch_id}",
        )
        return BatchState.NEW if sent.new_count > 0 else BatchState.OUT

    @property
    def marker(self) -> Marker:
        """Our newest marker, for the last batch that is out or begun; raises `PublishError` before `open`."""
        if self._commit is None:
            raise PublishError(f'the publisher of "{self._name}" is not open: call open() first')
        return self._commit.marker

    def ensure_owner(self) -> None:
        """Ask whether a newer controller of this name has claimed its epoch; see ``KafkaPublisher.ensure_owner``."""
        self._read_own_commit(self.marker.epoch)

    def is_superseded(self) -> bool:
        """Whether a newer controller of this name has claimed its epoch. For a watch loop; sends no request."""
        commit = self._commit
        if commit is None or not self._markers.wait_for_epoch_above(commit.marker.epoch, timeout_s=0):
            return False
        self._drop_producers()  # the successor is waiting for the outputs' names
        return True

    def close(self) -> None:
        """Close all connections."""
        self._drop_producers()
        self._markers.close()

    def _publish(
        self, begin: Commit, records: Sequence[OutboundRecord], sent: Acknowledged, *, is_new: bool
    ) -> None:
        """Send each topic's records in pieces and wait for each: the records that are out are always the first to publish."""
        producers, batch_id = self._producers, begin.marker.batch_id
        assert producers is not None, "call open() before publish()"
        assert batch_id is not None, "the marker of a batch to publish must have the id of the batch"
        if is_new:
            self._write(producers, begin)
        name = producer_name(self._name, begin)
        names = {self._link.full_name(record.topic): name for record in records}
        producers.take_names(names, wait_s=self._handover_s)
        places = count()
        for topic, outputs in groupby(sort_records(records), key=attrgetter("topic")):
            full_name = self._link.full_name(topic)
            for piece in pieces(outputs):
                for record in piece:
                    producers.send(
                        full_name,
                        record.key,
                        record.value,
                        sequence_id=sequence_id(batch_id, next(places)),
                        epoch=begin.marker.epoch,
                        sent=sent,
                    )
                sent.wait(timeout_s=self._timeout_s)
        self._write(producers, finish(begin))

    def _begin(self, producers: Producers, claim: Commit, before: Commit | None) -> None:
        """Claim, and announce in every partition of the actions topic which controller's actions count from here on.

        The rest of a batch that was begun is sent again under its producer name, or never. A predecessor that still held
        the name could still send a part of the batch after the announcement: the broker would then drop our action as a duplicate, and
        consumers would ignore the predecessor's as out of date. So the name is taken first.
        """
        self._write(producers, claim)
        topic = self._announce_on
        if topic is None:
            return
        if before is not None and not claim.is_whole:
            producers.take_names({topic: producer_name(self._name, before)}, wait_s=self._handover_s)
        epoch = claim.marker.epoch
        value = encode_leader(self._name, epoch=epoch, time_ms=round(time.time() * 1000))
        name = announcer_name(self._name)
        producers.announce(topic, value, name=name, epoch=epoch, wait_s=self._handover_s)

    def _write(self, producers: Producers, commit: Commit) -> None:
        producers.commit(self._name, encode_commit(commit))
        self._commit = commit

    def _owned_commit(self) -> Commit:
        """The commit to go on from; first gets new producers if the last publish failed."""
        if self._producers is None:
            self._take_back(self.marker.epoch)
        assert self._commit is not None, "call open() before publish()"
        return self._commit

    def _take_back(self, epoch: int) -> None:
        """Get new producers unless a successor has claimed a higher epoch: we must not fence it.

        The log shows what became of the writes that failed; it is read once no other process can write there.
        """
        self._read_own_commit(epoch)
        self._producers = self._connect()
        try:
            self._commit = self._read_own_commit(epoch)
        except (CheckpointMismatch, PublishError, Fenced):
            self._drop_producers()
            raise

    def _read_own_commit(self, epoch: int) -> Commit:
        newest = self._markers.newest()
        if newest is None or newest.marker.epoch < epoch:
            raise CheckpointMismatch(
                f'the marker of "{self._name}" has vanished from {self._commits_topic} while in use (epoch '
                f"{epoch}): was the topic deleted or trimmed? Restart with {ADOPT}."
            )
        if newest.marker.epoch > epoch:
            self._drop_producers()  # the successor is waiting for the outputs' names
            raise superseded_error(self._name, epoch=epoch)
        return newest

    def _connect(self) -> Producers:
        """A connection that has fenced its predecessors; raises `PublishError`."""
        try:
            return Producers(self._link, commits_topic=self._commits_topic, timeout_s=self._timeout_s)
        except pulsar.PulsarException as error:
            kind = NotAllowed if is_denied(error) else PublishError
            raise kind(
                f"no exclusive producer on {self._commits_topic} at {self._link.service_url}: {error!r}. Check "
                f"that {self._link.section}.url is right, that the brokers are up, and that the token may produce there."
            ) from error

    def _attempt(self, call: Callable[[], None], *, epoch: int, what: str) -> None:
        """Make the call; raises a `Fenced` or `PublishError` that says what to do.

        Being fenced alone does not mean that there is a successor: a newcomer fences first and may then refuse its
        checkpoint. Only a claim means a successor.
        """
        try:
            call()
        except (pulsar.PulsarException, NotSent) as error:
            self._drop_producers()
            if self._markers.wait_for_epoch_above(epoch, timeout_s=self._patience_s(error)):
                raise superseded_error(self._name, epoch=epoch) from error
            raise PublishError(
                f"{what} could not be published to {self._link.service_url}: {error!r}{_remedy(error)}"
            ) from error

    def _patience_s(self, error: pulsar.PulsarException | NotSent) -> float:
        fenced = (pulsar.ProducerFenced, pulsar.ProducerBusy)
        is_fenced = isinstance(error, fenced) or _result(error) == pulsar.Result.ProducerFenced
        return self._claim_wait_s if is_fenced else 0.0

    def _drop_producers(self) -> None:
        producers, self._producers = self._producers, None
        if producers is not None:
            producers.close()


def _result(error: Exception) -> pulsar.Result | None:
    return error.result if isinstance(error, NotSent) else None


def _remedy(error: Exception) -> str:
    if isinstance(error, pulsar.MessageTooBig) or _result(error) == pulsar.Result.MessageTooBig:
        return ". Raise maxMessageSize of broker.conf, and nettyMaxFrameSizeBytes of bookkeeper.conf with it"
    if isinstance(error, pulsar.ProducerBusy):
        return ". Another process still holds the name of this controller there; end it, or give this one another name"
    return ""
