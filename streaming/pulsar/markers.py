"""Reads a controller's commits topic on Pulsar: only its last message counts.

Only one controller at a time writes there, because its producer is exclusive; so only the end of the log is ever read,
and the topic need not be compacted. May be used from several threads.
"""

import threading

import pulsar

from streaming.process.deadline import Deadline
from streaming.pulsar.clients import close, read_to_end
from streaming.pulsar.commit import Commit, decode_commit
from streaming.pulsar.link import PulsarLink
from streaming.transport.errors import PublishError

_LOOK_MS = 1
"""A look takes the messages that the broker has sent already, without a request."""
_POLL_MS = 50


class PulsarMarkers:
    """The newest ``Commit`` on ``topic``, by its full name. The connection is opened when it is needed."""

    def __init__(self, link: PulsarLink, topic: str, *, timeout_s: float) -> None:
        self._link = link
        self._topic = topic
        self._timeout_s = timeout_s
        self._client: pulsar.Client | None = None
        self._reader: pulsar.Reader | None = None
        self._newest: Commit | None = None
        self._lock = threading.Lock()

    def newest(self) -> Commit | None:
        """The newest commit at the time of the call; None on an empty topic. Raises ``PublishError``."""
        with self._lock:
            try:
                reader = self._follower()
                for message in read_to_end(reader, silence_s=self._timeout_s):
                    self._take(message)
            except pulsar.PulsarException as error:
                self._drop()  # a reader whose broker was killed may never give out another message
                raise PublishError(f"the markers on {self._topic} could not be read: {error!r}") from error
            return self._newest

    def wait_for_epoch_above(self, epoch: int, *, timeout_s: float) -> bool:
        """Whether a marker with a higher epoch is there, or appears within ``timeout_s`` (0: one short look).

        False also while the broker cannot be reached: publishing raises the error then.
        """
        deadline = Deadline(timeout_s)
        while True:
            if self._read_new(_POLL_MS if timeout_s else _LOOK_MS) > epoch:
                return True
            if deadline.is_over:
                return False

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        with self._lock:
            self._drop()

    def _read_new(self, wait_ms: int) -> int:
        """Take the messages that have come; returns the newest epoch known. A short look does not wait for another thread's read."""
        if self._lock.acquire(blocking=wait_ms > _LOOK_MS):
            try:
                while self._reader is not None:
                    self._take(self._reader.read_next(timeout_millis=wait_ms))
            except pulsar.Timeout:
                pass
            except pulsar.PulsarException:
                self._drop()
            finally:
                self._lock.release()
        newest = self._newest
        return 0 if newest is None else newest.marker.epoch

    def _take(self, message: pulsar.Message) -> None:
        self._newest = decode_commit(message.data(), topic=self._topic)

    def _follower(self) -> pulsar.Reader:
        if self._reader is None:
            self._client = self._link.client(timeout_s=self._timeout_s)
            self._newest = None
            self._reader = self._client.create_reader(
                self._topic, pulsar.MessageId.latest, start_message_id_inclusive=True
            )
        return self._reader

    def _drop(self) -> None:
        client, self._client, self._reader = self._client, None, None
        if client is not None:
            close(client)
