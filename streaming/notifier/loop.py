"""The loop of ``trimtab notify``: read the topics, send to each receiver, commit the position.

A position is committed once the messages about what was read are delivered, refused or given up, so a crash may send a notice twice and
loses none. Which lasting holds and findings were sent is remembered in memory only: a restart sends them once more.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from streaming.notifier.delivery import Delivery, Result
from streaming.notifier.forms import message
from streaming.notifier.metrics import NotifierMetrics
from streaming.notifier.notices import Notice, RecordNotices, UnreadableRecord, read
from streaming.notifier.outlet import Outlet
from streaming.ports.actions import ActionRecord, Actions, Epochs
from streaming.ports.publishing import PublishError
from streaming.process.pulse import Pulse
from streaming.process.serve import Check
from streaming.settings.receivers import ReceiverSettings

__all__ = ["NotifierLoop", "Source"]

_LOG = logging.getLogger(__name__)
_POLL_S = 0.3
_STAY_S = 1.0
_RETRY_S = 5.0
"""Seconds between attempts to go on after the brokers failed."""


class Source(NamedTuple):
    """A topic, and the epochs heard on it, which are kept with its position."""

    records: Actions
    epochs: Epochs


class _Posted(NamedTuple):
    """A message on its way."""

    notices: Sequence[Notice]
    result: "Future[tuple[Result, str]]"


class NotifierLoop:
    """Reads some topics and sends what is in them to the receivers. ``run`` is for one thread."""

    def __init__(
        self,
        topics: Mapping[str, Source],
        receivers: Mapping[str, ReceiverSettings],
        metrics: NotifierMetrics,
        *,
        clock_s: Callable[[], float],
        deliver: Callable[[str, ReceiverSettings, threading.Event], Delivery] = Delivery,
    ) -> None:
        self._topics, self._receivers, self._metrics, self._clock_s = topics, receivers, metrics, clock_s
        self._stop = threading.Event()
        self._outlets = {name: Outlet(each) for name, each in receivers.items()}
        self._deliveries = {name: deliver(name, each, self._stop) for name, each in receivers.items()}
        self._pulse = Pulse()
        metrics.show_poll(clock_s())

    def run(self, *, once: bool = False) -> None:
        """Run until ``stop``; with ``once`` until everything that is there has been sent. Raises ``PublishError`` only with ``once``."""
        with ThreadPoolExecutor(len(self._deliveries), thread_name_prefix="deliver") as workers:
            while not self._stop.is_set():
                self._pulse.note_turn()
                try:
                    is_at_end = self._run_round(workers)
                except PublishError as error:
                    if once:
                        raise
                    self._drop(error)
                else:
                    self._pulse.problem = ""
                    if once and is_at_end:
                        return

    def stop(self) -> None:
        """End soon: attempts in progress are the last. For signal handlers."""
        self._stop.set()

    def close(self) -> None:
        """Close the connections to the receivers."""
        for each in self._deliveries.values():
            each.close()

    def readiness(self) -> Sequence[Check]:
        """Whether the brokers answer."""
        return self._pulse.readiness()

    def liveness(self) -> Sequence[Check]:
        """Whether the loop turns, and messages in progress end."""
        return self._pulse.liveness()

    def _run_round(self, workers: ThreadPoolExecutor) -> bool:
        """Read what is there, send it, commit; returns whether nothing was there. Raises ``PublishError``."""
        read_from = []
        for name, topic in self._topics.items():
            records = topic.records.poll(timeout_s=_POLL_S)
            if records:
                read_from.append(topic.records)
                self._offer(name, topic.epochs, records)
        self._pulse.note_poll()
        self._metrics.show_poll(self._clock_s())
        self._send_waiting(workers)
        if self._stop.is_set():
            return False
        for each in read_from:
            each.commit()
        return not read_from and all(topic.records.is_at_end() for topic in self._topics.values())

    def _offer(self, name: str, epochs: Epochs, records: Sequence[ActionRecord]) -> None:
        for record in records:
            try:
                found = read(record.value)
            except UnreadableRecord as error:
                self._metrics.count_unreadable()
                _LOG.error("a record on %s cannot be read: %s: %.200r", name, error, record.value)
                continue
            if _is_current(epochs, found, record):
                self._offer_each(found)

    def _offer_each(self, found: RecordNotices) -> None:
        for name, outlet in self._outlets.items():
            old_count = outlet.offer(found, now_s=self._clock_s())
            if old_count:
                self._metrics.count_left_out(name, "too-old", old_count)
                _LOG.info("%d notices for %s are older than an hour and are left out", old_count, name)

    def _send_waiting(self, workers: ThreadPoolExecutor) -> None:
        """Send one message to each receiver that has notices waiting; the polled records are kept meanwhile."""
        self._pulse.note_progress()
        posted = {name: each for name in self._outlets if (each := self._post(workers, name)) is not None}
        while wait([each.result for each in posted.values()], timeout=_STAY_S).not_done:
            self._pulse.note_turn()
            for topic in self._topics.values():
                topic.records.keep_polled()
        self._pulse.note_end()
        for name, each in posted.items():
            self._note(name, each)

    def _post(self, workers: ThreadPoolExecutor, name: str) -> "_Posted | None":
        outlet, settings = self._outlets[name], self._receivers[name]
        before_count = outlet.left_out_count
        notices = outlet.take(now_s=self._clock_s())
        if outlet.left_out_count > before_count:
            self._metrics.count_left_out(name, "limit", outlet.left_out_count - before_count)
            _LOG.warning("%s: max_per_hour_count is reached, notices are left out", name)
        if not notices:
            return None
        body = message(settings.format, name, notices, outlet.take_left_out())
        return _Posted(notices, workers.submit(self._deliveries[name].post, body))

    def _note(self, name: str, posted: "_Posted") -> None:
        result, why = posted.result.result(timeout=0)
        self._metrics.count_message(name, result)
        if result != "delivered":
            self._outlets[name].defer(posted.notices)
            _LOG.error("a message to %s was %s: %s", name, result.replace("-", " "), why)

    def _drop(self, error: PublishError) -> None:
        self._pulse.problem = str(error)
        _LOG.warning("%s", error)
        for topic in self._topics.values():
            topic.records.drop()
        self._stop.wait(_RETRY_S)


def _is_current(epochs: Epochs, found: RecordNotices, record: ActionRecord) -> bool:
    """Whether a record counts: one of a controller that another one has replaced does not."""
    text = (record.epoch_header or b"").decode(errors="replace")
    epoch = int(text) if text.isdecimal() else 0
    return epochs.note(record.partition, found.source, epoch) == epoch
