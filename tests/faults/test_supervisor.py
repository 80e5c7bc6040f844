"""The supervisor does what systemd or Kubernetes would, and reports what a person would have had to do."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults import supervisor as supervisor_module
from tests.faults.supervisor import Supervisor
from tests.live.driving import until

PROGRAM = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
codes = pathlib.Path(sys.argv[1])
code, _, rest = codes.read_text().partition(" ")
codes.write_text(rest)
if code:
    sys.exit(int(code))
print("started", flush=True)
time.sleep(600)
"""


@contextmanager
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: str) -> Iterator[Supervisor]:
    """A program that ends with these codes, one a start, and then stays."""
    file = tmp_path / "codes"
    file.write_text(codes)
    monkeypatch.setattr(supervisor_module, "TRIMTAB", (sys.executable, "-c", PROGRAM))
    made = Supervisor("run", [str(file)], tmp_path)
    made.start_one()
    made.start()
    try:
        yield made
    finally:
        made.end()


def is_up(supervisor: Supervisor) -> bool:
    child = supervisor.newest
    return child is not None and "started" in child.output


def test_a_failure_and_a_kill_are_followed_by_a_start_and_a_stop_in_order_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with supervised(tmp_path, monkeypatch, "1") as supervisor:
        until(lambda: is_up(supervisor), what="a second start")
        assert supervisor.restarts_count == 1
        assert supervisor.send(signal.SIGKILL, "driver") == 1
        until(lambda: supervisor.restarts_count == 2 and is_up(supervisor), what="a third start")
        assert supervisor.end() == []


@pytest.mark.parametrize(
    ("code", "message"),
    [("5", "a person has to fix"), ("2", "a person has to fix"), ("4", "no process is left")],
)
def test_what_a_person_would_have_to_mend_is_a_problem_and_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
):
    with supervised(tmp_path, monkeypatch, code) as supervisor:
        until(lambda: supervisor.problems, what="a problem")
        assert supervisor.newest is None
        assert message in supervisor.end()[0]


def test_a_refusal_that_was_asked_for_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with supervised(tmp_path, monkeypatch, "") as supervisor:
        until(lambda: is_up(supervisor), what="a start")
        supervisor.expects_refusal = True
        (tmp_path / "codes").write_text("5")
        supervisor.start_one()
        until(lambda: supervisor.refusals_count == 1, what="a refusal")
        assert is_up(supervisor)
        assert supervisor.end() == []


def test_a_superseded_one_is_left_alone_while_its_successor_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with supervised(tmp_path, monkeypatch, "") as supervisor:
        until(lambda: is_up(supervisor), what="a start")
        (tmp_path / "codes").write_text("4")
        with supervisor.hands_off():
            superseded = supervisor.start_one()
            superseded.wait()
        until(lambda: supervisor.newest is not superseded, what="its end is seen")
        assert supervisor.restarts_count == 0
        assert supervisor.end() == []
