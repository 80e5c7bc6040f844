"""Runs one schedule against a real controller, and says what was found: nothing, if all is well.

The load stops after the last fault. From then on everything has ``RECOVERY_S`` to become as `trimtab replay` says it should be,
without anybody's help.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka.errors import KafkaError
from pulsar import PulsarException
from tenacity import Retrying, retry_if_exception_type, stop_after_delay

from streaming.process.deadline import poll
from tests.faults import oracle
from tests.faults.doing import DEEDS, FAILOVER_DEEDS, Scene, is_paired
from tests.faults.load import Load
from tests.faults.oracle import NOTHING, Seen, misdone, unanswered, wanted_of
from tests.faults.schedule import Fault
from tests.faults.supervisor import Supervisor
from tests.faults.world import World
from tests.support.processes import command
from tests.support.stage import Stage, small_disk

RECOVERY_S = 120.0
"""On two cores that others use too; a cold start alone may take a third of it."""
_BEFORE_S, _AFTER_S = 180.0, 6.0
"""How long a first start may take; how long the load goes on after the last fault."""
_SESSION_S = 5.0
"""Short, for many fail-overs; long enough for a leader to send its heartbeat while others start on the same two cores."""

SETTINGS = """
[pulsar]
bundle_average_samples = 1

[pulsar.rounds]
length_s = 2
lateness_s = 2
warmup_rounds = 0
max_report_age_s = 20

[pulsar.avg_shedder]
low_threshold_points = 1
high_threshold_points = 2
low_hit_count = 1
high_hit_count = 1
min_unload_messages_per_s = 1
min_unload_bytes_per_s = 1

[pulsar.guards]
bundle_cooldown_s = 6
max_unloads_per_hour_count = 0

[kafka.rounds]
length_s = 2
lateness_s = 2
warmup_rounds = 0

[kafka.throttle]
recovery_after_s = 1
recovery_min_bytes = 1
"""
"""Rounds of two seconds, and a controller that acts in nearly each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one schedule showed."""

    problems: Sequence[str]
    notes: Sequence[str] = ()
    stage: Stage | None = None
    wanted: Seen = NOTHING
    """What the recorded log should have led to."""
    recovery_s: float = 0.0
    failovers_count: int = 0


def run_schedule(
    world: World, faults: Sequence[Fault], directory: Path, *, seed: int, is_pair: bool = False
) -> Outcome:
    """Play a schedule, on topics and a checkpoint of its own; a pair is a leader and a standby, with faults of its own."""
    stage = world.stage(directory)
    with small_disk(directory / "disk") as disk:
        checkpoint = (disk or directory) / "checkpoint"
        config = world.settings(
            stage,
            base=SETTINGS,
            controller__action_ttl_s=30,
            spark__checkpoint=str(checkpoint),
            spark__driver_memory="512m",
            spark__shuffle_partitions=1,
            spark__trigger_interval_s=0.5,
            **({"controller__standby": True, "controller__session_s": _SESSION_S} if is_pair else {}),
        )
        supervisor = Supervisor("run", ("run", "--config", str(config), "--from", "earliest"), directory)
        load = Load(stage, world.sender(stage), seed=seed)
        with world.companions(stage, config) as commands:
            companions = {name: Supervisor(name, command, directory) for name, command in commands.items()}
            scene = Scene(world, stage, supervisor, load, checkpoint, disk, companions)
            try:
                return _run(scene, faults, config, is_pair=is_pair)
            finally:
                load.end()
                for each in (supervisor, *companions.values()):
                    each.end()
                stage.close()


def _run(scene: Scene, faults: Sequence[Fault], config: Path, *, is_pair: bool) -> Outcome:
    scene.load.start()
    if is_pair:
        scene.supervisor.start_one()
    for each in (scene.supervisor, *scene.companions.values()):
        each.start_one()
        each.start()
    problems = _play(scene, faults, is_pair=is_pair)
    scene.load.end()
    unanswered = _companions_end(scene)
    return _judged(scene, config, [*problems, *unanswered])


def _companions_end(scene: Scene) -> list[str]:
    """Wait for the end of what is copied; end collectors, so that nothing new is decided, and executors once all that is out is answered."""
    if not scene.companions:
        return []
    topics = scene.stage.topics

    def leftovers() -> list[str]:
        return scene.world.leftovers(scene.stage)

    problems = [] if _becomes(lambda: not leftovers(), RECOVERY_S) else leftovers()

    def found(check: Callable[[list[bytes], list[bytes]], list[str]]) -> list[str]:
        try:
            return check(scene.stage.values(topics.actions), scene.stage.values(topics.input))
        except (KafkaError, PulsarException) as error:  # brokers may still be on their way back
            scene.world.reconnect(scene.stage)
            return [f"the topics cannot be read: {error!r}"]

    problems += scene.companions["collector"].end()
    if not _becomes(lambda: not found(unanswered), RECOVERY_S):
        problems += found(unanswered)
    return [*problems, *scene.companions["executor"].end(), *found(misdone)]


def seen_of(stage: Stage) -> Seen:
    """What consumers see now."""
    topics = stage.topics
    return Seen(
        outputs=stage.published(),
        rejected=stage.values(topics.dead_letter),
        epochs={topic: stage.epochs(topic) for topic in (topics.actions, topics.audit)},
    )


def _play(scene: Scene, faults: Sequence[Fault], *, is_pair: bool) -> list[str]:
    """Play all faults, one after the other; one that could not be done is a problem of the harness or of the program under test."""
    problems = []
    supervisor, deeds = scene.supervisor, FAILOVER_DEEDS if is_pair else DEEDS

    def is_ready() -> bool:
        return is_paired(supervisor, scene.stage.directory) if is_pair else supervisor.is_ready()

    if not _becomes(lambda: is_ready() or bool(supervisor.problems), _BEFORE_S) or supervisor.problems:
        return [f"not ready within {_BEFORE_S:g} s of its first start"]
    for fault in faults:
        time.sleep(fault.wait_s)
        scene.notes.append(f"{time.strftime('%H:%M:%S')} {fault}")
        try:
            deeds[fault.kind](scene, fault)
        except Exception as error:  # noqa: BLE001  the run goes on to its verdict
            problems.append(f"{fault}: {error!r}"[:800])
    time.sleep(_AFTER_S)
    return problems


def _judged(scene: Scene, config: Path, problems: list[str]) -> Outcome:
    began_s = time.monotonic()
    wanted = wanted_of(_replayed(config))

    def is_out() -> bool:
        try:
            return bool(oracle.is_complete(seen_of(scene.stage), wanted))
        except (KafkaError, PulsarException):  # brokers may still be on their way back
            scene.world.reconnect(scene.stage)
            return False

    if not _becomes(lambda: is_out() or scene.supervisor.newest is None, RECOVERY_S) or not is_out():
        problems.append(f"not all was published within {RECOVERY_S:g} s of the last fault")
    if scene.supervisor.newest is None:
        problems.append("no controller is left")
    elif not _becomes(scene.supervisor.is_ready, max(1.0, RECOVERY_S - (time.monotonic() - began_s))):
        problems.append(f"no controller was ready within {RECOVERY_S:g} s of the last fault")
    recovery_s = time.monotonic() - began_s
    problems += scene.supervisor.end()
    seen = seen_of(scene.stage)
    problems += oracle.differences(seen, wanted)
    if not wanted.outputs.actions_count:
        problems.append("nothing was decided: the schedule shows nothing")
    if scene.load.errors:
        scene.notes.append(f"the load's errors: {dict(scene.load.errors)}")
    return Outcome(
        problems=problems,
        notes=scene.notes,
        stage=scene.stage,
        wanted=wanted,
        recovery_s=recovery_s,
        failovers_count=scene.failovers_count,
    )


def _replayed(config: Path) -> list[bytes]:
    """Brokers that have just come back may not answer at once."""
    recording = config.with_name("log.ndjson.gz")
    retrying = Retrying(
        retry=retry_if_exception_type(AssertionError), stop=stop_after_delay(RECOVERY_S), reraise=True
    )
    for attempt in retrying:
        with attempt:
            recording.unlink(missing_ok=True)
            command("record", "--config", str(config), "--until-now", str(recording))
    return command("replay", "--config", str(config), "--keep-open", str(recording)).stdout_bytes.splitlines()


def _becomes(condition: Callable[[], bool], within_s: float) -> bool:
    return poll(condition, timeout_s=within_s, pause_s=0.5)
