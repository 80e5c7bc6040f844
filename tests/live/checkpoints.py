"""Checkpoints: as a publisher sees them, for tests without Spark, and on disk."""

from collections.abc import Callable
from pathlib import Path

from streaming.transport.checkpoint import CLAIM
from streaming.transport.publishing import Checkpoint


def at(query_id: str | None = None, last_batch_id: int | None = None) -> Callable[[], Checkpoint]:
    """A function that reads a checkpoint of this query with this newest planned batch; without them a new one."""
    return lambda: Checkpoint(query_id=query_id, last_batch_id=last_batch_id)


def newest_start(checkpoint: Path) -> Path:
    """Where the newest start that counts keeps Spark's files."""
    cards = checkpoint.glob("start-*/trimtab.json")
    return max((card.parent for card in cards), key=lambda start: int(start.name.partition("-")[2]))


def flatten(checkpoint: Path) -> None:
    """Lay it out as trimtab did before each start had a directory."""
    start = newest_start(checkpoint)
    (start / CLAIM).unlink()
    for path in list(start.iterdir()):
        path.rename(checkpoint / path.name)
    start.rmdir()
