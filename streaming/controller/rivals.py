"""Who else leads under this controller's name, by its beats: for what a process says that it keeps from leading."""

import time
from collections.abc import Iterable

from policies.wording import time_text
from state.outputs import rfc3339
from streaming.contract import beat as beats
from streaming.contract.beat import Beat, every_s
from streaming.process.deadline import Deadline
from streaming.process.exits import Refused
from streaming.settings import Settings
from streaming.systems import output_side
from streaming.transport.side import TopicRecord

_SESSIONS = 2
"""A leader that was not heard for so long does not count."""
_AGAIN_S = 0.5
_HEAR_S_MAX = 10.0
_FIRST_TIME_S = 1_000_000_000
"""Epochs are the seconds of the clock at a start; smaller ones were only counted."""


def find_leader(settings: Settings, *, above: int = 0, wait_s: float = 0.0) -> Beat | None:
    """The process that leads under this name with an epoch above that, waited for; None also where beats cannot be read."""
    controller, deadline = settings.controller, Deadline(wait_s)
    begin_ms = round(1000 * (time.time() - _SESSIONS * controller.session_s))
    while True:
        try:
            with output_side(settings).reader(settings.topics.beats, begin=begin_ms) as reader:
                found = leader_among(reader.read_to_end(), controller.name, above=above)
        except Refused:
            return None
        if found is not None or deadline.is_over:
            return found
        time.sleep(min(_AGAIN_S, deadline.left_s))


def hear_leader(settings: Settings) -> Beat | None:
    """The process that leads under this name, if a new beat of it comes: the last one may be that of a process that was killed."""
    newest = heard = find_leader(settings)
    deadline = Deadline(0.0 if heard is None else min(2 * every_s(heard.session_s), _HEAR_S_MAX))
    while newest == heard and not deadline.is_over:
        time.sleep(_AGAIN_S)
        newest = find_leader(settings)
    return None if newest == heard else newest


def leader_among(records: Iterable[TopicRecord], name: str, *, above: int = 0) -> Beat | None:
    """The newest beat of the leader with the highest epoch above that, unless it has left."""
    leader: Beat | None = None
    for record in records:
        try:
            beat = beats.decode(record.value or b"")
        except beats.Unreadable:
            continue
        is_ours = (beat.name, beat.role) == (name, "leader") and beat.epoch > above
        if is_ours and (leader is None or beat.epoch >= leader.epoch):
            leader = beat
    return None if leader is None or leader.is_leaving else leader


def leader_text(leader: Beat) -> str:
    """Which process it is, since when it leads, and with which checkpoint."""
    since = (
        f"since {time_text(rfc3339(1000 * leader.epoch))}"
        if leader.epoch >= _FIRST_TIME_S
        else f"epoch {leader.epoch}"
    )
    at = f", with the checkpoint {leader.checkpoint}" if leader.checkpoint else ""
    return f"{leader.instance}, {since}{at}"


def describe_rival(leader: Beat, settings: Settings) -> str:
    """Why a process does not start whose checkpoint is not that of the controller which runs under its name."""
    name = settings.controller.name
    return (
        f'controller "{name}" does not start: another one of this name runs ({leader_text(leader)}), and what it has published '
        f"is not in the checkpoint of this one, {settings.spark.checkpoint}. To run both, give this one a controller.name of its "
        "own. To move the controller here, stop the other one, and start this one with its checkpoint"
    )
