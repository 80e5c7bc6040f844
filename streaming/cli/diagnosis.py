"""Everything a person would look at first: the looks, the checks, and what they find."""

import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from state.engine.layouts import FRESH
from state.outputs import INFORMATION, RoundSummary
from streaming.cli.beats import aged_beats, is_silent
from streaming.cli.output import counts_text, table_lines
from streaming.cli.published import Newest, Round, UnreadableEvent, epoch_of, read_rejected, read_round
from streaming.contract.beat import Beat
from streaming.contract.envelope import read_envelope
from streaming.ports.checkpoint import (
    Card,
    CheckpointError,
    card_of,
    read_card,
    read_query,
    refuse_other_cards,
    refuse_strangers,
)
from streaming.ports.marker import Checkpoint, Marker, next_start
from streaming.ports.publishing import CheckpointMismatch, PublishError
from streaming.ports.reading import NoAnswer, TopicRecord
from streaming.ports.seen import BrokersSeen, TopicsSeen
from streaming.ports.starts import Start, newest_number, newest_start
from streaming.ports.topics import StartError
from streaming.process.exits import OK, REFUSED, UNREACHABLE, Refused, WrongUse
from streaming.process.within import within
from streaming.settings import Settings
from streaming.systems.reading import input_reader, output_reader

if TYPE_CHECKING:
    from streaming.systems.examining import Side

Outcome = Literal["problem", "warning", "not checked", "ok"]
OUTCOMES: tuple[Outcome, ...] = ("problem", "warning", "not checked", "ok")
"""The worst first."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    check: str
    """Name of the check."""
    outcome: Outcome
    about: str
    """Which side, topic, cluster or process; empty where there is only one."""
    finding: str
    """One sentence: what is wrong, why it was not checked, or what is well."""
    remedy: str | None
    """What to do; null where nothing is to be done."""
    is_unreachable: bool = False
    """Whether brokers do not answer, which may pass."""


class Missed(msgspec.Struct, frozen=True):
    """Something that could not be looked at."""

    why: str
    is_unreachable: bool = False


def good(check: str, finding: str, *, about: str = "") -> Finding:
    """There is nothing to do."""
    return Finding(check=check, outcome="ok", about=about, finding=finding, remedy=None)


def warning(check: str, finding: str, remedy: str, *, about: str = "") -> Finding:
    """A person should look at it, but not at night."""
    return Finding(check=check, outcome="warning", about=about, finding=finding, remedy=remedy)


def problem(
    check: str, finding: str, remedy: str, *, about: str = "", is_unreachable: bool = False
) -> Finding:
    """Trimtab does not do its work, or would not start."""
    return Finding(
        check=check,
        outcome="problem",
        about=about,
        finding=finding,
        remedy=remedy,
        is_unreachable=is_unreachable,
    )


def not_checked(check: str, why: str, remedy: str | None = None, *, about: str = "") -> Finding:
    """Nothing is known about it."""
    return Finding(check=check, outcome="not checked", about=about, finding=why, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSeen:
    """One address, with its brokers and topics."""

    name: str
    url: str
    brokers: BrokersSeen | Missed
    topics: TopicsSeen | Missed


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSeen:
    """The checkpoint as this machine has it; every field but the location is None if it has none."""

    location: str
    card: Card | None = None
    checkpoint: Checkpoint | None = None
    committed_batch: int | None = None
    refusal: str | None = None
    """Why a start would refuse it, whatever the marker says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of a controller, by its newest beat within the last hour."""

    controller: str
    instance: str
    """``host:pid``."""
    epoch: int
    batch: int | None
    version: str
    role: str
    """``leader`` or ``standby``."""
    problem: str
    """Why a standby could not lead now; empty where it could, or leads."""
    age_s: float
    """Seconds since the beat."""
    runs: bool
    """Whether it still beats."""
    ahead_s: float
    """Seconds by which its clock is ahead of the brokers'."""

    @property
    def host(self) -> str:
        """The machine that it runs on."""
        return self.instance.rpartition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """The newest summary of a cluster, with the epoch of its controller."""

    event: Round
    epoch: int | None

    @property
    def data(self) -> RoundSummary:
        """The content of the summary."""
        return self.event.data


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSeen:
    """The newest records of the input topic, as far as they were looked at."""

    youngest_age_s: float | None
    """Seconds since the youngest record seen; None if there was none in the last day."""
    ahead_s: Mapping[str, float]
    """By sender, the seconds by which its events' times are ahead of when they were appended; the worst of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedSeen:
    """Records that could not be used in the last hour, by reason."""

    counts: Mapping[str, int]
    is_complete: bool
    """False where there are more than were counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts, at one moment."""

    settings: Settings
    version: str
    """Version of this trimtab."""
    spark_version: str
    """Version of the pyspark that is installed here."""
    host: str
    """Name of this machine."""
    now_ms: int
    sides: tuple[SideSeen, ...]
    marker: Marker | Missed | None
    checkpoint: CheckpointSeen | Missed
    processes: tuple[Process, ...] | Missed
    clusters: tuple[ObservedCluster, ...] | Missed
    """The newest summary of each cluster within the last day."""
    input: InputSeen | Missed
    rejected: RejectedSeen | Missed


_LOOKS_COUNT = 3
"""How often to look: a controller that has just begun deletes what was there before it, perhaps while we look."""


class CheckpointElsewhere(Exception):
    """The checkpoint is not on a disk of this machine; the text says where it is."""


class _Disk:
    """The files below a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def names(self, name: str = "") -> list[str]:
        return [path.name for path in (self._root / name).iterdir()] if self.exists(name) else []

    def read(self, name: str) -> bytes | None:
        return (self._root / name).read_bytes() if self.exists(name) else None


def checkpoint_seen(settings: Settings, topic_ids: Mapping[str, str]) -> CheckpointSeen:
    """What a start would find, and why it would refuse it. Raises ``CheckpointElsewhere`` for what only Spark can read."""
    files = _Disk(_path_of(settings.spark.checkpoint))
    for _ in range(_LOOKS_COUNT):
        start = newest_start(files)
        seen = _inspect(files, start, settings, topic_ids)
        if seen.refusal is None or newest_start(files) == start:
            break
    return seen


def _inspect(
    files: _Disk, start: Start | None, settings: Settings, topic_ids: Mapping[str, str]
) -> CheckpointSeen:
    location = settings.spark.checkpoint
    card: Card | None = None
    try:
        if start is None:
            refuse_strangers(files, location)
            return CheckpointSeen(location=location)
        card = read_card(files, location, start)
        refuse_other_cards(location, card, card_of(settings, topic_ids))
        return CheckpointSeen(
            location=location,
            card=card,
            checkpoint=read_query(files, location, start),
            committed_batch=newest_number(files, start, "commits"),
        )
    except CheckpointError as error:
        return CheckpointSeen(location=location, card=card, refusal=str(error))
    except OSError as error:
        return CheckpointSeen(
            location=location, card=card, refusal=f"the checkpoint {location} cannot be read: {error}"
        )


def _path_of(location: str) -> Path:
    parts = urlsplit(location)
    if parts.scheme not in {"", "file"}:
        raise CheckpointElsewhere(
            f"it is at {location}, which only Spark can read: a start shows whether it can be used"
        )
    return Path(unquote(parts.path) if parts.scheme else location)


def processes(records: Iterable[TopicRecord], *, now_ms: int) -> tuple[Process, ...]:
    """The newest beat of each process, by name and instance; other records are skipped."""
    found = {
        (beat.name, beat.instance): _process(beat, age_s, now_ms)
        for beat, age_s in aged_beats(records, now_ms=now_ms)
    }
    return tuple(found[key] for key in sorted(found))


def _process(beat: Beat, age_s: float, now_ms: int) -> Process:
    appended_s = now_ms / 1000 - age_s
    return Process(
        controller=beat.name,
        instance=beat.instance,
        epoch=beat.epoch,
        batch=beat.batch,
        version=beat.version,
        role=beat.role,
        problem=beat.problem,
        age_s=age_s,
        runs=not beat.is_leaving and not is_silent(age_s, beat.session_s),
        ahead_s=_ahead_s(beat, appended_s),
    )


def _ahead_s(beat: Beat, appended_s: float) -> float:
    """Seconds by which its clock was ahead when the beat was appended; 0 if the beat has no time."""
    try:
        return round(datetime.fromisoformat(beat.at).timestamp() - appended_s, 3)
    except ValueError:
        return 0.0


def ahead_by_sender(records: Iterable[TopicRecord]) -> dict[str, float]:
    """Seconds from a record's append to its event's time, the farthest from 0 of each ``source``; other records are skipped."""
    found: dict[str, float] = {}
    for record in records:
        try:
            head = read_envelope(record.value or b"")
            sent_s = msgspec.convert(head.time, datetime).timestamp()
            ahead_s = round(sent_s - record.timestamp / 1000, 3)
        except (msgspec.MsgspecError, ValueError, OverflowError):
            continue
        found[head.source] = max(found.get(head.source, ahead_s), ahead_s, key=abs)
    return dict(sorted(found.items()))


_CREATE = "Run: trimtab topics create"


def addresses(facts: Facts) -> Iterator[Finding]:
    """Whether the brokers answer."""
    for side in facts.sides:
        seen = side.brokers
        if not isinstance(seen, Missed):
            said = "" if seen.version is None else f", version {seen.version}"
            yield good("addresses", f"{side.url} answers: {seen.text}{said}", about=side.name)
        else:
            section = "input" if side.name.startswith("input") else "output"
            remedy = (
                f"Start the brokers, or correct {section}.url: the connection's settings are in [{section}.pulsar]"
                if side.url.startswith("pulsar")
                else f"Start the brokers, or correct {section}.url: the connection's settings are in [{section}.security]"
            )
            yield problem("addresses", seen.why, remedy, about=side.name, is_unreachable=seen.is_unreachable)


def permissions(facts: Facts) -> Iterator[Finding]:
    """Whether the settings' user may do what ``trimtab run`` does."""
    for side, seen in _topics_of_sides(facts, "permissions"):
        if isinstance(seen, Finding):
            yield seen
            continue
        for denied in seen.denied:
            runs_without = denied.tolerable and not facts.settings.controller.standby
            say = warning if runs_without else problem
            yield say("permissions", denied.what, denied.remedy, about=side.name)
        if not seen.denied:
            yield good("permissions", "no permission is missing on the topics", about=side.name)
        if side.name != "input":
            yield from _find_unchecked_permissions(facts.settings, side)


def _find_unchecked_permissions(settings: Settings, side: SideSeen) -> Iterator[Finding]:
    """Permissions that brokers show only to a client that uses them."""
    if settings.output_is_pulsar:
        place = settings.input.pulsar if settings.output.url is None else settings.output.pulsar
        if place.token_file is not None:
            topic = place.full_name(settings.topics.actions)
            yield not_checked(
                "permissions",
                "only producing shows whether the token's role may produce",
                f"See: pulsar-admin topics permissions {topic}",
                about=side.name,
            )
        return
    security = settings.input.security if settings.output.url is None else settings.output.security
    if security.names_a_user or security.certificate_file is not None:
        name = settings.controller.name
        yield not_checked(
            "permissions",
            f"only a start shows whether Write is allowed on the transactional id {name}",
            f"See: kafka-acls.sh --bootstrap-server {settings.output_bootstrap} --list --transactional-id {name}",
            about=side.name,
        )


def topics(facts: Facts) -> Iterator[Finding]:
    """Whether the topics are as ``trimtab topics create`` makes them."""
    for side, seen in _topics_of_sides(facts, "topics"):
        if isinstance(seen, Finding):
            yield seen
        else:
            yield from _topics_of(side, seen, facts.settings)


def _topics_of(side: SideSeen, seen: TopicsSeen, settings: Settings) -> Iterator[Finding]:
    found = [problem("topics", "the topic is missing", _CREATE, about=name) for name in seen.missing]
    found += [
        warning("topics", f"the topic is missing: {_use_of(name, settings)}", _CREATE, about=name)
        for name in seen.missing_optional
    ]
    for each in seen.differences:
        say = warning if each.tolerable else problem
        text = f"{each.setting} is {each.found}, expected {each.expected}"
        found.append(say("topics", text, each.remedy, about=each.topic))
    found += [warning("topics", each.what, each.remedy, about=side.name) for each in seen.warnings]
    yield from found
    if not found:
        yield good("topics", f"all {seen.count} are as `trimtab topics create` makes them", about=side.name)


def _use_of(name: str, settings: Settings) -> str:
    if name.rpartition("/")[2] == settings.topics.beats:
        return "without it trimtab cannot show which controller runs"
    return "only `trimtab execute kafka` needs it"


def partitions(facts: Facts) -> Iterator[Finding]:
    """Whether each partition has a leader and enough replicas; Pulsar has neither."""
    for side, seen in _topics_of_sides(facts, "partitions"):
        if isinstance(seen, Finding):
            yield seen
            continue
        for each in seen.unwell:
            say = warning if each.tolerable else problem
            text = f"{each.setting}: {each.found}, expected {each.expected}"
            yield say("partitions", text, each.remedy, about=each.topic)
        if not seen.unwell and not side.url.startswith("pulsar"):
            yield good(
                "partitions", "each partition has a leader and all its replicas in sync", about=side.name
            )


def _topics_of_sides(facts: Facts, check: str) -> Iterator[tuple[SideSeen, TopicsSeen | Finding]]:
    """Each side with its topics, or with the reason why nothing is known about them."""
    for side in facts.sides:
        seen = side.topics
        if isinstance(seen, Missed):
            yield side, not_checked(check, seen.why, about=side.name)
        else:
            yield side, seen


_FAR_S = 2.0
"""Clocks that are kept by NTP agree within milliseconds; the rest is the time that a record takes to its broker."""
_BEHIND_S = 60.0
"""Events further behind may come from a queue or a recording."""
_REMEDY = "Keep the clocks of all machines by NTP: timedatectl status"


def clocks(facts: Facts) -> Iterator[Finding]:
    """Which clock is wrong, as far as the time of each is known."""
    found = [*_brokers(facts), *_controllers(facts), *_senders(facts)]
    yield from found
    if not found and _is_unknown(facts):
        yield not_checked("clocks", "no clock can be compared: there is no recent beat or event")
    elif not found:
        yield good("clocks", "the known clocks agree with the brokers'")


def _is_unknown(facts: Facts) -> bool:
    told = any(
        not isinstance(each.brokers, Missed) and each.brokers.ahead_s is not None for each in facts.sides
    )
    sent = not isinstance(facts.input, Missed) and facts.input.ahead_s
    return not (told or sent or facts.processes)


def _brokers(facts: Facts) -> Iterator[Finding]:
    """Pulsar reports its time; on Kafka a beat that was appended in the future shows that this machine's clock is behind."""
    known = False
    for side in facts.sides:
        ahead_s = None if isinstance(side.brokers, Missed) else side.brokers.ahead_s
        if ahead_s is not None:
            known = True
            yield from _judge_own_clock(-ahead_s, side.name)
    if not known and not isinstance(facts.processes, Missed):
        ages = [each.age_s for each in facts.processes]
        if ages and min(ages) < 0:
            yield from _judge_own_clock(min(ages), "the brokers")


def _judge_own_clock(ahead_s: float, name: str) -> Iterator[Finding]:
    if abs(ahead_s) > _FAR_S:
        yield warning(
            "clocks",
            f"this machine's clock is {_describe_offset(ahead_s)} that of {name}",
            _REMEDY,
            about=name,
        )


def _controllers(facts: Facts) -> Iterator[Finding]:
    if isinstance(facts.processes, Missed):
        yield not_checked("clocks", f"the beats of controllers: {facts.processes.why}")
        return
    for process in facts.processes:
        if process.runs and abs(process.ahead_s) > _FAR_S:
            yield warning(
                "clocks",
                f"its clock is {_describe_offset(process.ahead_s)} the brokers'",
                _REMEDY,
                about=process.instance,
            )


def _senders(facts: Facts) -> Iterator[Finding]:
    if isinstance(facts.input, Missed):
        yield not_checked("clocks", f"the events of the input: {facts.input.why}")
        return
    settings = facts.settings
    most_s = min(settings.pulsar.rounds.max_ahead_s, settings.kafka.rounds.max_ahead_s)
    for sender, ahead_s in facts.input.ahead_s.items():
        text = f"its events are {_describe_offset(ahead_s)} the brokers' clock"
        if ahead_s > most_s:
            yield problem(
                "clocks",
                f"{text}: they are refused as ahead-of-log from {most_s:g} s on",
                _REMEDY,
                about=sender,
            )
        elif ahead_s > _FAR_S:
            yield warning("clocks", text, _REMEDY, about=sender)
        elif ahead_s < -_BEHIND_S:
            yield warning(
                "clocks",
                f"{text}: they are late, or a recording is played",
                f"{_REMEDY}; see whether the sender keeps up",
                about=sender,
            )


def _describe_offset(ahead_s: float) -> str:
    return f"{abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'}"


_ADVICE = re.compile(r"[:;.,][^:;.,]*--(?:fresh|adopt|skip-lost).*", re.DOTALL)
_REFUSED = "See docs/operations.md, When the checkpoint is refused"


def checkpoint(facts: Facts) -> Iterator[Finding]:
    """Whether a start on this machine would use the checkpoint."""
    seen = facts.checkpoint
    if isinstance(seen, Missed):
        yield not_checked("checkpoint", seen.why)
    elif seen.refusal is not None and (why := _why_elsewhere(facts)):
        yield not_checked("checkpoint", f"{_without_options(seen.refusal)}; but {why}", _look_there(facts))
    elif seen.refusal is not None:
        yield problem("checkpoint", seen.refusal, _REFUSED)
    elif seen.checkpoint is None:
        yield from _no_checkpoint(facts, seen)
    else:
        wrote = "" if seen.card is None else f", written by trimtab {seen.card.trimtab_version or 'unknown'}"
        yield good(
            "checkpoint",
            f"{seen.location} can be used: planned to batch {_batch(seen.checkpoint.last_batch_id)}, committed to "
            f"{_batch(seen.committed_batch)}{wrote}",
        )


def _no_checkpoint(facts: Facts, seen: CheckpointSeen) -> Iterator[Finding]:
    known = facts.marker
    if isinstance(known, Marker) and known.query_id is not None:
        here = f"there is none at {seen.location} on this machine, {facts.host}"
        why = _why_elsewhere(facts) or ("" if _own_processes_of(facts) else "nobody knows where it ran")
        if why:
            yield not_checked("checkpoint", f"{here}; but {why}", _look_there(facts))
        else:
            yield problem(
                "checkpoint",
                f"{here}, and the controller ran on it",
                f"Bring it back as it was, or start over with {FRESH}. {_REFUSED}",
            )
    else:
        yield good("checkpoint", f"there is none at {seen.location}, and a first start makes it")


def _why_elsewhere(facts: Facts) -> str:
    """Why the controller's checkpoint may be another one than what is seen from here; empty where it is this one."""
    own = _own_processes_of(facts)
    others = sorted({each.host for each in own} - {facts.host})
    leaders = sorted(each.instance for each in own if each.runs and each.role != "standby")
    if leaders:
        return f"{leaders[0]} leads, so the checkpoint that it uses is well"
    if not facts.settings.spark.checkpoint.startswith(("/", "file:")):
        return "the path is relative, and from another directory it leads elsewhere"
    return f"the controller ran on {', '.join(others)}" if others else ""


def _look_there(facts: Facts) -> str:
    hosts = (
        ", ".join(sorted({each.host for each in _own_processes_of(facts)})) or "the machine of the controller"
    )
    return f"Run trimtab doctor on {hosts}, in the directory and with the settings of the controller"


def _without_options(text: str) -> str:
    """A refusal without its advice to start over: a start that does so while somebody leads would end it and forget its memory."""
    return _ADVICE.sub("", text)


def marker(facts: Facts) -> Iterator[Finding]:
    """Whether what was published and the checkpoint agree, by the rules of a start."""
    found, seen = facts.marker, facts.checkpoint
    if isinstance(found, Missed):
        yield not_checked("marker", found.why)
        return
    text = _marker_text(found)
    if isinstance(seen, Missed) or seen.refusal is not None:
        yield not_checked("marker", f"{text}; the checkpoint it should agree with was not read")
        return
    known = seen.checkpoint or Checkpoint(query_id=None, last_batch_id=None)
    try:
        next_start(
            found,
            known,
            name=facts.settings.controller.name,
            start_with="checkpoint",
            now_s=facts.now_ms / 1000,
        )
    except CheckpointMismatch as error:
        if why := _why_elsewhere(facts):
            here = f"{text}; a start from here would be refused: {_without_options(str(error))}; but {why}"
            yield not_checked("marker", here, _look_there(facts))
        else:
            yield problem("marker", str(error), _REFUSED)
    else:
        yield good("marker", f"{text}, and the checkpoint agrees")


def _marker_text(found: Marker | None) -> str:
    if found is None:
        return "nothing was published yet"
    if found.batch_id is None:
        return f"no batch was published since the start of epoch {found.epoch}"
    return f"batch {found.batch_id} is published"


def epoch(facts: Facts) -> Iterator[Finding]:
    """Whether the commits topic knows the highest epoch there was: consumers refuse every lower one."""
    if isinstance(facts.marker, Missed):
        yield not_checked("epoch", facts.marker.why)
        return
    stands = 0 if facts.marker is None else facts.marker.epoch
    higher = {f"the beat of {each.instance}": each.epoch for each in _own_processes_of(facts)}
    higher |= {f"the newest round of {cluster}": each for cluster, each in _of_rounds(facts)}
    problems = [f"{what} has epoch {each}" for what, each in higher.items() if each > stands]
    if problems:
        yield problem(
            "epoch",
            f"{', '.join(problems)}, and the newest marker {stands or 'none'}: the commits topic has lost records",
            f"Run doctor again: a controller may just have started. If it stays so, find out who emptied or replaced "
            f"{facts.settings.topics.commits}. {_REFUSED}",
        )
    else:
        yield good("epoch", f"{stands} is the highest" if stands else "there is none yet")


def _of_rounds(facts: Facts) -> Iterator[tuple[str, int]]:
    name = facts.settings.controller.name
    for observed in () if isinstance(facts.clusters, Missed) else facts.clusters:
        if observed.epoch is not None and observed.event.source.rpartition("/")[2] == name:
            yield observed.data.cluster, observed.epoch


def leader(facts: Facts) -> Iterator[Finding]:
    """Which processes run under this controller's name, and which others there are."""
    if isinstance(facts.processes, Missed):
        yield not_checked("leader", facts.processes.why)
        return
    name = facts.settings.controller.name
    leaders = [each for each in _own_processes_of(facts) if each.runs and each.role != "standby"]
    if not leaders:
        yield problem(
            "leader",
            f"no controller {name} runs: {_describe_last_beat(facts)}",
            "Start it: trimtab run. Its exit code and the last lines of its log say why it ended (docs/operations.md, Exit "
            "codes)",
        )
    elif len(leaders) > 1:
        names = ", ".join(f"{each.instance} (epoch {each.epoch})" for each in leaders)
        yield warning(
            "leader",
            f"more than one process beats as {name}: {names}. The highest epoch is obeyed, the others end at their next batch",
            "Run doctor again in half a minute; stop the one that is not supervised, or give it a controller.name of its own",
        )
    else:
        (only,) = leaders
        yield good("leader", f"{only.instance} runs, epoch {only.epoch}, batch {_batch(only.batch)}")
    yield from _standbys(facts)
    others = sorted({each.controller for each in facts.processes if each.runs and each.controller != name})
    if others:
        yield good("leader", f"controllers of other names run, too: {', '.join(others)}")


def _standbys(facts: Facts) -> Iterator[Finding]:
    running = [each for each in _own_processes_of(facts) if each.runs]
    standing = [each for each in running if each.role == "standby"]
    for each in standing:
        if each.problem:
            yield problem(
                "leader",
                f"this standby could not lead: "
                f"{each.problem if standing == running else _without_options(each.problem)}",
                "Mend it before the leader ends",
                about=each.instance,
            )
        else:
            yield good("leader", "stands by", about=each.instance)
    if facts.settings.controller.standby and not standing:
        yield warning(
            "leader",
            "controller.standby is on, but no standby is running",
            "Start a second one on another machine: trimtab run --standby",
        )


def _describe_last_beat(facts: Facts) -> str:
    silent = sorted(_own_processes_of(facts), key=lambda each: each.age_s)
    if not silent:
        return "no beat of it in the last hour"
    return f"its last beat was {silent[0].age_s / 60:.1f} min ago, from {silent[0].instance}"


def versions(facts: Facts) -> Iterator[Finding]:
    """Whether all processes and the checkpoint have the same version of trimtab."""
    found = {each.instance: each.version for each in _own_processes_of(facts) if each.runs}
    seen = facts.checkpoint
    card = None if isinstance(seen, Missed) else seen.card
    if card is not None and card.trimtab_version:
        found[f"the checkpoint {facts.settings.spark.checkpoint}"] = card.trimtab_version
    others = {who: each for who, each in found.items() if each != facts.version}
    for who, each in others.items():
        yield warning(
            "versions",
            f"it has trimtab {each}, this command has {facts.version}",
            "Run doctor with the same version, or upgrade the older one",
            about=who,
        )
    if card is not None and card.spark_version and card.spark_version != facts.spark_version:
        yield warning(
            "versions",
            f"it was written by Spark {card.spark_version}, and {facts.spark_version} is installed here",
            f"Run: pip install pyspark=={card.spark_version}, unless the upgrade is meant",
            about=f"the checkpoint {facts.settings.spark.checkpoint}",
        )
    if not others:
        same = ", the same as the running processes and the checkpoint" if found else ""
        yield good("versions", f"trimtab {facts.version}, Spark {facts.spark_version}{same}")


def _own_processes_of(facts: Facts) -> list[Process]:
    """Processes under this controller's name."""
    if isinstance(facts.processes, Missed):
        return []
    return [each for each in facts.processes if each.controller == facts.settings.controller.name]


def _batch(number: int | None) -> str:
    return "none" if number is None else str(number)


_LATE_AFTER_ROUNDS = 3
_SHOWN_IN_SECONDS_S = 120


def reports(facts: Facts) -> Iterator[Finding]:
    """Whether anything comes on the input topic."""
    seen, topic = facts.input, facts.settings.topics.input
    if isinstance(seen, Missed):
        yield not_checked("reports", seen.why)
    elif seen.youngest_age_s is None:
        yield problem(
            "reports", f"no record came on {topic} in the last day", "Start a collector: trimtab collect"
        )
    elif seen.youngest_age_s > facts.settings.pulsar.rounds.max_report_age_s:
        yield problem(
            "reports",
            f"the newest record on {topic} came {_age(seen.youngest_age_s)}",
            "See the collector's log and its /readyz: trimtab collect",
        )
    else:
        yield good("reports", f"records come on {topic}, the newest one {_age(seen.youngest_age_s)}")


def rounds(facts: Facts) -> Iterator[Finding]:
    """What each cluster's newest summary says."""
    if isinstance(facts.clusters, Missed):
        yield not_checked("rounds", facts.clusters.why)
        return
    known = {observed.data.cluster for observed in facts.clusters}
    for name in sorted(set(facts.settings.clusters) - known):
        yield problem("rounds", "no round in the last day", "See whether its collector runs", about=name)
    if not facts.clusters and not facts.settings.clusters:
        yield problem(
            "rounds",
            f"no round of any cluster on {facts.settings.topics.audit} in the last day",
            "See the checks leader and reports",
        )
    for observed in facts.clusters:
        found = list(_round(observed, facts.now_ms / 1000))
        yield from found
        if all(each.outcome == "ok" for each in found):
            data = observed.data
            doing = "acts" if data.mode == "act" else "dry-run"
            yield good(
                "rounds", f"{doing}, round {data.round}: {data.reason or data.outcome}", about=data.cluster
            )


def _round(observed: ObservedCluster, now_s: float) -> Iterator[Finding]:
    data, name = observed.data, observed.data.cluster
    start_s, end_s = (datetime.fromisoformat(each).timestamp() for each in (data.start, data.end))
    if now_s - end_s > _LATE_AFTER_ROUNDS * (end_s - start_s):
        yield problem(
            "rounds",
            f"its newest round ended {_age(now_s - end_s)}; the rest is as of that round",
            "See the checks leader and reports, and docs/runbooks/not-deciding.md",
            about=name,
        )
    if data.outcome == "internal-error":
        yield problem(
            "rounds", f"its round failed: {data.reason}", "Please report it with a recording", about=name
        )
    elif data.outcome == "no-quorum":
        yield warning("rounds", data.reason, "See why the others do not report: trimtab status", about=name)
    for since, what in ((data.failing_since, "unloads"), (data.splits_failing_since, "splits")):
        if since is not None:
            yield problem(
                "rounds",
                f"all {what} are held since {since}, because too many failed",
                f"Mend the cause (docs/runbooks/failing.md), then: trimtab resume --cluster {name} --why …",
                about=name,
            )
    yield from _judge_control(observed)
    yield from _silent_brokers(observed)
    yield from _found(observed)


def _judge_control(observed: ObservedCluster) -> Iterator[Finding]:
    data, name = observed.data, observed.data.cluster
    control = data.control
    if data.paused:
        why = (
            "" if control is None else f" by {control.who or 'somebody'}: {control.why or 'no reason given'}"
        )
        yield warning(
            "rounds", f"it is paused{why}", f"Run: trimtab resume --cluster {name} --why …", about=name
        )
    if control is not None and control.problem is not None:
        yield warning(
            "rounds",
            f"the settings of its control event are not in force: {control.problem}",
            f"Run: trimtab policy show --cluster {name}",
            about=name,
        )


def _silent_brokers(observed: ObservedCluster) -> Iterator[Finding]:
    data, name = observed.data, observed.data.cluster
    if data.brokers_missing_count:
        yield warning(
            "rounds",
            f"live brokers did not report: {', '.join(data.brokers_missing)}",
            "Check whether they run, and what the collector's log says about them",
            about=name,
        )
    for broker, why in data.brokers_failed.items():
        yield warning(
            "rounds",
            f"the collector cannot ask {broker}: {why}",
            "See docs/runbooks/no-reports.md",
            about=name,
        )


def _found(observed: ObservedCluster) -> Iterator[Finding]:
    """The findings of the round: of each kind the first, and how many more there are."""
    data, name = observed.data, observed.data.cluster
    for kind, count in data.findings.outcomes.items():
        first = next((each for each in data.findings.heaviest if each.kind == kind), None)
        text = f"{kind}: {count} of them" if first is None else f"{kind} {first.subject}: {first.advice}"
        text += f" (and {count - 1} more)" if first is not None and count > 1 else ""
        if kind in INFORMATION:
            yield good("rounds", text, about=name)
        elif kind == "nobody-obeys":
            yield problem("rounds", text, "See docs/runbooks/nobody-obeys.md", about=name)
        else:
            yield warning("rounds", text, "See docs/decisions.md, Findings, and: trimtab status", about=name)


def balancers(facts: Facts) -> Iterator[Finding]:
    """Other balancers of the clusters, as their collectors report them."""
    if isinstance(facts.clusters, Missed):
        yield not_checked("balancers", facts.clusters.why)
        return
    for observed in facts.clusters:
        yield from (
            _kafka_throttles(observed) if observed.data.system == "kafka" else _pulsar_balancers(observed)
        )


def _pulsar_balancers(observed: ObservedCluster) -> Iterator[Finding]:
    data, name, found = observed.data, observed.data.cluster, observed.data.other_balancers
    if found is None:
        yield not_checked(
            "balancers",
            "no collector has reported whether Pulsar balances by itself",
            "Run: trimtab collect pulsar",
            about=name,
        )
        return
    say = problem if data.mode == "act" else warning
    on = (
        ("shedding", "loadBalancerSheddingEnabled", found.shedding_brokers),
        ("splitting of bundles", "loadBalancerAutoBundleSplitEnabled", found.splitting_brokers),
    )
    for what, key, brokers in on:
        if brokers:
            yield say(
                "balancers",
                f"Pulsar's own {what} is on at {', '.join(brokers)}",
                f"Run at one broker: pulsar-admin brokers update-dynamic-config --config {key} --value false",
                about=name,
            )
    if found.unknown_brokers:
        yield not_checked(
            "balancers",
            f"it is not known whether Pulsar balances at {', '.join(found.unknown_brokers)}: they cannot be asked",
            about=name,
        )
    elif not any(brokers for _, _, brokers in on):
        yield good("balancers", "no broker of Pulsar balances by itself", about=name)


def _kafka_throttles(observed: ObservedCluster) -> Iterator[Finding]:
    found = observed.data.throttle
    if found is not None and found.others_rates_bytes_per_s:
        yield warning(
            "balancers",
            f"another program has set throttles: {', '.join(found.others_rates_bytes_per_s)}",
            "Find out which one, e.g. Cruise Control or kafka-reassign-partitions.sh --throttle (docs/throttling.md)",
            about=observed.data.cluster,
        )
    else:
        yield good("balancers", "no other program has set a throttle", about=observed.data.cluster)


def rejected(facts: Facts) -> Iterator[Finding]:
    """What could not be used in the last hour."""
    seen, topic = facts.rejected, facts.settings.topics.dead_letter
    if isinstance(seen, Missed):
        yield not_checked("rejected", seen.why)
    elif seen.counts:
        many = "" if seen.is_complete else "at least "
        yield warning(
            "rejected",
            f"{many}{sum(seen.counts.values())} records went to {topic} in the last hour: {counts_text(seen.counts)}",
            "Run: trimtab rejected tail --from earliest --no-follow",
        )
    else:
        yield good("rejected", f"no record went to {topic} in the last hour")


def _age(age_s: float) -> str:
    return f"{max(0.0, age_s):.0f} s ago" if age_s < _SHOWN_IN_SECONDS_S else f"{age_s / 60:.0f} min ago"


CHECKS: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    addresses,
    permissions,
    topics,
    partitions,
    clocks,
    checkpoint,
    marker,
    epoch,
    leader,
    versions,
    reports,
    rounds,
    balancers,
    rejected,
)
"""In such an order that a fault in one check explains faults in the next ones."""


def judge(facts: Facts) -> list[Finding]:
    """Every finding, in the order of the checks; one that fails does not end the others."""
    return [finding for check in CHECKS for finding in _run_check(check, facts)]


def _run_check(check: Callable[[Facts], Iterable[Finding]], facts: Facts) -> list[Finding]:
    try:
        return list(check(facts))
    except Exception as error:  # noqa: BLE001  reported in its place; the other checks go on
        return [
            not_checked(
                check.__name__,
                f"an error in trimtab itself, please report it: {type(error).__name__}: {error}",
            )
        ]


def exit_code_of(findings: Iterable[Finding]) -> int:
    """0 without a problem; 6 where brokers do not answer and nothing else is wrong; else 5."""
    problems = [each for each in findings if each.outcome == "problem"]
    if not problems:
        return OK
    return UNREACHABLE if all(each.is_unreachable for each in problems) else REFUSED


def report_text(findings: Sequence[Finding]) -> str:
    """A page for a person, the worst first; below each finding what to do."""
    counts = [(sum(each.outcome == outcome for each in findings), outcome) for outcome in OUTCOMES]
    head = ", ".join(f"{count} {outcome}{_plural(count, outcome)}" for count, outcome in counts if count)
    rows: list[tuple[str, ...]] = []
    for outcome in OUTCOMES:
        for each in (finding for finding in findings if finding.outcome == outcome):
            about = f"{each.about}: " if each.about else ""
            rows.append((outcome, each.check, f"{about}{each.finding}"))
            if each.remedy is not None:
                rows.append(("", "", f"→ {each.remedy}"))
    return "".join(f"{line}\n" for line in [head, *table_lines(rows)])


def _plural(count: int, outcome: str) -> str:
    return "s" if count != 1 and outcome in {"problem", "warning"} else ""


Value = TypeVar("Value")

LIMIT_S = 30.0
"""Limit of one look. A client gives up after 8 to 20 s on brokers that do not answer, and its error says more than this limit's."""
_HOUR_S, _DAY_S = 3600, 86_400
_INPUT_S = (15, 180, _HOUR_S, _DAY_S)
"""How far back records of the input are looked for, in steps, because a day of it may be 350 GB."""
_INPUT_COUNT = 200
_REJECTED_COUNT = 500
"""The most rejected records that are read: each holds up to 64 KiB of the record that was rejected."""
_EXPECTED = (StartError, PublishError, CheckpointMismatch, NoAnswer, CheckpointElsewhere, UnreadableEvent)


def gather_facts(settings: Settings, *, limit_s: float = LIMIT_S) -> Facts:
    """All facts; the looks run in parallel."""
    from streaming.systems.examining import sides_of  # noqa: PLC0415  loads brokers' clients
    from streaming.systems.input import input_ids  # noqa: PLC0415  the same

    sides = sides_of(settings)
    now_ms = round(time.time() * 1000)
    looks: dict[str, Callable[[], Any]] = {
        "marker": partial(_marker, settings),
        "ids of the input's topics": partial(input_ids, settings),
        "processes": partial(_processes, settings, now_ms),
        "clusters": partial(_clusters, settings, now_ms),
        "input": partial(_input, settings, now_ms),
        "rejected": partial(_rejected, settings, now_ms),
        **{f"{side.name}'s brokers": side.brokers for side in sides},
        **{f"{side.name}'s topics": side.topics for side in sides},
    }
    with ThreadPoolExecutor(len(looks)) as pool:
        asked = {what: pool.submit(attempt, call, what=what, limit_s=limit_s) for what, call in looks.items()}
        found = _shorten({what: future.result() for what, future in asked.items()}, sides)
    ids = found["ids of the input's topics"]
    # a batch is planned before it is published: read after the marker, the checkpoint of a running controller agrees with it
    checkpoint = attempt(
        lambda: checkpoint_seen(settings, {} if isinstance(ids, Missed) else ids),
        what=f"the checkpoint {settings.spark.checkpoint}",
        limit_s=limit_s,
    )
    return Facts(
        settings=settings,
        version=version("trimtab"),
        spark_version=version("pyspark"),
        host=socket.gethostname(),
        now_ms=now_ms,
        sides=tuple(
            SideSeen(
                name=side.name,
                url=side.url,
                brokers=found[f"{side.name}'s brokers"],
                topics=found[f"{side.name}'s topics"],
            )
            for side in sides
        ),
        marker=found["marker"],
        checkpoint=checkpoint,
        processes=found["processes"],
        clusters=found["clusters"],
        input=found["input"],
        rejected=found["rejected"],
    )


def _shorten(found: dict[str, Any], sides: "Iterable[Side]") -> dict[str, Any]:
    """``found``, but with the long message about brokers that do not answer only once."""
    silent = [side for side in sides if _is_silent(found[f"{side.name}'s brokers"])]
    told = {f"{side.name}'s brokers" for side in silent}
    if not silent:
        return found
    short = Missed(f"{' and '.join(side.url for side in silent)} does not answer", is_unreachable=True)
    return {what: short if what not in told and _is_silent(value) else value for what, value in found.items()}


def _is_silent(value: object) -> bool:
    return isinstance(value, Missed) and value.is_unreachable


def attempt(call: Callable[[], Value], *, what: str, limit_s: float) -> Value | Missed:
    """What a look finds, or why it found nothing."""
    from streaming.systems.passing import passes  # noqa: PLC0415  loads brokers' clients

    try:
        return within(limit_s, call, what=what)
    except TimeoutError as error:
        return Missed(str(error), is_unreachable=True)
    except (Refused, WrongUse) as error:
        return Missed(error.message, is_unreachable=passes(error.__cause__))
    except _EXPECTED as error:
        return Missed(str(error), is_unreachable=passes(error) or passes(error.__cause__))
    except Exception as error:  # noqa: BLE001  one look that fails must not end the others
        return Missed(f"an error in trimtab itself, please report it: {error!r}")


def _marker(settings: Settings) -> Marker | None:
    from streaming.systems.publisher import publisher_of  # noqa: PLC0415  loads brokers' clients

    with publisher_of(settings) as publisher:
        return publisher.read_marker()


def _processes(settings: Settings, now_ms: int) -> tuple[Process, ...]:
    return processes(
        _output_records(settings, settings.topics.beats, now_ms, _HOUR_S), now_ms=round(time.time() * 1000)
    )


def _clusters(settings: Settings, now_ms: int) -> tuple[ObservedCluster, ...]:
    newest = Newest()
    newest.look_back(
        lambda back_s: _output_records(settings, settings.topics.audit, now_ms, back_s), settings.clusters
    )
    return tuple(
        ObservedCluster(event=read_round(record.value or b""), epoch=epoch_of(record.headers))
        for record in newest.records()
    )


def _input(settings: Settings, now_ms: int) -> InputSeen:
    for back_s in _INPUT_S:
        with input_reader(settings, settings.topics.input, begin=now_ms - 1000 * back_s) as reader:
            records = list(islice(reader.read_to_end(), _INPUT_COUNT))
        if records:
            youngest_ms = max(record.timestamp for record in records)
            age_s = round(time.time() - youngest_ms / 1000, 3)
            return InputSeen(youngest_age_s=age_s, ahead_s=ahead_by_sender(records))
    return InputSeen(youngest_age_s=None, ahead_s={})


def _rejected(settings: Settings, now_ms: int) -> RejectedSeen:
    counts: dict[str, int] = {}
    records = list(
        islice(_output_records(settings, settings.topics.dead_letter, now_ms, _HOUR_S), _REJECTED_COUNT + 1)
    )
    for record in records[:_REJECTED_COUNT]:
        try:
            reason = str(read_rejected(record.value or b"").data.reason)
        except UnreadableEvent:
            reason = "unreadable"
        counts[reason] = counts.get(reason, 0) + 1
    return RejectedSeen(counts=dict(sorted(counts.items())), is_complete=len(records) <= _REJECTED_COUNT)


def _output_records(settings: Settings, topic: str, now_ms: int, back_s: float) -> Iterator[TopicRecord]:
    with output_reader(settings, topic, begin=now_ms - round(1000 * back_s)) as reader:
        yield from reader.read_to_end()
