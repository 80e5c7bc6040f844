"""How a leader that has a standby is ended, and what it has to live through: the deeds of ``schedule.drawn_failovers``.

A deed is over once one controller leads and another one stands by again, so that the next deed finds both. The leader is read
off the controllers' logs, which a frozen one has, too: it is the living controller whose log names the highest epoch.
"""

import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from tests.faults.doing import DEEDS, Deed, Scene
from tests.faults.schedule import DISTURBANCES, Fault
from tests.faults.supervisor import Part, Supervisor
from tests.support.controllers import stands_by
from tests.support.processes import Child, until

_LEADS_S = 120.0
"""How long it may take until another one leads and one more stands by: a cold start on two cores that others use, too."""
_ROLE = re.compile(r"has epoch (\d+)|standing by as")
_TRIES = "trying to lead"


def epochs(directory: Path) -> dict[int, Path]:
    """The epochs that controllers led with, and the log that says so."""
    return {
        int(epoch): log
        for log in directory.glob("run-*.log")
        for epoch in _ROLE.findall(log.read_text(errors="replace"))
        if epoch
    }


def is_paired(supervisor: Supervisor, directory: Path) -> bool:
    """Whether one leads and another one stands by."""
    leader = _leader(supervisor, directory)
    return leader is not None and any(
        stands_by(child) for child in _listening(supervisor) if child is not leader
    )


def _listening(supervisor: Supervisor) -> list[Child]:
    return [child for child in supervisor.children if "metrics and health at" in child.output]


def _leader(supervisor: Supervisor, directory: Path) -> Child | None:
    said = epochs(directory)
    newest = said[max(said)] if said else None
    for child in supervisor.children:
        if child.log == newest and _ROLE.findall(child.output)[-1]:
            return child
    return None


def _ended(end: Callable[[Scene, Fault, Child], None]) -> Deed:
    """A deed that ends the leader, and after which another one has to lead."""

    def do(scene: Scene, fault: Fault) -> None:
        directory = scene.stage.directory
        leader = _leader(scene.supervisor, directory)
        assert leader is not None, "no process leads, so there is no leader to end"
        before = max(epochs(directory))
        end(scene, fault, leader)
        _wait_for_other(scene, leader, before)
        _wait_for_pair(scene)

    return do


def _wait_for_other(scene: Scene, leader: Child, before: int) -> None:
    """Count a fail-over once another one leads."""
    directory = scene.stage.directory

    def other() -> bool:
        return any(log != leader.log for epoch, log in epochs(directory).items() if epoch > before)

    until(other, what=f"another leader than the one with epoch {before}", timeout_s=_LEADS_S)
    scene.failovers_count += 1


def _wait_for_pair(scene: Scene) -> None:
    until(
        lambda: is_paired(scene.supervisor, scene.stage.directory),
        what="one process to lead and another one to stand by",
        timeout_s=_LEADS_S,
    )


def _kill(scene: Scene, fault: Fault, leader: Child) -> None:
    scene.supervisor.send(signal.SIGKILL, cast("Part", fault.choice), leader)


def _kill_both(scene: Scene, fault: Fault, leader: Child) -> None:
    """Kill the leader, and then the others while one of them takes over or has just begun to lead."""
    others = [child for child in scene.supervisor.children if child is not leader]
    scene.supervisor.send(signal.SIGKILL, "all", leader)
    until(
        lambda: any(_TRIES in child.output.rpartition("standing by as")[2] for child in others),
        what="a standby to try to lead",
        timeout_s=_LEADS_S,
    )
    time.sleep(fault.for_s)
    for child in others:
        scene.supervisor.send(signal.SIGKILL, "all", child)


def _stop(_scene: Scene, _fault: Fault, leader: Child) -> None:
    leader.process.terminate()


def _freeze(scene: Scene, fault: Fault, leader: Child) -> None:
    """Freeze the leader; when it goes on, it finds that another one leads."""
    before, part = max(epochs(scene.stage.directory)), cast("Part", fault.choice)
    scene.supervisor.send(signal.SIGSTOP, part, leader)
    try:
        until(
            lambda: max(epochs(scene.stage.directory)) > before,
            what="another process to lead while the leader is frozen",
            timeout_s=_LEADS_S,
        )
        time.sleep(fault.for_s)
    finally:
        scene.supervisor.send(signal.SIGCONT, part, leader)


def _slow_batch(scene: Scene, fault: Fault) -> None:
    """The leader's workers stand still for longer than a session, in a batch or before one."""
    leader = _leader(scene.supervisor, scene.stage.directory)
    assert leader is not None, "no process leads, so no batch can be slow"
    scene.supervisor.send(signal.SIGSTOP, "worker", leader)
    time.sleep(fault.for_s)
    scene.supervisor.send(signal.SIGCONT, "worker", leader)


def _disturbed(disturb: Deed) -> Deed:
    """A deed that moves leadership once at most."""

    def do(scene: Scene, fault: Fault) -> None:
        directory = scene.stage.directory
        before = max(epochs(directory))
        disturb(scene, fault)
        _wait_for_pair(scene)
        moves = sorted(epoch for epoch in epochs(directory) if epoch > before)
        assert len(moves) <= 1, f"leadership moved {len(moves)} times, to the epochs {moves}"

    return do


_ENDINGS = {
    "kill-leader": _kill,
    "kill-both": _kill_both,
    "stop-leader": _stop,
    "freeze-leader": _freeze,
}
FAILOVER_DEEDS: Mapping[str, Deed] = {
    **{kind: _ended(end) for kind, end in _ENDINGS.items()},
    **{
        kind: _disturbed({**DEEDS, "slow-batch": _slow_batch}[kind])
        for kinds in DISTURBANCES.values()
        for kind in kinds
    },
}
