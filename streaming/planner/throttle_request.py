"""The request of ``trimtab throttle plan``: a reassignment with its traffic, or Kafka's own file of target replicas.

A partition that cannot be read or planned is left out and named, with the reason; a request of which nothing can be planned, or that
is none, is a ``BadRequest``. Reads no file and no cluster.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from policies.throttle.checked_copies import BadCopy, CopyColumns, Reassignment, read_copies
from policies.wording import counted
from streaming.contract import diagnose
from streaming.contract.messages import SHOWN_CHARACTERS
from streaming.process.exits import words_of

_NOT_KAFKAS = ("current_replicas", "target_replicas", "leader")
"""What a partition needs unless it is looked up on the cluster."""
ANYWHERE = "any"
"""Kafka's own word for whichever directory."""
_NO_LEADER = "no leader (-1), so nothing can be copied; bring one of the current replicas back first"


class BadRequest(ValueError):
    """The request cannot be answered; the message names what is wrong and what was expected."""


class PartitionRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One partition: in full, or as Kafka's ``kafka-reassign-partitions`` writes it (``replicas``)."""

    topic: str
    partition: int
    replicas: list[int] | None = None
    """Kafka's word for target_replicas."""
    log_dirs: list[str] | None = None
    """By replica, the directory in which it shall be; ``any``: wherever. A replica that its broker has in another directory is moved
    between disks; without a cluster each counts as such a one."""
    target_replicas: list[int] | None = None
    current_replicas: list[int] | None = None
    in_progress_adding_replicas: list[int] | None = None
    isr: list[int] | None = None
    """Replicas that are in sync; the other ones of ``current_replicas`` fetch what they missed. A cluster is asked itself."""
    leader: int | None = None
    write_bytes_per_s: int | float | None = None
    log_size_bytes: int | float | None = None

    @property
    def where(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def name(self) -> str:
        """``topic-partition``."""
        return f"{self.topic[:SHOWN_CHARACTERS]}-{self.partition}"

    @property
    def problem(self) -> str | None:
        """Why it makes no sense by itself: a number is none, or the target is given twice or not at all."""
        if self.log_dirs is not None and len(self.log_dirs) != len(
            self.replicas or self.target_replicas or ()
        ):
            return f"log_dirs has {len(self.log_dirs)} directories; give one for each replica, or any"
        if (self.replicas is None) == (self.target_replicas is None):
            what = "neither" if self.replicas is None else "both"
            return f"has {what} of target_replicas and replicas; give one of them"
        if self.isr is not None and not {*self.isr} <= {*(self.current_replicas or self.isr)}:
            return f"isr is {self.isr}, which are not all among current_replicas {self.current_replicas}"
        if self.isr is not None and self.leader not in {None, -1, *self.isr}:
            return f"isr is {self.isr} without the leader, {self.leader}, which is always in sync"
        for key in ("write_bytes_per_s", "log_size_bytes"):
            value = getattr(self, key)
            if isinstance(value, float) and not math.isfinite(value):
                return f"{key} is {value}; expected a number of bytes from 0, or null for unknown"
        return None

    @property
    def target(self) -> list[int]:
        """Replicas in the end."""
        return self.target_replicas if self.replicas is None else self.replicas  # type: ignore[return-value]

    @property
    def placed(self) -> Iterator[tuple[int, str]]:
        """The brokers whose replica shall be in a certain directory, with that."""
        named = zip(self.target, self.log_dirs or (), strict=False)
        return ((broker, path) for broker, path in named if path != ANYWHERE)

    @property
    def sources(self) -> set[int]:
        """Current replicas that Kafka is not adding just now."""
        return {*(self.current_replicas or ())} - {*(self.in_progress_adding_replicas or ())}


class NotPlanned(NamedTuple):
    """A partition that is left out of the plan."""

    partition: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleRequest:
    """How fast may these partitions move?"""

    partitions: Sequence[PartitionRow]
    unread: Sequence[NotPlanned] = ()
    """Rows that are no partition."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    partitions: list[msgspec.Raw]
    version: Annotated[int, Meta(ge=1, le=1)] = 1
    """Version of Kafka's file."""


_file_decoder = msgspec.json.Decoder(_File)
_row_decoder = msgspec.json.Decoder(PartitionRow)
_PLACE = re.compile(r" - at `\$\.([^`]+)`")
"""Where in a request msgspec found the mistake."""
_HELP = "`trimtab throttle plan --help` shows a request"
_WHERE_NOW = (
    "by log_dirs {} move{} between disks of a broker: where each is now, and how many a broker copies at once, is looked up only with "
    "--bootstrap or --cluster"
)


def read_request(text: bytes) -> ThrottleRequest:
    """The request in ``text``. Raises ``BadRequest``."""
    if not text.strip():
        raise BadRequest(f"it is empty: {_HELP}")
    try:
        rows = _file_decoder.decode(text).partitions
    except msgspec.ValidationError as error:
        raise BadRequest(f"bad request: {_describe(error, text, _File, 'request')}; {_HELP}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"not JSON: {words_of(error)[:SHOWN_CHARACTERS]}; {_HELP}") from error
    good: list[PartitionRow] = []
    unread: list[NotPlanned] = []
    for place, row in enumerate(rows):
        try:
            good.append(_row_decoder.decode(row))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reason = _describe(error, row, PartitionRow, "partition")
            unread.append(NotPlanned(_name_of(row) or f"partitions[{place}]", reason))
    return ThrottleRequest(partitions=good, unread=unread)


def _name_of(row: msgspec.Raw) -> str | None:
    """The partition that a row is about, which cannot be read otherwise; None if it names none."""
    try:
        found = diagnose.load(bytes(row))
        return f"{str(found['topic'])[:SHOWN_CHARACTERS]}-{found['partition']}"
    except (ValueError, RecursionError, LookupError, TypeError):
        return None


def _describe(error: Exception, text: bytes | msgspec.Raw, kind: type[msgspec.Struct], name: str) -> str:
    """A mistake in a ``kind``, which a person calls ``name``, with the value, as far as it can be told."""
    mistake = str(error)
    if "unknown field" in mistake:
        return f"{mistake}; a {name} has {', '.join(kind.__struct_fields__)}"
    place = _PLACE.search(mistake)
    if place is None:
        return mistake
    try:
        value = diagnose.load(bytes(text))
        for key, index in re.findall(r"(\w+)|\[(\d+)\]", place[1]):
            value = value[key or int(index)]
    except (ValueError, RecursionError, LookupError, TypeError):
        return mistake
    return f"{place[1]} is {diagnose.shorten(value)}: {mistake[: place.start()]}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checked:
    """What of a request can be planned."""

    reassignment: Reassignment
    not_planned: tuple[NotPlanned, ...] = ()
    """The rest, in order."""
    perhaps_running: tuple[str, ...] = ()
    """Partitions that gain no replica unless they move already, which the request does not say."""
    notes: tuple[str, ...] = ()
    """What a person should know about where the numbers come from."""
    disk_threads: Mapping[int, int] = field(default_factory=dict)
    """Replicas that a broker moves between its disks at once, as far as it is known."""


def checked_request(request: ThrottleRequest, *, recovering: Collection[int] = ()) -> Checked:
    """The request checked and sorted, all of it from the file. Raises ``BadRequest`` if none of it can be planned.

    ``recovering`` are brokers that fetch what they missed, beside the replicas that are out of sync by the file itself.
    """
    rows, refused = sift(request, _lack_of)
    behind = [sorted(_behind(row, recovering)) for row in rows]
    between_disks = [sorted({broker for broker, _ in row.placed} & row.sources) for row in rows]
    idle = set(recovering) - set(chain.from_iterable(behind))
    notes = [
        f"--recovering {broker}: no partition has a replica on it that another broker leads"
        for broker in sorted(idle)
    ]
    if recovering and idle == set(recovering):
        raise BadRequest("; ".join(notes))
    found = check(
        CopyColumns(
            topics=[row.topic for row in rows],
            partitions=[row.partition for row in rows],
            current=[row.current_replicas or () for row in rows],
            adding=[row.in_progress_adding_replicas or () for row in rows],
            target=[row.target for row in rows],
            leaders=[-1 if row.leader is None else row.leader for row in rows],
            write_bytes_per_s=whole_numbers(rows, "write_bytes_per_s"),
            log_size_bytes=whole_numbers(rows, "log_size_bytes"),
            in_sync=[row.isr or () for row in rows],
            recovering=behind,
            between_disks=between_disks,
        ),
        refused,
    )
    unsaid = {
        f"{row.topic}-{row.partition}"
        for row in rows
        if row.in_progress_adding_replicas is None and row.isr is None
    }
    still = found.reassignment.without_data_movement
    moved = sum(map(len, between_disks))
    if moved:
        notes.append(_WHERE_NOW.format(counted(moved, "replica"), "s" * (moved == 1)))
    perhaps_running = tuple(name for name in still if name in unsaid)
    return replace(found, perhaps_running=perhaps_running, notes=tuple(notes))


def _behind(row: PartitionRow, recovering: Collection[int]) -> set[int]:
    """Brokers whose replica of a partition fetches what it missed: not the leader's, nor one out of sync that leaves anyway."""
    known = set() if row.isr is None else {*row.target} - {*row.isr}
    return row.sources & (known | set(recovering)) - {row.leader}


def _lack_of(row: PartitionRow) -> str | None:
    lacking = [
        key for key in _NOT_KAFKAS if getattr(row, key) is None and not (key[0] == "t" and row.replicas)
    ]
    if not lacking:
        return None
    return (
        f"{' and '.join(lacking)} missing; add what is missing, or let it be read from the cluster with "
        "--bootstrap or --cluster"
    )


def sift(
    request: ThrottleRequest, problem_of: Callable[[PartitionRow], str | None]
) -> tuple[list[PartitionRow], list[NotPlanned]]:
    """The rows without a problem, and the others with it; a row that cannot be read or contradicts itself has one, too.

    Raises ``BadRequest`` if only the others are left.
    """
    good: list[PartitionRow] = []
    refused = list(request.unread)
    for row in request.partitions:
        problem = row.problem or problem_of(row)
        if problem is None:
            good.append(row)
        else:
            refused.append(NotPlanned(row.name, problem))
    if refused and not good:
        raise _refusal_of(refused)
    return good, refused


def check(columns: CopyColumns, refused: Iterable[NotPlanned] = ()) -> Checked:
    """``read_copies`` for a plan, in which every partition needs a leader. One that cannot be planned keeps no other from it.

    ``refused`` are left out already. Raises ``BadRequest`` if nothing is left.
    """
    left_out = set(refused)
    try:
        found = read_copies(columns)
    except BadCopy:
        good, bad = _part_bad(columns)
        left_out |= bad
        found = read_copies(columns.take(good))
    is_led = found.copies.is_led()
    left_out |= {NotPlanned(found.copies.name(row), _NO_LEADER) for row in np.flatnonzero(~is_led).tolist()}
    checked = Checked(
        reassignment=replace(found, copies=found.copies.take(is_led)), not_planned=tuple(sorted(left_out))
    )
    return require_any(checked)


def require_any(checked: Checked) -> Checked:
    """The same. Raises ``BadRequest`` if partitions are left out and none is planned."""
    found = checked.reassignment
    if checked.not_planned and not (len(found.copies) or found.without_data_movement):
        raise _refusal_of(checked.not_planned)
    return checked


def leave_out(checked: Checked, reasons: Mapping[int, str]) -> Checked:
    """The same without the copies of the rows in ``reasons``. Raises ``BadRequest`` if none is left."""
    copies = checked.reassignment.copies
    kept = np.ones(len(copies), dtype=np.bool_)
    kept[list(reasons)] = False
    refused = (NotPlanned(copies.name(row), reason) for row, reason in reasons.items())
    return require_any(
        replace(
            checked,
            reassignment=replace(checked.reassignment, copies=copies.take(kept)),
            not_planned=tuple(sorted([*checked.not_planned, *refused])),
        )
    )


def _refusal_of(refused: Iterable[NotPlanned]) -> BadRequest:
    return BadRequest(
        show((f"{each.partition}: {each.reason}" for each in sorted(set(refused))), separator="; ")
    )


def _part_bad(columns: CopyColumns) -> tuple[list[int], set[NotPlanned]]:
    """The places of the partitions that ``read_copies`` takes, and the others with the reason."""
    names = [
        f"{topic}-{partition}" for topic, partition in zip(columns.topics, columns.partitions, strict=True)
    ]
    counts = Counter(names)  # halves would part the two of a partition that is given twice
    problems = {
        place: "given twice; give each partition once" for place, name in enumerate(names) if counts[name] > 1
    }
    problems |= _find_bad(columns, [place for place in range(len(names)) if place not in problems])
    good = [place for place in range(len(names)) if place not in problems]
    return good, {NotPlanned(names[place], reason) for place, reason in problems.items()}


def _find_bad(columns: CopyColumns, places: Sequence[int]) -> dict[int, str]:
    """The places that ``read_copies`` refuses, with the reason; halves are halved again until the bad ones are alone."""
    try:
        read_copies(columns.take(places))
    except BadCopy as error:
        if len(places) == 1:
            place = places[0]
            return {place: str(error).removeprefix(f"{columns.topics[place]}-{columns.partitions[place]}: ")}
        middle = len(places) // 2
        return _find_bad(columns, places[:middle]) | _find_bad(columns, places[middle:])
    return {}


def whole_numbers(rows: Sequence[PartitionRow], key: str) -> list[int | None]:
    """Rates or sizes of rows without a ``problem``; a fraction of a byte is rounded up."""
    values = [getattr(row, key) for row in rows]
    return [
        value if value is None else math.ceil(value) if value >= 0 else math.floor(value) for value in values
    ]


def show(names: Iterable[str], most: int = 5, *, separator: str = ", ") -> str:
    """The first few names, and how many more there are."""
    listed = list(names)
    text = separator.join(listed[:most])
    return text if len(listed) <= most else f"{text} and {len(listed) - most} more"
