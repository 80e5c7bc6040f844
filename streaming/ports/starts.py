"""What lies in a checkpoint: the directory of each start, the card that makes it count, and Spark's logs of batches.

``streaming.spark.checkpoint`` makes and deletes these directories; code that only looks at them needs no Spark.
"""

import re
from dataclasses import dataclass
from typing import Literal, Protocol

CARD = "trimtab.json"
CLAIM = "claim"
"""File of the process that works in a start's directory; it is made before everything else there."""
PROBE = ".trimtab-probe-"
"""Beginning of the names of the files with which a start tests the store; a start that was killed may leave some."""
StartWith = Literal["checkpoint", "fresh", "adopt"]
"""What a start begins with: the checkpoint, if the marker agrees; nothing, and the marker is forgotten (``--fresh``); or
the checkpoint as it is (``--adopt``)."""
ADOPT = (
    "--adopt, which forgets what was published after the checkpoint: it may be decided and published again, and consumers may "
    "act twice"
)
SKIP_LOST = "--skip-lost, which decides without the lost records for good"
"""Both for messages that recommend the option: they say what is lost by it, like ``state.layouts.FRESH``."""
_NAME = re.compile(r"start-(\d+)")


class Listing(Protocol):
    """Files below a root. Names are relative to it; "" is the root itself."""

    def exists(self, name: str) -> bool:
        """Whether there is a file or a directory of this name."""

    def names(self, name: str = "") -> list[str]:
        """Names of what a directory holds; empty where there is none."""

    def read(self, name: str) -> bytes | None:
        """The contents of a file; None where there is no such file."""


@dataclass(frozen=True, slots=True, order=True)
class Start:
    """The directory of a start; epoch 0 is the checkpoint itself."""

    epoch: int

    @property
    def directory(self) -> str:
        """Its name below the checkpoint."""
        return f"start-{self.epoch}" if self.epoch else ""

    def file(self, *names: str) -> str:
        """The name of something in it."""
        return "/".join(filter(None, (self.directory, *names)))


def is_start(name: str) -> bool:
    """Whether something in the checkpoint is the directory of a start."""
    return _NAME.fullmatch(name) is not None


def all_starts(files: Listing) -> list[Start]:
    """The checkpoint itself, and the directories in it, whether they count or not."""
    found = [_NAME.fullmatch(name) for name in files.names()]
    return [Start(0), *(Start(int(name[1])) for name in found if name is not None)]


def newest_start(files: Listing) -> Start | None:
    """The newest start that counts, which is one with a card; None where there is none."""
    return max((start for start in all_starts(files) if files.exists(start.file(CARD))), default=None)


def newest_number(files: Listing, start: Start, log: str) -> int | None:
    """The highest batch in one of Spark's logs, ``offsets`` or ``commits``."""
    names = files.names(start.file(log))
    return max((int(name) for name in names if name.isdecimal()), default=None)
