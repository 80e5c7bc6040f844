"""A checkpoint on a disk of this machine, looked at without Spark. Nothing is changed."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from streaming.operators.doctor.facts import CheckpointSeen
from streaming.settings import Settings
from streaming.transport.checkpoint import (
    Card,
    Start,
    card_of,
    newest_number,
    newest_start,
    read_card,
    read_query,
    refuse_other_cards,
    refuse_strangers,
)
from streaming.transport.errors import CheckpointError

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
