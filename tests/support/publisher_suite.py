"""What every publisher promises: each output once, over re-runs, hand-overs and checkpoints that do not fit."""

import json
import time
from abc import ABC, abstractmethod
from typing import Any

import pytest

from streaming.transport.errors import CheckpointMismatch, Fenced, PublishError
from streaming.transport.publisher import Publisher
from streaming.transport.publishing import BatchState, Checkpoint, OutboundRecord, RanWith
from tests.support.processes import until
from tests.support.stage import at

QUERY = "11111111-1111-1111-1111-111111111111"


class PublisherSetting(ABC):
    """Topics and a controller name of one test's own."""

    actions: str
    """The topic of actions."""

    @abstractmethod
    def publisher(self, *, announces: bool = False, **options: Any) -> Publisher:
        """A publisher that is not yet connected, as a context manager. With ``announces`` it announces on the topic of actions."""

    @abstractmethod
    def visible(self) -> list[tuple[str, str]]:
        """(value, epoch) of every action that a consumer sees, up to the end of the log."""

    @abstractmethod
    def another(self) -> "PublisherSetting":
        """A controller of another name on the same topics."""

    def seen(self) -> list[str]:
        """The values of ``visible``."""
        return [value for value, _ in self.visible()]

    def batch(self, number: int, text: str = "batch", count: int = 3) -> list[OutboundRecord]:
        """Actions of one round."""
        return records(self.actions, number, text, count)


PATIENT = {"timeout_s": 20.0, "claim_wait_s": 5.0}
"""Options of a publisher, where a test has no others."""


def records(topic: str, number: int, text: str = "batch", count: int = 3) -> list[OutboundRecord]:
    """Records of one round on a topic."""
    return [
        OutboundRecord(topic, "east-1", f"{text} {number}.{place}".encode(), number, place)
        for place in range(count)
    ]


def values(*numbers: int) -> list[str]:
    """The values of batches."""
    return [f"batch {number}.{place}" for number in numbers for place in range(3)]


def _told(value: str) -> str:
    """The type of an event, or the value itself."""
    return str(json.loads(value)["type"]) if value.startswith("{") else value


def opened(setting: PublisherSetting, *, last_batch_id: int | None = None, **options: Any) -> Publisher:
    """A publisher that has taken over."""
    publisher = setting.publisher(**options)
    publisher.open(at(None if last_batch_id is None else QUERY, last_batch_id))
    return publisher


def publish_until_it_succeeds(publisher: Publisher, number: int, batch: list[OutboundRecord]) -> None:
    """The caller's part: the same batch again after every PublishError; each attempt waits for the broker."""
    failures = []
    for _ in range(20):
        try:
            publisher.publish(number, QUERY, batch)
        except PublishError as error:
            failures.append(error)
        else:
            return
    raise ExceptionGroup("the broker is back, but no attempt succeeded", failures)


MISFITS = {
    "rolled-back": (QUERY, 3, "older than what was published"),
    "emptied": (QUERY, None, "older than what was published"),
    "deleted": (None, None, "deleted, replaced"),
    "swapped": ("another", 9, "belongs to another query"),
}


class PublisherSuite:
    """A subclass has a fixture ``setting``."""

    def test_a_batch_is_published_in_its_total_order(self, setting: PublisherSetting):
        with opened(setting) as publisher:
            assert publisher.publish(0, QUERY, list(reversed(setting.batch(0))))
        assert setting.seen() == values(0)

    def test_a_batch_that_is_out_is_skipped_in_any_order(self, setting: PublisherSetting):
        with opened(setting) as publisher:
            publisher.publish(0, QUERY, setting.batch(0))
            assert not publisher.publish(0, QUERY, list(reversed(setting.batch(0))))
        with opened(setting, last_batch_id=0) as publisher:
            assert not publisher.publish(0, QUERY, setting.batch(0))
        assert setting.seen() == values(0)

    def test_an_empty_batch_makes_no_transaction_and_leaves_a_gap(self, setting: PublisherSetting):
        with opened(setting) as publisher:
            publisher.publish(0, QUERY, setting.batch(0))
            assert publisher.publish(1, QUERY, [])
            assert publisher.publish(2, QUERY, setting.batch(2))
        assert setting.seen() == values(0, 2)

    def test_a_re_run_with_other_contents_is_refused_and_left_alone_by_adopt(self, setting: PublisherSetting):
        with opened(setting) as publisher:
            publisher.publish(0, QUERY, setting.batch(0))
            with pytest.raises(CheckpointMismatch, match=r"published with other contents.*--adopt"):
                publisher.publish(0, QUERY, setting.batch(0, "other"))
            with pytest.raises(CheckpointMismatch, match="published with other contents"):
                publisher.publish(0, QUERY, [])
        with setting.publisher() as publisher:
            publisher.open(at(QUERY, 0), start_with="adopt")
            assert publisher.publish(0, QUERY, setting.batch(0, "other")) is BatchState.OTHERWISE
            assert publisher.publish(1, QUERY, setting.batch(1)) is BatchState.NEW
        assert setting.seen() == values(0, 1)

    def test_another_version_leaves_a_batch_as_it_was_published(self, setting: PublisherSetting):
        with setting.publisher(ran_with=RanWith(version="1", settings="s")) as publisher:
            publisher.open(at())
            publisher.publish(0, QUERY, setting.batch(0))
        with setting.publisher(ran_with=RanWith(version="2", settings="s")) as publisher:
            publisher.open(at(QUERY, 0))
            assert publisher.marker.ran_with == RanWith(version="1", settings="s")
            assert publisher.publish(0, QUERY, setting.batch(0)) is BatchState.OUT
            assert publisher.publish(0, QUERY, setting.batch(0, "other")) is BatchState.OTHERWISE
            assert publisher.publish(1, QUERY, setting.batch(1)) is BatchState.NEW
            with pytest.raises(CheckpointMismatch, match="published with other contents"):
                publisher.publish(1, QUERY, setting.batch(1, "other"))
        assert setting.seen() == values(0, 1)

    def test_a_batch_of_another_query_or_from_the_past_is_refused(self, setting: PublisherSetting):
        with opened(setting) as publisher:
            publisher.publish(5, QUERY, setting.batch(5))
            with pytest.raises(CheckpointMismatch, match="another query"):
                publisher.publish(6, "another", setting.batch(6))
            with pytest.raises(CheckpointMismatch, match="a newer batch is already published"):
                publisher.publish(4, QUERY, setting.batch(4))

    def test_the_epoch_header_rises_at_every_start(self, setting: PublisherSetting):
        began_s, epochs = int(time.time()), []
        for start in range(3):
            with setting.publisher() as publisher:
                query_id, newest = (None, None) if start == 0 else (QUERY, start - 1)
                epochs.append(publisher.open(at(query_id, newest)))
                publisher.publish(start, QUERY, setting.batch(start, count=1))
        assert epochs == sorted(set(epochs))
        assert epochs[0] >= began_s
        assert [epoch for _, epoch in setting.visible()] == [str(epoch) for epoch in epochs]

    def test_each_take_over_is_said_before_its_first_action(self, setting: PublisherSetting):
        epochs = []
        for start in range(2):
            with setting.publisher(announces=True) as publisher:
                query_id, newest = (None, None) if start == 0 else (QUERY, 1)
                epochs.append(publisher.open(at(query_id, newest)))
                for number in (start, start + 1):
                    publisher.publish(number, QUERY, setting.batch(number))
        found = [(_told(value), int(epoch)) for value, epoch in setting.visible()]
        first, second = epochs
        assert found == [
            *[(told, first) for told in ("trimtab.leader.v1", *values(0), *values(1))],
            *[(told, second) for told in ("trimtab.leader.v1", *values(2))],
        ]

    @pytest.mark.parametrize(
        ("query_id", "last_batch_id", "explanation"), MISFITS.values(), ids=MISFITS.keys()
    )
    def test_a_checkpoint_that_does_not_fit_the_marker_is_refused(
        self, setting: PublisherSetting, query_id: str | None, last_batch_id: int | None, explanation: str
    ):
        with opened(setting) as publisher:
            publisher.publish(5, QUERY, setting.batch(5))
        with pytest.raises(CheckpointMismatch, match=explanation) as refusal:
            setting.publisher().open(at(query_id, last_batch_id))
        assert f"query {QUERY}, batch 5" in str(refusal.value)
        assert "--fresh" in str(refusal.value)
        assert ("--adopt" in str(refusal.value)) is (query_id is not None)

    def test_batches_without_any_marker_are_refused(self, setting: PublisherSetting):
        with pytest.raises(CheckpointMismatch, match="no marker says which were published"):
            setting.publisher().open(at(QUERY, 12))

    def test_a_start_before_anything_was_published_is_accepted(self, setting: PublisherSetting):
        opened(setting).close()
        with opened(setting, last_batch_id=4) as publisher:
            assert publisher.publish(5, QUERY, setting.batch(5))

    def test_fresh_forgets_the_marker_and_accepts_a_new_query(self, setting: PublisherSetting):
        with opened(setting) as publisher:
            publisher.publish(5, QUERY, setting.batch(5))
        with setting.publisher() as publisher:
            publisher.open(at(), start_with="fresh")
            assert publisher.publish(0, "another", setting.batch(0))
            with pytest.raises(CheckpointMismatch):
                publisher.publish(6, QUERY, setting.batch(6))
        assert setting.seen() == values(5, 0)

    def test_a_query_given_up_by_fresh_is_over_at_once(self, setting: PublisherSetting):
        with opened(setting) as publisher:
            publisher.publish(5, QUERY, setting.batch(5))
        with setting.publisher() as publisher:
            publisher.open(at(QUERY, 5), start_with="fresh")
        for _ in range(2):
            with pytest.raises(CheckpointMismatch, match="a query that is over"):
                setting.publisher().open(at(QUERY, 5))
        with setting.publisher() as publisher:
            publisher.open(at("another", 0))
            with pytest.raises(CheckpointMismatch, match="another query"):
                publisher.publish(6, QUERY, setting.batch(6))
            assert publisher.publish(0, "another", setting.batch(0))
        with setting.publisher() as publisher:
            publisher.open(at(QUERY, 5), start_with="adopt")
            assert publisher.publish(6, QUERY, setting.batch(6))
        assert setting.seen() == values(5, 0, 6)

    def test_a_refusal_before_the_start_disturbs_nobody(self, setting: PublisherSetting):
        with opened(setting) as running:
            running.publish(0, QUERY, setting.batch(0))
            with (
                setting.publisher() as newcomer,
                pytest.raises(CheckpointMismatch, match="deleted, replaced"),
            ):
                newcomer.check(at())
            assert running.publish(1, QUERY, setting.batch(1))
        assert setting.seen() == values(0, 1)

    def test_a_successor_compares_when_nobody_else_can_publish_any_more(self, setting: PublisherSetting):
        planned = 0

        def read() -> Checkpoint:
            return Checkpoint(query_id=QUERY, last_batch_id=planned)

        with opened(setting) as first, setting.publisher() as second:
            first.publish(0, QUERY, setting.batch(0))
            second.check(read)
            planned = 1
            assert first.publish(1, QUERY, setting.batch(1)), "nobody is fenced by a look"
            second.open(read)
            first.close()  # as it does once it knows that it is superseded
            assert second.publish(2, QUERY, setting.batch(2))
        assert setting.seen() == values(0, 1, 2)

    def test_a_superseded_controller_is_told_so_in_an_empty_batch(self, setting: PublisherSetting):
        with opened(setting) as first, setting.publisher() as second:
            first.publish(0, QUERY, setting.batch(0))
            first.ensure_owner()
            second.open(at(QUERY, 0))
            until(first.is_superseded, what="the claim to be readable")
            for batch_id, records in ((1, []), (0, setting.batch(0))):
                with pytest.raises(Fenced, match="taken over"):
                    first.publish(batch_id, QUERY, records)
            with pytest.raises(Fenced, match="taken over"):
                first.ensure_owner()
            assert second.publish(1, QUERY, [])

    def test_adopt_trusts_a_rolled_back_checkpoint_and_no_other_query(self, setting: PublisherSetting):
        with opened(setting) as publisher:
            publisher.publish(5, QUERY, setting.batch(5))
        with setting.publisher() as publisher:
            publisher.open(at(QUERY, 3), start_with="adopt")
            with pytest.raises(CheckpointMismatch, match="another query"):
                publisher.publish(4, "another", setting.batch(4))
            assert publisher.publish(4, QUERY, setting.batch(4))

    def test_an_idle_controller_notices_its_successor(self, setting: PublisherSetting):
        with opened(setting) as first, setting.publisher() as second:
            first.publish(0, QUERY, setting.batch(0))
            assert not first.is_superseded()
            second.open(at(QUERY, 0))
            until(
                first.is_superseded, what="the claim to be read, for which a watch loop asks again and again"
            )
            assert not second.is_superseded()
            with pytest.raises(Fenced, match="taken over"):
                first.publish(1, QUERY, setting.batch(1, "zombie"))
            with pytest.raises(Fenced):
                first.publish(1, QUERY, setting.batch(1, "zombie"))
            assert second.publish(1, QUERY, setting.batch(1))
        assert setting.seen() == values(0, 1)

    def test_a_newcomer_that_refuses_its_checkpoint_ends_nobody(self, setting: PublisherSetting):
        with opened(setting, claim_wait_s=0.2) as running:
            running.publish(0, QUERY, setting.batch(0))
            with pytest.raises(CheckpointMismatch):
                setting.publisher().open(at())
            assert not running.is_superseded()
            with pytest.raises(PublishError):
                running.publish(1, QUERY, setting.batch(1))
            assert running.publish(1, QUERY, setting.batch(1))
        assert setting.seen() == values(0, 1)

    def test_controllers_of_different_names_do_not_meet(self, setting: PublisherSetting):
        with opened(setting) as one, opened(setting.another()) as two:
            one.publish(0, QUERY, setting.batch(0))
            two.publish(7, "another", setting.batch(7))
            assert not one.is_superseded()
            assert one.publish(1, QUERY, setting.batch(1))
        with opened(setting, last_batch_id=1) as one:
            assert not one.publish(1, QUERY, setting.batch(1))
