"""Publishes micro-batches to Pulsar, each output once.

It uses producer name and sequence id with the broker's deduplication (PIP-6), and an exclusive producer of the controller's own
commits topic (PIP-68), which fences older incarnations and whose last message is the marker. A batch is: its marker as begun, its
outputs, its marker as finished (see ``streaming.pulsar.commits``).

Differences from Kafka: a batch becomes visible output by output, topic by topic in publishing order, not at once; every
consumer sees it, also while it is being written. The broker forgets a producer name that was not connected for longer than
``brokerDeduplicationProducerInactivityTimeoutMinutes`` (6 h): a controller that was killed in the middle of a batch and
started again later than that repeats the part of the batch that was out.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, groupby
from operator import attrgetter

import pulsar

from streaming.contract.encode import encode_leader
from streaming.process.exits import words_of
from streaming.pulsar.clients import is_denied
from streaming.pulsar.commits import (
    Deliveries,
    NotSent,
    Producers,
    PulsarMarkers,
    announcer_name,
    encode_commit,
    producer_name,
    sequence_id,
)
from streaming.pulsar.link import PulsarLink
from streaming.transport.errors import Fenced, NotAllowed, PublishError
from streaming.transport.publisher import Publisher
from streaming.transport.publishing import (
    UNNAMED,
    BatchState,
    Commit,
    OutboundRecord,
    RanWith,
    finish_batch,
    pieces,
)


def commits_topic_of(commits_topic: str, name: str) -> str:
    """The commits topic of one controller: only one producer at a time may write to it."""
    return f"{commits_topic}-{name}"


class PulsarPublisher(Publisher):
    """The exactly-once sink of the controller `name`; topics are in the namespace of `link`.

    `handover_s` is how long one waits for its predecessor to let go of the outputs.
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
        full_name = link.full_name(commits_topic_of(commits_topic, name))
        self._markers = PulsarMarkers(link, full_name, timeout_s=timeout_s)
        super().__init__(
            self._markers,
            name=name,
            commits_topic=full_name,
            announce_on=None if announce_on is None else link.full_name(announce_on),
            ran_with=ran_with,
            timeout_s=timeout_s,
            claim_wait_s=claim_wait_s,
        )
        self._link = link
        self._handover_s = handover_s
        self._producers: Producers | None = None

    def ensure_owner(self) -> None:
        """See ``Publisher``; our own commit is readable as soon as it is written, so it must be there, too."""
        self._own_commit(self._newest())

    def is_superseded(self) -> bool:
        """See ``Publisher``; sends no request."""
        is_superseded = super().is_superseded()
        if is_superseded:
            self._disconnect()  # the successor is waiting for the outputs' names
        return is_superseded

    def _superseded(self, epoch: int) -> Fenced:
        self._disconnect()  # the successor is waiting for the outputs' names
        return super()._superseded(epoch)

    @property
    def _is_connected(self) -> bool:
        return self._producers is not None

    def _connect(self) -> None:
        try:
            self._producers = Producers(
                self._link, commits_topic=self._commits_topic, timeout_s=self._timeout_s
            )
        except pulsar.PulsarException as error:
            kind = NotAllowed if is_denied(error) else PublishError
            raise kind(
                f"no exclusive producer on {self._commits_topic} at {self._link.service_url}: {words_of(error)}. Check "
                f"that {self._link.section}.url is right, that the brokers are up, and that the token may produce there."
            ) from error

    def _disconnect(self) -> None:
        producers, self._producers = self._producers, None
        if producers is not None:
            producers.close()

    def _newest(self) -> Commit | None:
        return self._markers.newest()

    def _settled(self, *, at_start: bool = False) -> Commit | None:
        del at_start  # the exclusive producer has ended what was under way
        return self._markers.newest()

    def _take_over(self, claimed: Commit, before: Commit | None) -> None:
        """Claim, and announce in every partition of the actions topic which controller's actions count from here on.

        The rest of a batch that was begun is sent again under its producer name, or never. A predecessor that still held
        the name could still send a part of the batch after the announcement: the broker would then drop our action as a duplicate, and
        consumers would ignore the predecessor's as out of date. So the name is taken first.
        """
        topic, epoch = self._announce_on, claimed.marker.epoch
        with self._explain_errors("the start marker", epoch) as producers:
            self._write(producers, claimed)
            if topic is None:
                return
            if before is not None and not claimed.is_whole:
                producers.take_names({topic: producer_name(self._name, before)}, wait_s=self._handover_s)
            value = encode_leader(self._name, epoch=epoch, time_ms=round(time.time() * 1000))
            name = announcer_name(self._name)
            producers.announce(topic, value, name=name, epoch=epoch, wait_s=self._handover_s)

    def _publish(self, begun: Commit, records: Sequence[OutboundRecord], *, is_new: bool) -> BatchState:
        """Send each topic's records in pieces and wait for each: the records that are out are always the first to publish."""
        batch_id, epoch = begun.marker.batch_id, begun.marker.epoch
        assert batch_id is not None, "the marker of a batch to publish must have the id of the batch"
        sent = Deliveries()
        with self._explain_errors(f"batch {batch_id}", epoch) as producers:
            if is_new:
                self._write(producers, begun)
            name = producer_name(self._name, begun)
            names = {self._link.full_name(record.topic): name for record in records}
            producers.take_names(names, wait_s=self._handover_s)
            places = count()
            for topic, outputs in groupby(records, key=attrgetter("topic")):
                full_name = self._link.full_name(topic)
                for piece in pieces(outputs):
                    for record in piece:
                        producers.send(
                            full_name,
                            record.key,
                            record.value,
                            sequence_id=sequence_id(batch_id, next(places)),
                            epoch=epoch,
                            sent=sent,
                        )
                    sent.wait(timeout_s=self._timeout_s)
            self._write(producers, finish_batch(begun))
        return BatchState.NEW if sent.new_count > 0 else BatchState.OUT

    def _write(self, producers: Producers, commit: Commit) -> None:
        producers.commit(self._name, encode_commit(commit))
        self._commit = commit

    @contextmanager
    def _explain_errors(self, what: str, epoch: int) -> Iterator[Producers]:
        """The producers to write with. Raises a `Fenced` or `PublishError` that says what to do if that fails."""
        assert self._producers is not None, "call open() before publish()"
        try:
            yield self._producers
        except (pulsar.PulsarException, NotSent) as error:
            fenced = (pulsar.ProducerFenced, pulsar.ProducerBusy)
            is_fenced = isinstance(error, fenced) or _result(error) == pulsar.Result.ProducerFenced
            why = f"{self._link.service_url}: {words_of(error)}{_remedy(error)}"
            raise self._failed(what, why, epoch=epoch, is_fenced=is_fenced) from error


def _result(error: Exception) -> pulsar.Result | None:
    return error.result if isinstance(error, NotSent) else None


def _remedy(error: Exception) -> str:
    if isinstance(error, pulsar.MessageTooBig) or _result(error) == pulsar.Result.MessageTooBig:
        return ". Raise maxMessageSize of broker.conf, and nettyMaxFrameSizeBytes of bookkeeper.conf with it"
    if isinstance(error, pulsar.ProducerBusy):
        return ". Another process still holds the name of this controller there; end it, or give this one another name"
    return ""
