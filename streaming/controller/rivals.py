"""Who else leads on this controller's topics, by the beats there: for what a process says that it keeps from leading."""

import time
from collections.abc import Callable, Collection, Mapping

from policies.wording import time_text
from state.outputs import rfc3339
from streaming.contract import beat as beats
from streaming.contract.beat import Beat, every_s
from streaming.process.deadline import Deadline
from streaming.process.exits import Refused
from streaming.settings import Settings
from streaming.systems import output_side
from streaming.transport.checkpoint import place_of
from streaming.transport.topics import BEATS_RETENTION_MS

_SESSIONS = 2
"""A leader that was not heard for so long does not count."""
_AGAIN_S = 0.5
_HEAR_S_MAX = 10.0
_FIRST_TIME_S = 1_000_000_000
"""Epochs are the seconds of the clock at a start; smaller ones were only counted."""


def find_leader(settings: Settings, *, above: int = 0, wait_s: float = 0.0) -> Beat | None:
    """The process that leads under this name with an epoch above that, waited for; None also where beats cannot be read."""
    deadline = Deadline(wait_s)
    while True:
        try:
            found = _leaders(settings).get(settings.controller.name)
        except Refused:
            return None
        if found is not None and found.epoch > above:
            return found
        if deadline.is_over:
            return None
        time.sleep(min(_AGAIN_S, deadline.left_s))


def hear_leader(settings: Settings) -> Beat | None:
    """The process that leads under this name, if a new beat of it comes: the last one may be that of a process that was killed."""
    return _hear(settings, lambda heard: {settings.controller.name} & heard.keys())


def refuse_company(settings: Settings, *, epoch: int | None = None) -> None:
    """Raises ``Refused`` where a controller of another name leads on the same topics: executors would carry out what both decide.

    One that leads itself, with ``epoch``, waits until its own beat is on the topic, and gives way to those that beat before it. Of two
    that started at the same moment, and could not hear each other before, both find the same order there.
    """
    name = settings.controller.name
    if epoch is not None:
        find_leader(settings, above=epoch - 1, wait_s=_HEAR_S_MAX)

    def ahead(heard: Mapping[str, Beat]) -> Collection[str]:
        names = list(heard)
        return names[: names.index(name)] if epoch is not None and name in heard else heard.keys() - {name}

    if (other := _hear(settings, ahead)) is not None:
        raise Refused(
            f'controller "{name}" does not start: controller "{other.name}" runs on the same topics ({leader_text(other)}), and '
            f"both would decide the same clusters. Stop that one; or give this one topics of its own in [topics]: {settings.topics.beats} "
            "(beats) is shared, and what it writes must not be; it may share the input and the control topic (if the input is on Pulsar, "
            "with an input.pulsar.subscription of its own)"
        )


def _leaders(settings: Settings) -> dict[str, Beat]:
    """Those that have been heard of late and have not left. Raises ``Refused``."""
    heard = _heard(settings, within_s=_SESSIONS * settings.controller.session_s)
    return {name: beat for name, beat in heard.items() if not beat.is_leaving}


def _heard(settings: Settings, *, within_s: float) -> dict[str, Beat]:
    """The newest beat of the leader with the highest epoch, by the name of its controller; those that have left as well.

    The names are in the order in which these leaders began to beat: the topic has one partition.
    """
    leaders: dict[str, Beat] = {}
    begin_ms = round(1000 * (time.time() - within_s))
    with output_side(settings).reader(settings.topics.beats, begin=begin_ms) as reader:
        for record in reader.read_to_end():
            try:
                beat = beats.decode(record.value or b"")
            except beats.Unreadable:
                continue
            if beat.role != "leader" or (
                (known := leaders.get(beat.name)) is not None and beat.epoch < known.epoch
            ):
                continue
            if known is not None and beat.epoch > known.epoch:
                del leaders[beat.name]
            leaders[beat.name] = beat
    return leaders


def _hear(settings: Settings, wanted: Callable[[Mapping[str, Beat]], Collection[str]]) -> Beat | None:
    """The first of the wanted names that beats anew; None also where beats cannot be read."""
    try:
        heard = _leaders(settings)
        before = {name: heard[name] for name in wanted(heard)}
        patience_s = max((2 * every_s(beat.session_s) for beat in before.values()), default=0.0)
        deadline = Deadline(min(patience_s, _HEAR_S_MAX))
        while not deadline.is_over:
            time.sleep(_AGAIN_S)
            for name, beat in _leaders(settings).items():
                if name in before and beat != before[name]:
                    return beat
    except Refused:
        pass
    return None


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
        f"is not in the checkpoint of this one, {settings.spark.checkpoint}. To move the controller here, stop the other one, "
        "and start this one with its checkpoint. To run both, give this one a controller.name, [topics] and a checkpoint of its own"
    )


def describe_last(settings: Settings) -> str:
    """Which process led last under this name, for one that lacks its checkpoint; empty where none did within the hour, or with this one."""
    try:
        last = _heard(settings, within_s=BEATS_RETENTION_MS / 1000).get(settings.controller.name)
    except Refused:
        return ""
    here = place_of(settings.spark.checkpoint)
    return "" if last is None or last.checkpoint in {"", here} else f"It ran last as {leader_text(last)}"
