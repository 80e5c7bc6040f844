"""`trimtab run` with an impatient watchdog: `python -m tests.live.hanging FLAG run …`.

While the file FLAG is there, the operator hangs before its first row.
"""

import sys
import time
from functools import partial
from pathlib import Path

from streaming.cli import main
from streaming.controller import application
from streaming.controller.health import Health
from tests.live.altered import alter

IMPATIENT_S = 15.0
"""More than a turn or a batch takes on a busy machine, once the first one is through."""


def arm(flag: Path) -> None:
    """Put in the hang and the impatient watchdog."""

    def hang(_cluster: str) -> None:
        while flag.exists():
            time.sleep(0.1)

    alter(before=hang)
    application.Health = partial(Health, batch_s=IMPATIENT_S, turn_s=IMPATIENT_S)  # type: ignore[assignment,misc]


if __name__ == "__main__":
    arm(Path(sys.argv[1]))
    main(args=sys.argv[2:], prog_name="trimtab")
