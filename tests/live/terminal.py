"""The demos with and without a terminal: a pseudo-terminal that keeps what is drawn, Ctrl-C at any moment, a pipe."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

ROOT = Path(__file__).parents[2]


def started_by(directory: Path) -> list[int]:
    """Processes whose temporary files go to ``directory``: the demo and everything below it."""
    mark = f"TMPDIR={directory}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in environment:
            found.append(int(process.name))
    return found


class Terminal:
    """A pseudo-terminal of 80 x 24 whose output is collected."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.text = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 65536)
            except OSError:
                return
            with self._changed:
                self.text += piece.decode(errors="replace")
                self._changed.notify_all()

    def wait_for(self, text: str, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: text in self.text, timeout_s)


def output_without_terminal(module: str, directory: Path, *arguments: str, timeout_s: float) -> str:
    """What a demo prints into a pipe; it ends well and leaves neither process nor file in ``directory``."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert list(directory.iterdir()) == []
    assert started_by(directory) == []
    return done.stdout


@contextmanager
def on_terminal(module: str, directory: Path, *arguments: str) -> Iterator[tuple[Terminal, Popen[bytes]]]:
    """A demo that draws on a terminal; the caller ends it."""
    terminal = Terminal()
    with Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(directory), "TERM": "xterm-256color"},
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
    ) as process:
        yield terminal, process


def assert_ctrl_c_ends(module: str, directory: Path, *arguments: str, moment: str, within_s: float) -> None:
    """Ctrl-C, twice, once the demo shows ``moment``: it ends in time, and neither process nor file is left."""
    with on_terminal(module, directory, *arguments) as (terminal, process):
        assert terminal.wait_for(moment, 300), terminal.text
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(within_s + 45) == 0, terminal.text
        assert time.monotonic() - began < within_s
    assert "Traceback" not in terminal.text
    assert started_by(directory) == []
    assert list(directory.iterdir()) == []
