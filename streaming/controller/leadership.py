"""One turn as the leader: take over from the process that led under this name, then run the query until a stop or a successor.

A take-over looks, fences, looks again, claims, and only then touches the checkpoint. The first look refuses what can be refused without
fencing, so that a refusal leaves the running controller running. What the second look finds is final: no other process can publish any
more.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from state.outputs import rfc3339
from streaming.contract import families
from streaming.contract.encode import SkippedRange
from streaming.controller.batches import BatchPublisher
from streaming.controller.beats import Beats, ProcessState
from streaming.controller.environment import Changed, EnvironmentMonitor, find_problem, refuse_regrown
from streaming.controller.health import Health
from streaming.controller.metrics import Metrics
from streaming.controller.query_loop import QueryLoop
from streaming.controller.rivals import describe_last, describe_rival, hear_leader, refuse_company
from streaming.process.exits import Refused
from streaming.settings import ClusterSettingsSource, Settings
from streaming.spark.checkpoint import CheckpointDirectory
from streaming.spark.failures import failure_of, is_outage
from streaming.spark.query import Frames, Runs
from streaming.spark.session import Session
from streaming.systems import input_ids, input_side, is_transient, publish_skipped, publisher_of
from streaming.transport.errors import (
    CheckpointError,
    CheckpointMismatch,
    NoAnswer,
    NotAllowed,
    PublishError,
    StartWith,
)
from streaming.transport.publisher import Publisher
from streaming.transport.publishing import Checkpoint
from streaming.transport.side import Begin

_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")


class WaitingOut(Protocol):
    """What a step returns, which is tried again while brokers or store do not answer; raises ``NotReached`` in the end."""

    def __call__(self, step: Callable[[], Value], /) -> Value: ...


@contextmanager
def refuse_errors(settings: Settings) -> Iterator[None]:
    """Raise ``Refused`` for errors that do not allow a start, or going on."""
    try:
        yield
    except (CheckpointError, CheckpointMismatch, PublishError, Changed) as error:
        raise Refused(str(error)) from error
    except NoAnswer as error:
        raise Refused(f"{settings.input.url}: the input cannot be read: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The result of a take-over."""

    publisher: Publisher
    checkpoint: CheckpointDirectory
    ids: dict[str, str]
    """Ids of the input's topics."""
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """Takes over and leads. ``wait`` waits some seconds and returns whether to go on."""

    settings: Settings
    begin: Begin
    start_with: StartWith
    spark: Session
    frames: Frames
    metrics: Metrics
    health: Health
    duty: ProcessState
    beats: Beats
    wait: Callable[[float], bool]
    is_stopping: Callable[[], bool]
    metrics_url: str = ""

    @contextmanager
    def taken_over(self, wait_out: WaitingOut) -> Iterator[Begun]:
        """Take over, until the end of the block. Raises ``Refused``, ``NotReached`` or ``Fenced``."""
        settings, start_with = self.settings, self.start_with
        publisher = publisher_of(settings)
        try:
            with refuse_errors(settings):
                ids = wait_out(partial(input_ids, settings))
                location = settings.spark.checkpoint
                checkpoint = wait_out(lambda: CheckpointDirectory(self.spark.spark, location, topic_ids=ids))
                if start_with != "fresh":
                    wait_out(lambda: refuse_regrown(settings, checkpoint.planned_batch()))
                try:
                    epoch = wait_out(
                        lambda: take_over(checkpoint, publisher, settings, start_with=start_with)
                    )
                except CheckpointMismatch as error:
                    rival = hear_leader(settings)
                    why = (
                        f"{error} {describe_last(settings)}".rstrip()
                        if rival is None
                        else describe_rival(rival, settings)
                    )
                    raise Refused(why) from error
            if start_with == "fresh":
                _LOG.warning(
                    "the input is read again from %s (--from, or controller.warm_start_s back), so that averages do not begin "
                    "empty: records that could not be used may be written to the dead-letter topic a second time",
                    rfc3339(self.begin) if isinstance(self.begin, int) else self.begin,
                )
            yield Begun(publisher=publisher, checkpoint=checkpoint, ids=ids, epoch=epoch)
        finally:
            self.metrics.show(families.LEADER, settings.controller.name, value=0)
            publisher.close()

    def lead(self, begun: Begun, wait_out: WaitingOut, *, skip_lost: bool = False) -> None:
        """Run the query. Raises ``Fenced`` whenever there is a successor, else ``Refused`` or ``SparkGone``."""
        settings, checkpoint, publisher = self.settings, begun.checkpoint, begun.publisher
        if checkpoint.suits_plain_files:
            self.spark.use_plain_files()
        controller = settings.controller
        _LOG.info("controller %s has epoch %d", controller.name, begun.epoch)
        forget_after_s = ClusterSettingsSource(settings).forget_after_s
        batches = BatchPublisher(publisher, self.metrics, settings.topics, forget_after_s=forget_after_s)
        self.duty.lead(begun.epoch, lambda: batches.newest_batch_id)
        self.beats.beat_now()
        refuse_company(settings, epoch=begun.epoch)
        self.health.lead()
        self.metrics.show(families.LEADER, controller.name, value=1)
        with refuse_errors(settings):
            runs = Runs(
                frames=self.frames,
                begin=self.begin,
                checkpoint=checkpoint,
                publisher=publisher,
                batches=batches,
            )
            if skip_lost:
                runs.skip(wait_out(lambda: self._publish_gaps(begun)))
            with EnvironmentMonitor(lambda: find_problem(settings, begun.ids, checkpoint.is_there)) as watch:
                QueryLoop(
                    settings=settings,
                    runs=runs,
                    publisher=publisher,
                    checkpoint=checkpoint,
                    watch=watch,
                    batches=batches,
                    metrics=self.metrics,
                    health=self.health,
                    wait=self.wait,
                    is_stopping=self.is_stopping,
                    write_last_beat=self.beats.write_last_beat,
                    tell_problem=self._tell_problem,
                    metrics_url=self.metrics_url,
                ).run()

    def _tell_problem(self, problem: str) -> None:
        self.duty.note_problem(problem)
        self.beats.beat_now()

    def _publish_gaps(self, begun: Begun) -> list[SkippedRange]:
        """What the input has lost since the checkpoint; it is published on the audit topic first.

        If records were deleted before they were read (a retention that is shorter than an outage), every start ends with an
        error until a person allows with ``--skip-lost`` that they are skipped. Memory, cooldowns and budgets stay. The source
        then skips to the end of the gap, and not one record more.
        """
        lost = input_side(self.settings).find_lost(begun.checkpoint.places())
        gaps = sorted(lost, key=lambda gap: gap.where)
        if gaps:
            publish_skipped(self.settings, gaps, epoch=begun.epoch)
        _LOG.warning("--skip-lost: %s", "; ".join(map(str, gaps)) or "nothing was lost")
        return gaps


def take_over(
    checkpoint: CheckpointDirectory,
    publisher: Publisher,
    settings: Settings,
    *,
    start_with: StartWith,
) -> int:
    """Returns the epoch of this start; raises ``CheckpointError`` and what ``Publisher.open`` does.

    A process that takes over while the directory is made may delete it: then this start is fenced, not refused.
    """

    def inspect() -> Checkpoint:
        return checkpoint.inspect(settings, start_with)

    publisher.check(inspect, start_with=start_with)
    epoch = publisher.open(inspect, start_with=start_with)
    try:
        checkpoint.begin(settings, publisher.marker, start_with, now_ms=round(time.time() * 1000))
    except CheckpointError:
        try:
            publisher.ensure_owner()
        finally:
            publisher.close()  # it is opened again where the store is waited for
        raise
    return epoch


def outage_of(error: Exception) -> str | None:
    """The name of what does not answer now and may answer later; None for any other error."""
    if isinstance(error, CheckpointError):
        cause = error.__cause__
        is_away = isinstance(cause, Exception) and is_outage(failure_of(cause))
        return "the checkpoint's store" if is_away else None
    if isinstance(error, PublishError):
        return None if isinstance(error, NotAllowed) else "the brokers"
    return "the brokers" if is_transient(error) else None
