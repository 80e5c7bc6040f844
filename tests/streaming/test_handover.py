"""Which standby `trimtab handover` asks to lead, and what it says when there is none."""

import time
from collections.abc import Iterator

import pulsar
import pytest

from streaming.cli.handover import _leader, _standby, _wait_for
from streaming.contract.beat import Beat, Role, encode
from streaming.ports.places import Place
from streaming.ports.reading import TopicRecord
from streaming.process.closing import Closing
from streaming.process.exits import NotFound, Refused, WrongUse


def beat(
    instance: str, role: Role = "standby", *, problem: str = "", age_s: float = 0.0, epoch: int = 7
) -> TopicRecord:
    said = Beat(
        name="main",
        instance=instance,
        epoch=epoch if role == "leader" else 0,
        batch=None,
        at="then",
        version="1",
        role=role,
        session_s=10.0,
        problem=problem,
    )
    at_ms = round((time.time() - age_s) * 1000)
    return TopicRecord(key=b"main", value=encode(said), timestamp=at_ms, partition=0, offset=0, headers=[])


def test_the_only_standby_that_could_lead_is_asked_or_the_one_that_is_named() -> None:
    heard = [beat("a:1", "leader"), beat("b:1"), beat("c:1", problem="no checkpoint")]
    assert _standby(heard, "main", None).instance == "b:1"
    assert _standby([*heard, beat("d:1")], "main", "d:1").instance == "d:1"


def test_of_several_that_could_lead_one_has_to_be_named() -> None:
    with pytest.raises(WrongUse, match=r"b:1 \(version 1\), d:1 \(version 1\); choose one with --to"):
        _standby([beat("b:1"), beat("d:1")], "main", None)


def test_a_standby_that_could_not_lead_is_refused_with_its_reason() -> None:
    with pytest.raises(Refused, match="c:1: no checkpoint"):
        _standby([beat("c:1", problem="no checkpoint")], "main", None)


@pytest.mark.parametrize(
    ("ages_s", "instance", "message"),
    [
        ({}, None, "no process stands by for the controller main: start one with `trimtab run --standby`"),
        ({"b:1": 0}, "x:1", "no x:1 stands by for the controller main; those who do: b:1"),
        ({"b:1": 21}, None, "no process stands by"),
    ],
)
def test_where_nobody_stands_by_it_says_what_to_do(
    ages_s: dict[str, float], instance: str | None, message: str
) -> None:
    heard = [beat(name, age_s=age_s) for name, age_s in ages_s.items()]
    with pytest.raises(NotFound, match=message):
        _standby(heard, "main", instance)


@pytest.mark.parametrize("leaders_count", [0, 1])
def test_without_a_leader_a_standby_leads_by_itself(leaders_count: int) -> None:
    heard = [beat("a:1", "leader", age_s=21)] * leaders_count
    with pytest.raises(NotFound, match="a standby leads by itself"):
        _leader(heard, "main")


class Looks(Closing):
    """A reader of the beats; each look finds what is next, or fails."""

    partitions_count = 1

    def __init__(self, *looks: list[TopicRecord] | Exception) -> None:
        self._looks = list(looks)

    def read_to_end(self) -> Iterator[TopicRecord]:
        found = self._looks.pop(0)
        if isinstance(found, Exception):
            raise Refused("Pulsar does not answer as expected") from found
        yield from found

    def read_until(self, place: Place) -> Iterator[TopicRecord]:
        raise NotImplementedError

    def follow(self) -> Iterator[TopicRecord]:
        raise NotImplementedError

    def close(self) -> None:
        pass


PASSES, STAYS = pulsar.BrokerMetadataError("lookup"), pulsar.AuthorizationError("not allowed")


def test_brokers_that_do_not_answer_for_a_moment_do_not_end_the_wait_for_the_new_leader() -> None:
    leader = beat("a:1", "leader")
    reader = Looks(PASSES, [beat("b:1", "leader", epoch=8)])
    successor = _wait_for(reader, [leader], _leader([leader], "main"), 60.0)
    assert successor is not None
    assert (successor.instance, successor.epoch) == ("b:1", 8)


@pytest.mark.parametrize(("error", "wait_s"), [(STAYS, 60.0), (PASSES, 0.0)])
def test_the_wait_ends_with_an_error_that_stays_or_when_its_time_is_over(
    error: Exception, wait_s: float
) -> None:
    leader = beat("a:1", "leader")
    with pytest.raises(Refused, match="Pulsar does not answer"):
        _wait_for(Looks(error), [leader], _leader([leader], "main"), wait_s)
