"""What trimtab has published, as people read it: a topic's records, rounds, beats of processes, and whose epoch still counts.

Unknown fields of an event are ignored. A record that cannot be read is named, and ends only a command that cannot do without it.
What a controller writes after another one has replaced it does not count. Executors have a stricter filter of their own.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from typing import TypeVar

import click
import msgspec

from policies.wording import counted, time_text
from state.outputs import RoundSummary
from state.outputs.actions import ROUND_TYPE
from streaming.cli.options import begin_option, cluster_option, settings_options, with_options
from streaming.cli.output import format_option, to_yaml
from streaming.contract import beat as beats
from streaming.contract.beat import Beat
from streaming.contract.encode import REJECTED_TYPE, SKIPPED_TYPE, RejectedData, SkippedData
from streaming.contract.envelope import EPOCH_HEADER, ReadEnvelope, read_envelope
from streaming.process.deadline import Deadline
from streaming.process.exits import NotReached, Refused
from streaming.process.stop_signals import watched
from streaming.settings import Settings
from streaming.settings.catalog import suggest_nearest
from streaming.systems import is_outage, output_side
from streaming.transport.side import Begin, PartitionEpochs, TopicRecord

Round = ReadEnvelope[RoundSummary]
Rejected = ReadEnvelope[RejectedData]
LOOK_BACK_S = (300, 3_600, 86_400)
"""How far back summaries are looked for: first where those of clusters that report now are, then an hour, then a whole day."""
_SILENT_S = LOOK_BACK_S[1]
"""So far back a cluster is looked for that nobody names: it may have fallen silent."""
LATE_AFTER_ROUNDS = 3
"""A summary older than this many rounds is late."""
TAIL_COUNT = 10
"""Records that a `tail` shows which neither waits nor is told where to begin."""
_LOOK_S = 1.0
_SKEW_S = 60.0
"""How far the brokers' clock may be behind ours."""
Found = TypeVar("Found")


def records_of(
    settings: Settings, topic: str, begin: Begin, *, follow: bool = False
) -> Iterator[TopicRecord]:
    """The records of a topic on the output's side, up to its end or for ever. Raises ``exits.Refused``."""
    with output_side(settings).reader(topic, begin=begin) as reader:
        yield from reader.follow() if follow else reader.read_to_end()


def stranger_hint(settings: Settings, cluster: str) -> str | None:
    """Which cluster may have been meant; None where settings or a round of the last day name this one. Raises ``exits.Refused``."""
    known = {*settings.clusters, *settings.targets}
    if cluster not in known:
        newest = Newest(settings)
        newest.look_back((cluster,))
        known |= newest.clusters
    if cluster in known:
        return None
    return (
        suggest_nearest(cluster, known)
        if known
        else "no cluster has a round of the last day: `trimtab status` says why"
    )


class UnreadableEvent(Exception):
    """A record is not what its topic should hold; the text says what it is."""

    def at(self, topic: str, offset: int) -> Refused:
        """The error that ends a command which cannot do without the record."""
        return Refused(f"{topic}, offset {offset}: {self}")


class _RoundNumber(msgspec.Struct, frozen=True):
    """Only a round's number, which is quick to read."""

    round: int


_numbers = msgspec.json.Decoder(ReadEnvelope[_RoundNumber])
_rounds = msgspec.json.Decoder(Round)
_skipped = msgspec.json.Decoder(ReadEnvelope[SkippedData])
_rejected = msgspec.json.Decoder(Rejected)


def read_round(value: bytes) -> Round:
    """The summary that a record holds. Raises ``UnreadableEvent``."""
    return _read(value, ROUND_TYPE, _rounds)


def read_rejected(value: bytes) -> Rejected:
    """The event about a record that could not be used. Raises ``UnreadableEvent``."""
    return _read(value, REJECTED_TYPE, _rejected)


def _read(value: bytes, type_: str, decoder: msgspec.json.Decoder[Found]) -> Found:
    try:
        head = read_envelope(value)
        if head.type == type_:
            return decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise UnreadableEvent(f"not a {type_}: {error}; it may be from another version of trimtab") from error
    raise UnreadableEvent(f"{head.type} is not a {type_}")


def skipped_text(value: bytes) -> str | None:
    """What a controller skipped of its input, in one line; None for any other record."""
    try:
        event = _skipped.decode(value)
    except msgspec.MsgspecError:
        return None
    if event.type != SKIPPED_TYPE:
        return None
    name, ranges = event.source.rpartition("/")[2], "; ".join(map(str, event.data.ranges))
    return f"{time_text(event.time)} controller {name} skipped lost input: {ranges}\n"


def is_round_of(value: bytes, *, cluster: str, number: int) -> bool:
    """Whether a record holds the summary of this round."""
    try:
        head = _numbers.decode(value)
    except msgspec.MsgspecError:
        return False
    return (head.type, head.cluster, head.data.round) == (ROUND_TYPE, cluster, number)


def length_s(data: RoundSummary) -> float:
    """How long a round is."""
    return (datetime.fromisoformat(data.end) - datetime.fromisoformat(data.start)).total_seconds()


def age_s(data: RoundSummary, now_ms: int) -> float:
    """Seconds since a round's end."""
    return now_ms / 1000 - datetime.fromisoformat(data.end).timestamp()


def is_late(data: RoundSummary, now_ms: int) -> bool:
    """Whether there should be a newer round."""
    return age_s(data, now_ms) > LATE_AFTER_ROUNDS * length_s(data)


def epoch_of(headers: Iterable[tuple[str, bytes]]) -> int | None:
    """The epoch of the controller that wrote a record; None where the header is missing or no number."""
    text = dict(headers).get(EPOCH_HEADER, b"").decode(errors="replace")
    return int(text) if text.isdecimal() else None


def rounds_in(records: Iterable[TopicRecord]) -> Iterator[Round]:
    """The summaries among the records; one that cannot be read, or is from a controller that was replaced, is left out."""
    epochs = PartitionEpochs()
    for record in records:
        try:
            event = read_round(record.value or b"")
        except UnreadableEvent:
            continue
        if not is_stale(epochs, event.cluster, event.source, epoch_of(record.headers) or 0):
            yield event


def is_stale(epochs: PartitionEpochs, place: int | str, source: str, epoch: int | None) -> bool:
    """Whether a newer controller of the same source has written there before: what an older one writes does not count."""
    return epoch is not None and epochs.note(place, source, epoch) > epoch


class Newest:
    """The newest summary of each cluster; that of a controller which another one has replaced does not count."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._records: dict[str, TopicRecord] = {}
        self._epochs = PartitionEpochs()
        self._looked_s: float | None = None
        """When it was last looked, with success."""

    def take(self, records: Iterable[TopicRecord]) -> None:
        """Look at records, in their order."""
        for record in records:
            try:
                head = read_envelope(record.value or b"")
            except msgspec.MsgspecError:
                continue
            epoch = epoch_of(record.headers) or 0
            if head.type == ROUND_TYPE and not is_stale(self._epochs, head.cluster, head.source, epoch):
                self._records[head.cluster] = record

    def read_since(self, begin_ms: int) -> None:
        """Look at what the audit topic has since a moment. Raises ``exits.Refused``."""
        self.take(records_of(self._settings, self._settings.topics.audit, begin_ms))

    def look_back(self, wanted: Collection[str] = ()) -> None:
        """Look at the last seconds, step by step until every wanted cluster has a summary. Raises ``exits.Refused``.

        If none is wanted: every cluster that has settings of its own, and any other of the last hour. Later looks find what came since.
        """
        now_s = time.time()
        if self._looked_s is not None:
            self.read_since(round((min(self._looked_s, now_s - LOOK_BACK_S[0]) - _SKEW_S) * 1000))
        else:
            named = set(wanted or self._settings.clusters)
            for step_s in LOOK_BACK_S:
                self.read_since(round((now_s - step_s) * 1000))
                if self._records and self._records.keys() >= named and (wanted or step_s >= _SILENT_S):
                    break
        self._looked_s = now_s if self._records else None

    @property
    def clusters(self) -> set[str]:
        """Clusters with a summary."""
        return set(self._records)

    def records(self) -> list[TopicRecord]:
        """The newest record of each cluster, by the cluster's name."""
        return [record for _, record in sorted(self._records.items())]

    def rounds(self) -> Iterator[tuple[TopicRecord, Round]]:
        """The same records, with the summary of each. Raises ``exits.Refused`` naming the place of an unreadable one."""
        for record in self.records():
            try:
                yield record, read_round(record.value or b"")
            except UnreadableEvent as error:
                raise error.at(self._settings.topics.audit, record.offset) from error


def search_rounds(
    settings: Settings,
    search: Callable[[Iterator[Round]], Mapping[str, Found]],
    *,
    count: int,
    deadline: Deadline,
) -> Mapping[str, Found]:
    """What ``search`` finds in the rounds from now on, again and again until it has ``count`` finds, or the deadline is over.

    Raises ``Refused``.
    """
    begin_ms = round((time.time() - _SKEW_S) * 1000)
    found: Mapping[str, Found] = {}
    while len(found) < count and not deadline.is_over:
        time.sleep(min(_LOOK_S, deadline.left_s))
        with pass_over_outage(deadline):
            found = search(rounds_in(records_of(settings, settings.topics.audit, begin_ms)))
    return found


@contextmanager
def pass_over_outage(deadline: Deadline) -> Iterator[None]:
    """End the block without an error if brokers do not answer before the deadline; the caller then looks again.

    Raises ``NotReached`` after the deadline, and ``Refused`` at once for what does not pass, such as a missing permission.
    """
    try:
        yield
    except Refused as error:
        if not is_outage(error):
            raise
        if deadline.is_over:
            raise NotReached(error.message) from error


_SILENT_AFTER_SESSIONS = 2
"""Sessions without a beat after which a process is silent: one late beat may still be on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of a controller, by one of its beats."""

    beat: Beat
    age_s: float
    """Seconds since the beat was appended."""
    ahead_s: float
    """Seconds by which its clock was ahead of the brokers' then; 0 if the beat has no time."""

    @property
    def runs(self) -> bool:
        """Whether it still beats and has not left."""
        return not self.beat.is_leaving and self.age_s <= _SILENT_AFTER_SESSIONS * self.beat.session_s

    @property
    def host(self) -> str:
        """The machine that it runs on."""
        return self.beat.instance.rpartition(":")[0]


def newest_leaders(records: Iterable[TopicRecord], *, now_ms: int) -> dict[str, Process]:
    """By its name, the controller that leads, or led last; one that another process has replaced does not count."""
    found: dict[str, Process] = {}
    for process in _processes(records, now_ms):
        before = found.get(process.beat.name)
        if process.beat.role == "leader" and (before is None or process.beat.epoch >= before.beat.epoch):
            found[process.beat.name] = process
    return found


def newest_processes(records: Iterable[TopicRecord], *, now_ms: int) -> list[Process]:
    """Every process by its newest beat, in the order of names and instances."""
    newest = {(each.beat.name, each.beat.instance): each for each in _processes(records, now_ms)}
    return [newest[key] for key in sorted(newest)]


def _processes(records: Iterable[TopicRecord], now_ms: int) -> Iterator[Process]:
    """Beat by beat; other records are skipped."""
    for record in records:
        try:
            beat = beats.decode(record.value or b"")
        except beats.Unreadable:
            continue
        age_s = round((now_ms - record.timestamp) / 1000, 3)
        try:
            ahead_s = round(datetime.fromisoformat(beat.at).timestamp() - record.timestamp / 1000, 3)
        except ValueError:
            ahead_s = 0.0
        yield Process(beat=beat, age_s=age_s, ahead_s=ahead_s)


class Remark(str):
    """A line that is for people only."""

    __slots__ = ()


as_published_option = format_option(
    "JSON: one event per line, as it was published. YAML: one document per event."
)
tail_options = with_options(
    settings_options,
    cluster_option,
    begin_option(default="latest"),
    click.option(
        "--no-follow",
        is_flag=True,
        help=f"Stop at the end of the topic instead of waiting for more; from the latest on, show the newest {TAIL_COUNT}.",
    ),
    as_published_option,
)
"""The options of every `tail`; they are passed to ``print_topic``."""


def print_topic(
    topic: str,
    text_of: Callable[[TopicRecord], str],
    *,
    settings: Settings,
    cluster: str | None,
    begin: Begin,
    form: str,
    no_follow: bool,
) -> None:
    """Print the records of a topic, as text or as they are; what cannot be read is named on standard error.

    ``text_of`` raises ``UnreadableEvent`` for a record that is not what the topic should hold. Ctrl-C or SIGTERM ends it.
    """
    if cluster is not None:
        with suppress(Refused):  # the topic itself may be readable all the same
            hint = stranger_hint(settings, cluster)
            if hint is not None:
                click.echo(
                    f"{cluster}: no setting and no round of the last day names this cluster; {hint}", err=True
                )
    is_newest = no_follow and begin == "latest"
    records = records_of(settings, topic, "earliest" if is_newest else begin, follow=not no_follow)
    mine = (record for record in records if cluster is None or record.key == cluster.encode())
    lines = _lines(mine, topic, text_of, form)
    is_empty = True
    with nullcontext() if no_follow else watched():
        for _, line, is_error in _newest_lines(lines) if is_newest else lines:
            click.echo(line, nl=False, err=is_error)
            is_empty = False
    if is_empty and no_follow:
        whose = "" if cluster is None else f" of {cluster}"
        since = "" if is_newest or begin == "earliest" else ", since then"
        click.echo(f"no record{whose} on {topic}{since}", err=True)


Line = tuple[int, str, bool]
"""When the record was appended, its text, and whether that is for standard error."""


def _lines(
    records: Iterable[TopicRecord], topic: str, text_of: Callable[[TopicRecord], str], form: str
) -> Iterator[Line]:
    for record in records:
        try:
            text = text_of(record)
        except UnreadableEvent as error:
            yield record.timestamp, f"{topic}, offset {record.offset}: {error}\n", True
            continue
        if form == "table":
            yield record.timestamp, text, False
        elif not isinstance(text, Remark):
            yield record.timestamp, render_published(record.value or b"", form), False


def _newest_lines(lines: Iterable[Line]) -> Iterator[Line]:
    """The newest, in the order in which they were appended, below how many are earlier."""
    newest: list[tuple[int, int, str, bool]] = []
    earlier_count = 0
    for number, (at_ms, text, is_error) in enumerate(lines):
        heappush(newest, (at_ms, number, text, is_error))
        if len(newest) > TAIL_COUNT:
            heappop(newest)
            earlier_count += 1
    if earlier_count:
        yield (
            0,
            f"{counted(earlier_count, 'earlier record')} not shown: --from earliest --no-follow shows all\n",
            True,
        )
    yield from ((at_ms, text, is_error) for at_ms, _, text, is_error in sorted(newest))


def render_published(value: bytes, form: str) -> str:
    """An event for a program: as it is on its topic, or as a YAML document."""
    if form == "json":
        return value.decode(errors="replace") + "\n"
    return "---\n" + to_yaml(msgspec.json.decode(value))
