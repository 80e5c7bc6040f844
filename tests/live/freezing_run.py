"""`trimtab run` that freezes whole, with its JVM and workers: `python -m tests.live.freezing_run FLAGS POINT:BATCH,… run …`.

Like a machine that is suspended. Points are those of ``tests.live.dying``; the test that waits for the freeze sends SIGCONT.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from streaming.cli import main
from tests.live.driving import Child, members, state_of
from tests.live.dying import Deaths, arm, points_of


class Freezes(Deaths):
    """Stops where a ``Deaths`` would kill."""

    def strike(self) -> None:
        """Stop every process of this session, this one last."""
        own = os.getpid()
        for process in members(os.getsid(0)):
            if process.pid != own:
                os.kill(process.pid, signal.SIGSTOP)
        os.kill(own, signal.SIGSTOP)


def is_frozen(child: Child) -> bool:
    """Whether its first process is stopped."""
    return state_of(child.process.pid) == "T"


def thaw(child: Child) -> None:
    """Let all of it go on."""
    for process in members(child.process.pid):
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)


if __name__ == "__main__":
    arm(Freezes(Path(sys.argv[1]), points_of(sys.argv[2])))
    main(args=sys.argv[3:], prog_name="trimtab")
