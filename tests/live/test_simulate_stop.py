"""Ctrl-C and SIGTERM end a simulation in several processes at once, whatever it does, and leave none of them."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import TRIMTAB, Child, members, until

pytestmark = pytest.mark.live

END_S = 20.0
"""Two on an idle machine."""
LONG = ("simulate", "--scenario", "all", "--seeds", "20", "--processes", "3")
BUSY_CPU_S = 1.5
"""A worker that has used as much has begun its first run."""


def workers(child: Child) -> list[float]:
    """The processor time of each process that plays runs."""
    found = [each for each in members(child.process.pid) if each.pid != child.process.pid]
    return sorted(each.cpu_s for each in found)[-3:]


def starting(child: Child) -> bool:
    return len(workers(child)) == 3


def playing(child: Child) -> bool:
    return starting(child) and min(workers(child)) > BUSY_CPU_S


@pytest.mark.parametrize("to", [os.kill, os.killpg], ids=["one", "group"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", [starting, playing])
def test_a_stopped_simulation_says_one_line_and_leaves_no_process(
    tmp_path: Path,
    moment: Callable[[Child], bool],
    number: signal.Signals,
    to: Callable[[int, int], None],
):
    with Child((*TRIMTAB, *LONG), tmp_path / "log") as child:
        until(lambda: moment(child), what="its processes", running=[child])
        to(child.process.pid, number)
        assert child.wait(END_S) == 1
        until(child.is_gone, what="the end of its processes", timeout_s=END_S)
        assert child.output.strip() == "Aborted!"


def test_workers_end_with_a_simulation_that_was_killed(tmp_path: Path):
    with Child((*TRIMTAB, *LONG), tmp_path / "log") as child:
        until(lambda: playing(child), what="its processes", running=[child])
        child.process.kill()
        until(child.is_gone, what="the end of its processes", timeout_s=END_S)
