"""`trimtab run` to Pulsar that kills itself: `python -m tests.live.pulsar.dying FLAGS POINT:BATCH,… run …`.

Like ``tests.live.dying``. Points: `operator`, `before-publish`, `begun` (its marker is written, no message yet),
`first-message`, `before-finish` (all messages are out, the marker not yet), `after-publish`, `between`.
"""

import sys
from pathlib import Path
from typing import Any

from streaming.cli import main
from streaming.pulsar.commits import Producers
from streaming.pulsar.publisher import PulsarPublisher
from streaming.transport.publishing import Commit
from tests.live.dying import Deaths, arm_driver, arm_publishing, points_of

POINTS = (
    "operator",
    "before-publish",
    "begun",
    "first-message",
    "before-finish",
    "after-publish",
    "between",
)


def arm(deaths: Deaths) -> None:
    """Put the points in."""
    arm_driver(deaths)
    current = arm_publishing(PulsarPublisher, deaths)
    plain_write, plain_send = PulsarPublisher._write, Producers.send

    def write(self: PulsarPublisher, producers: Producers, commit: Commit) -> None:
        if commit.is_whole:
            deaths.die_at("before-finish", current())
        plain_write(self, producers, commit)
        if not commit.is_whole:
            deaths.die_at("begun", current())

    def send(self: Producers, *arguments: Any, **named: Any) -> None:
        plain_send(self, *arguments, **named)
        named["sent"].wait(timeout_s=20.0)
        deaths.die_at("first-message", current())

    PulsarPublisher._write = write  # type: ignore[method-assign]
    Producers.send = send  # type: ignore[method-assign]


if __name__ == "__main__":
    arm(Deaths(Path(sys.argv[1]), points_of(sys.argv[2], POINTS)))
    main(args=sys.argv[3:], prog_name="trimtab")
