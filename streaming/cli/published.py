"""What trimtab has published, as people read it: records of a topic, the events in them, and whose epoch still counts.

Unknown fields of an event are ignored. A record that cannot be read is named, and ends only a command that cannot do without it.
What a controller writes after another one has replaced it does not count. Executors have a stricter filter of their own.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from state.outputs import RoundSummary
from state.outputs.types import ACTION_PREFIX, ROUND_TYPE
from streaming.cli.configured import settings_options
from streaming.cli.options import begin_of, with_options
from streaming.cli.output import format_option, to_yaml
from streaming.contract.encode import REJECTED_TYPE, RejectedData
from streaming.contract.envelope import EPOCH_HEADER, ReadEnvelope, read_envelope
from streaming.contract.leader import LEADER_TYPE, LeaderData
from streaming.ports.reading import Begin, TopicRecord
from streaming.process.deadline import Deadline
from streaming.process.exits import Refused
from streaming.process.stopping import watched
from streaming.settings import Settings, TopicNames
from streaming.systems.reading import output_reader


class ActionData(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of every action; a broker is None if its kind has none."""

    round: int
    policy: str
    trigger: str
    reason: str
    evidence: dict[str, Any]
    expected: dict[str, Any] = {}
    precondition: dict[str, Any] = {}
    expires_at: str
    dry_run: bool
    proposal: bool = False
    proposal_id: str | None = None
    broker: str | None = None
    source_broker: str | None = None
    destination_broker: str | None = None


class Action(ReadEnvelope[ActionData], frozen=True, kw_only=True):
    """An action event."""

    @property
    def kind(self) -> str:
        """``unload``, ``split``, …"""
        return self.type.removeprefix(ACTION_PREFIX).rpartition(".")[0]


class UnreadableEvent(Exception):
    """A record is not what its topic should hold; the text says what it is."""

    def at(self, topic: str, offset: int) -> Refused:
        """The error that ends a command which cannot do without the record."""
        return Refused(f"{topic}, offset {offset}: {self}")


_leaders = msgspec.json.Decoder(ReadEnvelope[LeaderData])
_actions = msgspec.json.Decoder(Action)


def read_action(value: bytes) -> Action:
    """The action a record holds; raises ``UnreadableEvent``."""
    try:
        action = _actions.decode(value)
    except msgspec.MsgspecError as error:
        raise UnreadableEvent(f"not an action: {error}; it may be from another version of trimtab") from error
    if not action.type.startswith(ACTION_PREFIX):
        raise UnreadableEvent(f"{action.type} is not an action")
    return action


def has_id(value: bytes, beginning: str) -> bool:
    """Whether a record is an action whose id has this beginning."""
    try:
        event = read_envelope(value)
    except msgspec.MsgspecError:
        return False
    return event.type.startswith(ACTION_PREFIX) and event.id.startswith(beginning)


def read_leader(value: bytes) -> ReadEnvelope[LeaderData] | None:
    """The event about a new leader; None for any other record."""
    try:
        event = _leaders.decode(value)
    except msgspec.MsgspecError:
        return None
    return event if event.type == LEADER_TYPE else None


def epoch_of(headers: Iterable[tuple[str, bytes]]) -> int | None:
    """The epoch of the controller that wrote a record; None where the header is missing or no number."""
    text = dict(headers).get(EPOCH_HEADER, b"").decode(errors="replace")
    return int(text) if text.isdecimal() else None


@dataclass(slots=True)
class Epochs:
    """The highest epoch seen, for each source in each partition."""

    _highest: dict[tuple[str, int], int] = field(default_factory=dict)

    def is_stale(self, source: str, partition: int, epoch: int | None) -> bool:
        """Whether a newer controller of the same source has written there before; a stale action must not be obeyed."""
        if epoch is None:
            return False
        at = (source, partition)
        highest = self._highest[at] = max(epoch, self._highest.get(at, epoch))
        return epoch < highest


Round = ReadEnvelope[RoundSummary]
Rejected = ReadEnvelope[RejectedData]
LOOK_BACK_S = (300, 86_400)
"""How far back summaries are looked for: first where those of clusters that report now are, then a whole day."""


class _RoundNumber(msgspec.Struct, frozen=True):
    """Only a round's number, which is quick to read."""

    round: int


_numbers = msgspec.json.Decoder(ReadEnvelope[_RoundNumber])
_rounds = msgspec.json.Decoder(Round)
_rejected = msgspec.json.Decoder(Rejected)


def read_round(value: bytes) -> Round:
    """The summary that a record holds. Raises ``UnreadableEvent``."""
    found: Round = _read(value, ROUND_TYPE, _rounds)
    return found


def is_round_of(value: bytes, *, cluster: str, number: int) -> bool:
    """Whether a record holds the summary of this round."""
    try:
        head = _numbers.decode(value)
    except msgspec.MsgspecError:
        return False
    return (head.type, head.cluster, head.data.round) == (ROUND_TYPE, cluster, number)


def read_rejected(value: bytes) -> Rejected:
    """The event about a record that could not be used. Raises ``UnreadableEvent``."""
    found: Rejected = _read(value, REJECTED_TYPE, _rejected)
    return found


def _read(value: bytes, type_: str, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        head = read_envelope(value)
        if head.type == type_:
            return decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise UnreadableEvent(f"not a {type_}: {error}; it may be from another version of trimtab") from error
    raise UnreadableEvent(f"{head.type} is not a {type_}")


class Newest:
    """The newest summary of each cluster; that of a controller which another one has replaced does not count."""

    def __init__(self) -> None:
        self._records: dict[str, TopicRecord] = {}
        self._epochs: dict[tuple[str, str], int] = {}

    def take(self, records: Iterable[TopicRecord]) -> None:
        """Look at records, in their order."""
        for record in records:
            try:
                head = read_envelope(record.value or b"")
            except msgspec.MsgspecError:
                continue
            if head.type != ROUND_TYPE:
                continue
            key, epoch = (head.source, head.cluster), epoch_of(record.headers) or 0
            if epoch >= self._epochs.get(key, 0):
                self._epochs[key] = epoch
                self._records[head.cluster] = record

    def look_back(
        self,
        read: Callable[[float], Iterable[TopicRecord]],
        wanted: Collection[str],
        *,
        steps_s: Sequence[float] = LOOK_BACK_S,
    ) -> None:
        """Take the records that ``read`` finds so many seconds back, step by step until every wanted cluster (or any) has a summary."""
        for step_s in steps_s:
            self.take(read(step_s))
            if self._records and self._records.keys() >= set(wanted):
                break

    @property
    def clusters(self) -> set[str]:
        """Clusters with a summary."""
        return set(self._records)

    def records(self) -> list[TopicRecord]:
        """The newest record of each cluster, by the cluster's name."""
        return [record for _, record in sorted(self._records.items())]

    def rounds(self, topic: str) -> Iterator[tuple[TopicRecord, Round]]:
        """The same records, with the summary of each. Raises ``exits.Refused`` naming the place on ``topic`` of an unreadable one."""
        for record in self.records():
            try:
                yield record, read_round(record.value or b"")
            except UnreadableEvent as error:
                raise error.at(topic, record.offset) from error


@contextmanager
def pass_over_outage(deadline: Deadline) -> Iterator[None]:
    """End the block without an error if brokers do not answer before the deadline; the caller then looks again.

    Raises ``Refused`` after the deadline, and at once for what does not pass, such as a missing permission.
    """
    try:
        yield
    except Refused as error:
        from streaming.systems.passing import passes  # noqa: PLC0415  the brokers' clients are imported late

        if deadline.is_over or not passes(error.__cause__):
            raise


_LOOK_S = 1.0
_SKEW_S = 60.0
"""How far the brokers' clock may be behind ours."""

Found = TypeVar("Found")


def search_until(
    settings: Settings,
    search: Callable[[Iterator[TopicRecord]], Mapping[str, Found]],
    *,
    count: int,
    deadline: Deadline,
) -> Mapping[str, Found]:
    """What ``search`` finds in the records of the audit topic from now on; ends with ``count`` finds or at the deadline.

    Raises ``Refused``.
    """
    begin_ms = round((time.time() - _SKEW_S) * 1000)
    found: Mapping[str, Found] = {}
    while len(found) < count and not deadline.is_over:
        time.sleep(min(_LOOK_S, deadline.left_s))
        with (
            pass_over_outage(deadline),
            output_reader(settings, settings.topics.audit, begin=begin_ms) as reader,
        ):
            found = search(reader.read_to_end())
    return found


if TYPE_CHECKING:
    from streaming.ports.reading import TopicRecord


class Remark(str):
    """A line that is for people only."""

    __slots__ = ()


as_published_option = format_option(
    "JSON: one event per line, as it was published. YAML: one document per event."
)
tail_options = with_options(
    settings_options,
    click.option("--cluster", metavar="NAME", help="Only of this cluster."),
    click.option(
        "--from",
        "begin",
        metavar="earliest|latest|TIME",
        default="latest",
        show_default=True,
        help="TIME is RFC 3339.",
    ),
    click.option(
        "--no-follow", is_flag=True, help="Stop at the end of the topic instead of waiting for more."
    ),
    as_published_option,
)
"""The options of every `tail`; they are passed to ``print_topic``."""


def records_of(settings: Settings, topic: str, begin: Begin, *, follow: bool) -> Iterator["TopicRecord"]:
    """The records of a topic on the output's side."""
    with output_reader(settings, topic, begin=begin) as reader:
        yield from reader.follow() if follow else reader.read_to_end()


def print_topic(
    topic_of: Callable[[TopicNames], str],
    text_of: Callable[["TopicRecord"], str],
    *,
    settings: Settings,
    cluster: str | None,
    begin: str,
    form: str,
    no_follow: bool,
) -> None:
    """Print the records of a topic, as text or as they are; what cannot be read is named on standard error.

    ``text_of`` raises ``UnreadableEvent`` for a record that is not what the topic should hold. Ctrl-C or SIGTERM ends it.
    """
    topic = topic_of(settings.topics)
    with nullcontext() if no_follow else watched():
        for record in records_of(settings, topic, begin_of(begin), follow=not no_follow):
            if cluster is not None and record.key != cluster.encode():
                continue
            try:
                text = text_of(record)
            except UnreadableEvent as error:
                click.echo(f"{topic}, offset {record.offset}: {error}", err=True)
                continue
            if form == "table":
                click.echo(text, nl=False)
            elif not isinstance(text, Remark):
                click.echo(render_published(record.value or b"", form), nl=False)


def render_published(value: bytes, form: str) -> str:
    """An event for a program: as it is on its topic, or as a YAML document."""
    if form == "json":
        return value.decode(errors="replace") + "\n"
    return "---\n" + to_yaml(msgspec.json.decode(value))
