"""What ``trimtab doctor`` looks at before anything is judged: brokers, topics, beats, rounds, the checkpoint and this machine.

The looks run in parallel, each with a limit of its own: one that hangs or fails does not end the others. Nothing is written:
topics are read without a group or a subscription that stays, no controller is fenced, and the checkpoint is only read.
"""

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from streaming.cli.published import (
    Newest,
    Process,
    Round,
    UnreadableEvent,
    epoch_of,
    newest_processes,
    read_rejected,
    records_of,
)
from streaming.contract.encode import SkippedRange
from streaming.process.deadline import within
from streaming.process.exits import Refused, WrongUse, words_of
from streaming.settings import Settings
from streaming.systems import input_side, output_side
from streaming.transport import checkpoint as checkpoints
from streaming.transport.checkpoint import Start, newest_start, place_of
from streaming.transport.errors import CheckpointError, CheckpointMismatch, NoAnswer, PublishError, StartError
from streaming.transport.publishing import Checkpoint, Marker
from streaming.transport.side import Place, TopicRecord
from streaming.transport.topics import BEATS_RETENTION_MS, BrokersSeen, TopicsSeen

LIMIT_S = 30.0
"""Limit of one look. A client gives up after 8 to 20 s on brokers that do not answer, and its error says more than this limit's."""
REJECTED_COUNT = 500
"""The most rejected records that are counted, of the last hour, each once: each holds up to 64 KiB of the record that was rejected."""
_HOUR_MS = 3_600_000
_INPUT_S = (15, 180, 3600, 86_400)
"""How far back records of the input are looked for, in steps, because a day of it may be 350 GB."""
INPUT_COUNT = 200
"""The most records of the input that are read at once."""
_LOOKS_COUNT = 3
"""How often to look at the checkpoint: a controller that has just begun deletes what was there before it, perhaps while we look."""
_EXPECTED = (StartError, PublishError, CheckpointMismatch, NoAnswer, Refused, WrongUse)
Value = TypeVar("Value")


FULL, LOCKED = "its disk is full", "this command's user may not write there"


class Missed(Exception):
    """Something that could not be looked at."""

    def __init__(self, why: str, *, is_unreachable: bool = False) -> None:
        super().__init__(why)
        self.why, self.is_unreachable = why, is_unreachable


class SideSeen(NamedTuple):
    """One address, with its brokers and topics."""

    name: str
    url: str
    brokers: BrokersSeen | Missed
    topics: TopicsSeen | Missed


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSeen:
    """The checkpoint as this machine has it."""

    checkpoint: Checkpoint | None = None
    refusal: str | None = None
    """Why a start would refuse it, whatever the marker says."""
    places: tuple[Place, ...] = ()
    """How far its committed batches have read the input."""
    obstacle: str = field(default="", compare=False)
    """Why nothing can be written there, ``FULL`` or ``LOCKED``; empty where it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts, at one moment."""

    settings: Settings
    versions: Mapping[str, str]
    """Versions of trimtab and Spark that are installed here."""
    host: str
    now_ms: int
    sides: Sequence[SideSeen]
    marker: Marker | Missed | None
    checkpoint: CheckpointSeen | Missed
    lost: Sequence[SkippedRange] | Missed
    """The ranges of the input that are gone and that the checkpoint has not read."""
    processes: list[Process] | Missed
    """By their newest beats within the last hour."""
    rounds: list[tuple[Round, int | None]] | Missed
    """The newest summary of each cluster within the last day, with the epoch of its controller."""
    input: list[TopicRecord] | Missed
    """The newest records of the input topic within the last day, as far as they were looked at."""
    rejected: Mapping[str, int] | Missed
    """How many records could not be used in the last hour, by reason; one that was rejected again counts once."""

    @property
    def user(self) -> Process | None:
        """The process of this controller that leads, or led, with the checkpoint that is seen here: by its machine and path."""
        place = place_of(self.settings.spark.checkpoint)
        leaders = [each for each in self.own_processes if each.beat.role == "leader"]
        newest = max(leaders, key=lambda each: (each.beat.epoch, -each.age_s), default=None)
        is_here = newest is not None and (newest.host, newest.beat.checkpoint) == (self.host, place)
        return newest if is_here else None

    @property
    def own_processes(self) -> list[Process]:
        """Processes under this controller's name."""
        name = self.settings.controller.name
        known = [] if isinstance(self.processes, Missed) else self.processes
        return [each for each in known if each.beat.name == name]


def gather_facts(settings: Settings) -> Facts:
    """All facts; the looks run in parallel."""
    from streaming.systems import addresses_of, input_ids  # noqa: PLC0415  loads brokers' clients

    sides, now_ms = addresses_of(settings), round(time.time() * 1000)
    looks: dict[str, Callable[[], Any]] = {
        "marker": partial(_marker, settings),
        "ids of the input's topics": partial(input_ids, settings),
        "processes": partial(_processes, settings, now_ms),
        "rounds": partial(_rounds, settings),
        "input": partial(_input, settings, now_ms),
        "rejected": partial(_rejected, settings, now_ms),
        **{f"{side.name}'s brokers": side.brokers for side in sides},
        **{f"{side.name}'s topics": side.topics for side in sides},
    }
    with ThreadPoolExecutor(len(looks)) as pool:
        asked = {what: pool.submit(attempt, call, what=what, limit_s=LIMIT_S) for what, call in looks.items()}
        found = {what: future.result() for what, future in asked.items()}
    missed = {what for what, each in found.items() if isinstance(each, Missed) and each.is_unreachable}
    silent = {f"{side.name}'s brokers": side.url for side in sides if f"{side.name}'s brokers" in missed}
    if silent:  # the long message about brokers that do not answer once is enough
        short = Missed(f"{' and '.join(silent.values())} does not answer", is_unreachable=True)
        found |= dict.fromkeys(missed - silent.keys(), short)
    ids = found.pop("ids of the input's topics")
    seen = [
        SideSeen(each.name, each.url, found.pop(f"{each.name}'s brokers"), found.pop(f"{each.name}'s topics"))
        for each in sides
    ]
    # a batch is planned before it is published: read after the marker, the checkpoint of a running controller agrees with it
    checkpoint = attempt(
        lambda: checkpoint_seen(settings, {} if isinstance(ids, Missed) else ids),
        what=f"the checkpoint {settings.spark.checkpoint}",
        limit_s=LIMIT_S,
    )
    lost = attempt(lambda: _lost(settings, checkpoint, seen), what="records that are gone", limit_s=LIMIT_S)
    return Facts(
        settings=settings,
        versions={"trimtab": version("trimtab"), "Spark": version("pyspark")},
        host=socket.gethostname(),
        now_ms=now_ms,
        sides=seen,
        checkpoint=checkpoint,
        lost=lost,
        **found,
    )


def attempt(call: Callable[[], Value], *, what: str, limit_s: float) -> Value | Missed:
    """What a look finds, or why it found nothing."""
    from streaming.systems import is_outage  # noqa: PLC0415  loads brokers' clients

    try:
        return within(limit_s, call, what=what)
    except TimeoutError as error:
        return Missed(str(error), is_unreachable=True)
    except _EXPECTED as error:
        return Missed(str(error), is_unreachable=is_outage(error))
    except Exception as error:  # noqa: BLE001  one look that fails must not end the others
        return Missed(f"an error in trimtab itself, please report it: {error!r}")


def _marker(settings: Settings) -> Marker | None:
    from streaming.systems import publisher_of  # noqa: PLC0415  loads brokers' clients

    # a missing topic is refused at once here, while Kafka's publisher waits for it
    side = output_side(settings)
    with side.reader(side.commits_topic(settings.topics.commits, settings.controller.name), begin="latest"):
        pass
    with publisher_of(settings) as publisher:
        return publisher.read_marker()


def _processes(settings: Settings, now_ms: int) -> list[Process]:
    records = list(records_of(settings, settings.topics.beats, now_ms - BEATS_RETENTION_MS))
    return newest_processes(records, now_ms=round(time.time() * 1000))


def _rounds(settings: Settings) -> list[tuple[Round, int | None]]:
    newest = Newest(settings)
    newest.look_back()
    return [(event, epoch_of(record.headers)) for record, event in newest.rounds()]


def _input(settings: Settings, now_ms: int) -> list[TopicRecord]:
    def read(back_s: int) -> list[TopicRecord]:
        with input_side(settings).reader(settings.topics.input, begin=now_ms - 1000 * back_s) as reader:
            return list(islice(reader.read_to_end(), INPUT_COUNT))

    return newest_records(read)


def newest_records(read: Callable[[int], list[TopicRecord]]) -> list[TopicRecord]:
    """The newest records of the last day, the very last within 15 s, where ``read`` gives the first 200 of the last so many seconds."""
    empty_s = 0
    for reach_s in _INPUT_S:
        back_s, records = reach_s, read(reach_s)
        while len(records) == INPUT_COUNT and back_s - empty_s > _INPUT_S[0]:  # newer ones may follow
            middle_s = (empty_s + back_s) // 2
            if newer := read(middle_s):
                back_s, records = middle_s, newer
            else:
                empty_s = middle_s
        if records:
            return records
        empty_s = reach_s
    return []


def _rejected(settings: Settings, now_ms: int) -> dict[str, int]:
    reasons: dict[str, str] = {}
    for record in records_of(settings, settings.topics.dead_letter, now_ms - _HOUR_MS):
        try:
            event = read_rejected(record.value or b"")
            reasons[event.id] = event.data.reason  # the same of a record that is rejected again
        except UnreadableEvent:
            reasons[f"{record.partition}@{record.offset}"] = "unreadable"
        if len(reasons) == REJECTED_COUNT:
            break
    return dict(sorted(Counter(reasons.values()).items()))


def _lost(
    settings: Settings, checkpoint: CheckpointSeen | Missed, sides: Sequence[SideSeen]
) -> list[SkippedRange]:
    places = () if isinstance(checkpoint, Missed) else checkpoint.places
    missing = {name for side in sides if isinstance(side.topics, TopicsSeen) for name in side.topics.missing}
    if gone := missing & {place.topic for place in places}:  # Kafka's client would wait for it
        raise Refused(f"{', '.join(sorted(gone))} is missing")
    return input_side(settings).find_lost(places) if places else []


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
    """What a start would find, without Spark, and why it would refuse it. Raises ``Refused`` for what only Spark can read."""
    location = settings.spark.checkpoint
    path = checkpoints.path_of(location)
    if path is None:
        text = f"it is at {location}, which only Spark can read: a start shows whether it can be used"
        raise Refused(text)
    files = _Disk(path)
    for _ in range(_LOOKS_COUNT):
        start, query, refusal = newest_start(files), None, None
        places: tuple[Place, ...] = ()
        try:
            if start is None:
                checkpoints.refuse_strangers(files, location)
            else:
                card = checkpoints.read_manifest(files, location, start)
                checkpoints.refuse_other_manifests(
                    location, card, checkpoints.manifest_of(settings, topic_ids)
                )
                query = checkpoints.read_query(files, location, start)
                places = _places(files, start)
        except (CheckpointError, OSError) as error:
            refusal = words_of(str(error))
        if refusal is None or newest_start(files) == start:
            break
    is_writable = os.access(checkpoints.nearest_of(path), os.W_OK | os.X_OK)
    obstacle = FULL if checkpoints.is_full(location) else "" if is_writable else LOCKED
    return CheckpointSeen(checkpoint=query, refusal=refusal, places=places, obstacle=obstacle)


def _places(files: _Disk, start: Start) -> tuple[Place, ...]:
    try:
        return tuple(checkpoints.decode_progress(checkpoints.read_offsets(files, start, "commits")).places)
    except ValueError:  # a start is told so by Spark
        return ()
