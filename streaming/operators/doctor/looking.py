"""Gathers the facts that are judged. Each look has its own time limit and thread: one that hangs or fails does not end the others.

Nothing is written: topics are read without a group or a subscription that stays, no controller is fenced, and the
checkpoint is only read.
"""

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from itertools import islice
from typing import Any, TypeVar

from streaming.operators.action_events import UnreadableEvent, epoch_of
from streaming.operators.doctor.beating import processes
from streaming.operators.doctor.disk import CheckpointElsewhere, checkpoint_seen
from streaming.operators.doctor.facts import (
    Facts,
    InputSeen,
    ObservedCluster,
    Process,
    RejectedSeen,
    SideSeen,
)
from streaming.operators.doctor.findings import Missed
from streaming.operators.doctor.sent import ahead_by_sender
from streaming.operators.round_events import Newest, read_rejected, read_round
from streaming.process.exits import Refused, WrongUse
from streaming.process.within import within
from streaming.settings import Settings
from streaming.systems import (
    Address,
    addresses_of,
    input_ids,
    input_reader,
    output_reader,
    passes,
    publisher_of,
)
from streaming.transport.errors import CheckpointMismatch, NoAnswer, PublishError, StartError
from streaming.transport.publishing import Marker
from streaming.transport.side import TopicRecord

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
    sides = addresses_of(settings)
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


def _shorten(found: dict[str, Any], sides: Iterable[Address]) -> dict[str, Any]:
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
