"""How each kind of fault is done; the names are those of ``schedule``. A deed returns when the fault is over.

Where a leader has a standby, a deed is over once one controller leads and another one stands by again, so that the next deed finds
both. The leader is read off the controllers' logs, which a frozen one has, too: it is the living controller whose log names the
highest epoch.
"""

import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from streaming.process.deadline import Deadline
from tests.faults.load import CLUSTER, GARBAGE, Load
from tests.faults.schedule import DISTURBANCES, Fault
from tests.faults.supervisor import Part, Supervisor
from tests.faults.world import World
from tests.streaming.events import control
from tests.support.controllers import stands_by
from tests.support.processes import Child, until
from tests.support.stage import Stage, filled

_START_S = 90.0
"""How long a started controller may take until it says that it is ready, or ends."""
_SKEWS_S = {"ahead": 2.0, "far-ahead": 60.0, "behind": -20.0}
"""``ahead`` is less than a control event's respite (2 x lateness): otherwise a replay could place the event differently."""
_QUICK_S = 0.3


@dataclass(slots=True)
class Scene:
    """What a deed may act on."""

    world: World
    stage: Stage
    supervisor: Supervisor
    load: Load
    checkpoint: Path
    disk: Path | None
    """The small file system that the checkpoint is on; None where none could be mounted."""
    companions: Mapping[str, Supervisor] = field(default_factory=dict)
    """Collector and executor, where there are real ones."""
    failovers_count: int = 0
    notes: list[str] = field(default_factory=list)


Deed = Callable[[Scene, Fault], None]


def _kill(scene: Scene, fault: Fault) -> None:
    scene.supervisor.send(signal.SIGKILL, cast("Part", fault.choice))


def _stop(scene: Scene, _fault: Fault) -> None:
    """Stop it with SIGTERM; the supervisor starts it again."""
    child = scene.supervisor.newest
    if child is not None:
        child.process.terminate()


def _freeze(scene: Scene, fault: Fault) -> None:
    _stand_still(scene.supervisor, fault, cast("Part", fault.choice), scene.supervisor.newest)


def _stand_still(supervisor: Supervisor, fault: Fault, part: Part, child: Child | None) -> None:
    if child is not None:
        supervisor.send(signal.SIGSTOP, part, child)
        time.sleep(fault.for_s)
        supervisor.send(signal.SIGCONT, "all", child)


def _second(scene: Scene, fault: Fault) -> None:
    """A take-over: the first controller has to end with code 4, also if it was frozen meanwhile and then finds its successor."""
    supervisor, first = scene.supervisor, scene.supervisor.newest
    if first is None:
        return
    if fault.choice == "frozen":
        supervisor.send(signal.SIGSTOP, "all", first)
    second = supervisor.start_one()
    _wait(lambda: second.process.poll() is not None or supervisor.is_ready())
    supervisor.send(signal.SIGCONT, "all", first)


def _restore(scene: Scene, _fault: Fault) -> None:
    """Put an old backup in the checkpoint's place: it is refused, or nothing was published since; then a person puts it right."""
    supervisor, checkpoint = scene.supervisor, scene.checkpoint
    backup, kept = (scene.stage.directory / name for name in ("backup", "kept"))
    with supervisor.hands_off():
        supervisor.stop_all()
        if not checkpoint.exists():
            supervisor.start_one()
            return
        _copy(checkpoint, backup)
        supervisor.start_one()
    _wait(supervisor.is_ready)
    time.sleep(6)
    with supervisor.hands_off():
        supervisor.stop_all()
        _copy(checkpoint, kept)
        _copy(backup, checkpoint)
        refusals_count, supervisor.expects_refusal = supervisor.refusals_count, True
        supervisor.start_one()
    _wait(lambda: supervisor.refusals_count > refusals_count or supervisor.is_ready())
    with supervisor.hands_off():
        is_refused = supervisor.refusals_count > refusals_count
        if is_refused:
            _copy(kept, checkpoint)
            supervisor.start_one()
        scene.notes.append(f"the restored checkpoint was {'refused' if is_refused else 'accepted'}")
        supervisor.expects_refusal = False


def _copy(source: Path, destination: Path) -> None:
    shutil.rmtree(destination, ignore_errors=True)
    shutil.copytree(source, destination)


def _stop_broker(scene: Scene, fault: Fault) -> None:
    scene.world.stop_broker(fault.broker, kill=fault.choice == "kill")
    time.sleep(fault.for_s)
    scene.world.start_broker(fault.broker)


def _recover(scene: Scene, fault: Fault) -> None:
    """Stop a broker until its throttle is set, and kill the executor and the controller while it recovers under it.

    Never broker 1: it is the only controller of the local cluster, without which nobody sees that a broker is away.
    """
    number = 2 + fault.broker % 2
    scene.world.stop_broker(number, kill=fault.choice == "kill")
    try:
        _wait(lambda: any("throttle" in line for line in scene.world.leftovers(scene.stage)))
        time.sleep(fault.for_s)
    finally:
        scene.world.start_broker(number)
    scene.companions["executor"].send(signal.SIGKILL, "all")
    scene.supervisor.send(signal.SIGKILL, "all")


def _freeze_broker(scene: Scene, fault: Fault) -> None:
    scene.world.signal_broker(fault.broker, signal.SIGSTOP)
    time.sleep(fault.for_s)
    scene.world.signal_broker(fault.broker, signal.SIGCONT)


def _fill(scene: Scene, fault: Fault) -> None:
    """Fill the disk of the checkpoint."""
    if scene.disk is None:
        scene.notes.append("no disk could be filled: mounting needs root")
        return
    with filled(scene.disk):
        time.sleep(fault.for_s)


def _jump(scene: Scene, fault: Fault) -> None:
    scene.load.skew_s = _SKEWS_S[fault.choice]
    time.sleep(fault.for_s)
    scene.load.skew_s = 0.0


def _send_garbage(scene: Scene, _fault: Fault) -> None:
    sender = scene.world.sender(scene.stage)
    try:
        for key, value in GARBAGE:
            sender.send(scene.stage.topics.input, key, value)
        sender.flush()
    except Exception as error:  # noqa: BLE001  brokers may be out; then there is no garbage
        scene.notes.append(f"no garbage: {error!r}")
    finally:
        sender.close()


def _pause(scene: Scene, fault: Fault) -> None:
    """Pause, and resume after a while."""
    _send_control(scene, paused=True)
    time.sleep(fault.for_s)
    _send_control(scene, paused=False)


def _send_control(scene: Scene, *, paused: bool) -> None:
    """Send it only while the topic takes records at once: a replay may place a control event that comes late differently."""
    sender, topic = scene.world.sender(scene.stage), scene.stage.topics.control
    try:
        deadline = Deadline(_START_S)
        while not deadline.is_over:
            asked_s = time.monotonic()
            sender.send(topic, CLUSTER.encode(), b"is anybody there?")
            sender.flush()
            if time.monotonic() - asked_s < _QUICK_S:
                event = control(
                    time_s=time.time(),
                    cluster=CLUSTER,
                    id=f"control-{time.time_ns()}",
                    data={"paused": paused, "who": "faults", "why": "test"},
                )
                sender.send(topic, CLUSTER.encode(), event)
                sender.flush()
                return
    except Exception as error:  # noqa: BLE001  brokers may be out; then nobody is paused
        scene.notes.append(f"no control event: {error!r}")
    finally:
        sender.close()


def _kill_companion(scene: Scene, fault: Fault) -> None:
    scene.companions[_program(fault)].send(signal.SIGKILL, "all")


def _freeze_companion(scene: Scene, fault: Fault) -> None:
    supervisor = scene.companions[_program(fault)]
    _stand_still(supervisor, fault, "all", supervisor.newest)


def _add_companion(scene: Scene, fault: Fault) -> None:
    """The added program stays to the end."""
    scene.companions[_program(fault)].start_one()


def _program(fault: Fault) -> str:
    """The program that the kind names: ``kill-executor`` is about the executor."""
    return fault.kind.partition("-")[2]


def _of_world(scene: Scene, fault: Fault) -> None:
    scene.world.do(fault.kind, scene.stage, fault.choice)
    if fault.for_s:
        time.sleep(fault.for_s)
        scene.world.do(fault.kind, scene.stage, "over")


def _wait(condition: Callable[[], bool]) -> None:
    until(condition, what="a controller that was started", timeout_s=_START_S)


DEEDS: Mapping[str, Deed] = {
    "kill-controller": _kill,
    "stop-controller": _stop,
    "freeze-controller": _freeze,
    "second-controller": _second,
    "restored-checkpoint": _restore,
    "stop-broker": _stop_broker,
    "recover": _recover,
    "freeze-broker": _freeze_broker,
    "disk-full": _fill,
    "clock-jump": _jump,
    "garbage": _send_garbage,
    "pause": _pause,
    "cut-network": _of_world,
    "slow-network": _of_world,
    "move-leaders": _of_world,
    "unload-topics": _of_world,
    "stop-bookie": _of_world,
    "kill-executor": _kill_companion,
    "freeze-executor": _freeze_companion,
    "second-executor": _add_companion,
    "kill-collector": _kill_companion,
    "freeze-collector": _freeze_companion,
}


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


def _kill_leader(scene: Scene, fault: Fault, leader: Child) -> None:
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


def _stop_leader(_scene: Scene, _fault: Fault, leader: Child) -> None:
    leader.process.terminate()


def _freeze_leader(scene: Scene, fault: Fault, leader: Child) -> None:
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
    _stand_still(scene.supervisor, fault, "worker", leader)


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
    "kill-leader": _kill_leader,
    "kill-both": _kill_both,
    "stop-leader": _stop_leader,
    "freeze-leader": _freeze_leader,
}
FAILOVER_DEEDS: Mapping[str, Deed] = {
    **{kind: _ended(end) for kind, end in _ENDINGS.items()},
    **{
        kind: _disturbed({**DEEDS, "slow-batch": _slow_batch}[kind])
        for kinds in DISTURBANCES.values()
        for kind in kinds
    },
}
