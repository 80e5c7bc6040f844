"""Commands in the foreground of a terminal, as a person starts them: Ctrl-C goes to the whole process group."""

import fcntl
import os
import pty
import signal
import subprocess
import termios
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.live.driving import EXIT_S, Child, environment, until

Stop = Literal["Ctrl-C", "SIGTERM"]


@dataclass(slots=True)
class Foreground(Child):
    """A command in the foreground of a terminal of its own; what the terminal shows is its log."""

    _terminal: int = field(init=False)

    def __post_init__(self) -> None:
        self._terminal, other_end = pty.openpty()
        self.log.touch()

        def take_terminal() -> None:
            fcntl.ioctl(other_end, termios.TIOCSCTTY, 0)
            # a shell without job control starts what is in the background deaf to Ctrl-C, the tests included
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        self.process = subprocess.Popen(
            [*self.command],
            stdin=other_end,
            stdout=other_end,
            stderr=other_end,
            env=environment(self.log.parent),
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509  there is no other way to a controlling terminal
        )
        os.close(other_end)
        threading.Thread(target=self._keep_log, daemon=True).start()

    def _keep_log(self) -> None:
        with self.log.open("ab", buffering=0) as log:
            try:
                while piece := os.read(self._terminal, 65536):
                    log.write(piece)
            except OSError:  # nobody has the other end open any more
                return

    def ask_to_stop(self, how: Stop) -> None:
        """Press Ctrl-C, or send SIGTERM as `kill` does."""
        if how == "Ctrl-C":
            os.write(self._terminal, b"\x03")
        else:
            self.process.terminate()

    def assert_ends_in_order(self, how: Stop, *, saying: str | None = None) -> None:
        """It ends with code 0, says so in one line (the signal's name, or ``saying``), and none of its processes is left."""
        before = len(self.output)
        self.ask_to_stop(how)
        self.ask_to_stop(how)  # impatience changes nothing
        assert self.wait(EXIT_S) == 0, self.output
        until(self.is_gone, what="the end of its processes")
        ending = self.output[before:].replace("^C", "")
        said = [line for line in ending.splitlines() if (saying or "SIG") in line]
        assert len(said) == 1, self.output
        for word in ("Traceback", "Aborted", "KeyboardInterrupt"):
            assert word not in ending, self.output


def hears_stops(child: Child) -> bool:
    """Whether it has a handler of SIGTERM of its own: from then on a stop ends it in order."""
    status = Path(f"/proc/{child.process.pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
