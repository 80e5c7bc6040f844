"""Recordings as a whole: files in their order, or a folder of those that ``trimtab record`` rotated, and the events of a span in them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from state.events import Control, Event
from streaming.controller.recording import opened_for_reading
from streaming.controller.replay import read_events

_ENDINGS = (".ndjson", ".ndjson.gz")


class NoRecording(Exception):
    """A folder without recordings; the text says what was looked for."""


def files_of(paths: Sequence[str]) -> tuple[str, ...]:
    """The files; a folder stands for the recordings in it, by name, which is their order in time. Raises ``NoRecording``."""
    return tuple(file for path in paths for file in (_files_in(path) if Path(path).is_dir() else [path]))


def _files_in(folder: str) -> list[str]:
    found = sorted(str(each) for each in Path(folder).iterdir() if each.name.endswith(_ENDINGS))
    if not found:
        raise NoRecording(
            f"{folder}: no file in it ends in {' or '.join(_ENDINGS)}, as `trimtab record` names them"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvents:
    """The events of some files, read anew with each call; picklable."""

    files: tuple[str, ...]
    since_ms: int | None = None
    """Earlier events are left out, except control events: they hold until an operator sends others."""
    until_ms: int | None = None
    """Events from this time on are left out."""
    max_record_bytes: int

    def __call__(self) -> Iterator[tuple[str, Event]]:
        """Each event with its cluster. Raises ``BadRecording``, and what ``gzip`` raises for a file that is not whole."""
        for file in self.files:
            with opened_for_reading(file) as stream:
                for cluster, event in read_events(stream, file, self.max_record_bytes):
                    if self._is_within(event):
                        yield cluster, event

    def _is_within(self, event: Event) -> bool:
        if self.since_ms is not None and event.time_ms < self.since_ms and not isinstance(event, Control):
            return False
        return self.until_ms is None or event.time_ms < self.until_ms
