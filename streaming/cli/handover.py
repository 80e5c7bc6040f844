"""``trimtab handover``: let a standby take over now, such as one of a new version."""

import time
from collections.abc import Sequence
from contextlib import closing

import click

from state.outputs import rfc3339
from streaming.cli.configured import settings_options
from streaming.cli.options import example
from streaming.contract import beat as beats
from streaming.contract.beat import HandOver
from streaming.operators.beats import Running, Standby, newest_beats, newest_standbys
from streaming.operators.outages import pass_over_outage
from streaming.ports.events import NoTopic
from streaming.ports.publishing import PublishError
from streaming.ports.reading import Reader, TopicRecord
from streaming.ports.topics import BEATS_RETENTION_MS
from streaming.process.deadline import Deadline
from streaming.process.exits import NotAcknowledged, NotFound, Refused, WrongUse
from streaming.settings import Settings
from streaming.systems.reading import output_reader

_LOOK_S = 0.5
_WAIT_S = 60.0


@click.command("handover", epilog=example("trimtab handover --to host-2:4711"))
@settings_options
@click.option(
    "--to",
    "instance",
    metavar="HOST:PID",
    help="The standby, if several could lead; see `trimtab status`.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=_WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until it leads.",
)
def handover_command(settings: Settings, instance: str | None, wait_s: float) -> None:
    """Let a standby take over now, without a gap; the leader then stands by, or ends if it runs without `controller.standby`.

    The standby is asked, and takes over as it would from a leader that has ended: nothing is lost or repeated.
    """
    name, topic = settings.controller.name, settings.topics.beats
    with output_reader(settings, topic, begin=_now_ms() - BEATS_RETENTION_MS) as reader:
        records = list(reader.read_to_end())
        leader = _leader(records, name)
        standby = _standby(records, name, instance)
        _ask(settings, standby, leader)
        click.echo(f"asked {standby.instance} to take over from {leader.instance}")
        successor = _wait_for(reader, records, leader, wait_s)
    if successor is None:
        raise NotAcknowledged(
            f"{standby.instance} does not lead after {wait_s:g} s: its log and its /readyz say why; {leader.instance} "
            "goes on unless another one leads (`trimtab status`)"
        )
    click.echo(f"{successor.instance} leads with epoch {successor.epoch}")


def _leader(records: Sequence[TopicRecord], name: str) -> Running:
    found = newest_beats(records, now_ms=_now_ms()).get(name)
    if found is None or not found.runs:
        raise NotFound(
            f"no controller {name} leads now, so there is no leader to take over from: a standby leads by itself, after one "
            "session at most"
        )
    return found


def _standby(records: Sequence[TopicRecord], name: str, instance: str | None) -> Standby:
    """The standby that is to take over. Raises ``NotFound``, ``Refused`` or ``WrongUse``."""
    found = newest_standbys(records, now_ms=_now_ms()).get(name, [])
    wanted = [each for each in found if instance in (None, each.instance)]
    if not wanted:
        who = "no process" if instance is None else f"no {instance}"
        others = ", ".join(each.instance for each in found)
        rest = f"; those who do: {others}" if others else ": start one with `trimtab run --standby`"
        raise NotFound(f"{who} stands by for the controller {name}{rest}")
    able = [each for each in wanted if not each.problem]
    if not able:
        why = "; ".join(f"{each.instance}: {each.problem}" for each in wanted)
        raise Refused(f"no standby of the controller {name} could lead: {why}")
    if len(able) > 1:
        shown = ", ".join(f"{each.instance} (version {each.version})" for each in able)
        raise WrongUse(f"several could lead: {shown}; choose one with --to")
    return able[0]


def _ask(settings: Settings, standby: Standby, leader: Running) -> None:
    from streaming.systems.events import beat_sink_of  # noqa: PLC0415  loads brokers' clients

    asked = HandOver(
        name=leader.controller, to=standby.instance, leader_epoch=leader.epoch, at=rfc3339(_now_ms())
    )
    try:
        with closing(beat_sink_of(settings)) as sink:
            sink.send(asked.name, beats.encode(asked))
            sink.flush()
    except (PublishError, NoTopic) as error:
        raise Refused(str(error)) from error


def _wait_for(reader: Reader, records: list[TopicRecord], before: Running, wait_s: float) -> Running | None:
    """The controller that leads after ``before``; None if none does within ``wait_s``."""
    deadline = Deadline(wait_s)
    while True:
        with pass_over_outage(deadline):
            records += reader.read_to_end()
        newest = newest_beats(records, now_ms=_now_ms()).get(before.controller)
        if newest is not None and newest.epoch > before.epoch:
            return newest
        if deadline.is_over:
            return None
        time.sleep(_LOOK_S)


def _now_ms() -> int:
    return round(time.time() * 1000)
