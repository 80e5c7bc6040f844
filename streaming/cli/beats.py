"""Which controllers run, which lead and which stand by, according to their beats. Pure: no topic, no clock."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from streaming.contract import beat as beats
from streaming.contract.beat import Beat
from streaming.transport.side import TopicRecord

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
        yield Process(beat=beat, age_s=age_s, ahead_s=_ahead_s(beat, record.timestamp / 1000))


def _ahead_s(beat: Beat, appended_s: float) -> float:
    try:
        return round(datetime.fromisoformat(beat.at).timestamp() - appended_s, 3)
    except ValueError:
        return 0.0
