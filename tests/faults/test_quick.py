"""The parts of the fault schedules do what a schedule relies on: a check that cannot fail could not be trusted."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from streaming.contract.envelope import EPOCH_HEADER
from tests.faults import supervisor as supervisor_module
from tests.faults.doing import DEEDS, FAILOVER_DEEDS
from tests.faults.oracle import Seen, differences, is_complete, misdone, unanswered, wanted_of
from tests.faults.results import TIMES_PASSED, Row, append, read, tally
from tests.faults.running import run_schedule, seen_of
from tests.faults.schedule import (
    DISTURBANCES,
    ENDINGS,
    FAULTS_MAX,
    FAULTS_MIN,
    KINDS,
    Fault,
    System,
    drawn,
    drawn_failovers,
)
from tests.faults.supervisor import Supervisor
from tests.faults.world import KafkaWorld, PulsarWorld, World
from tests.streaming.events import ACTION_RESULT, at, event
from tests.support.processes import until

ACTION = event(
    "trimtab.action.unload.v1", id="a1", subject="bundle", data={"expires_at": at(100), "round": 1}
)


def result_of(outcome: str, *, time_s: float, duration_s: float = 1.0, **data: object) -> bytes:
    whole = {"outcome": outcome, "duration_s": duration_s, **data}
    return event(ACTION_RESULT, time_s=time_s, subject="a1", data=whole)


def test_an_action_without_a_result_is_unanswered():
    assert unanswered([ACTION], [b"garbage \xff"]) == ["action a1 was never answered"]
    assert unanswered([ACTION], [result_of("skipped", time_s=500)]) == []


def test_a_repeat_that_found_it_done_and_a_late_skip_are_well():
    results = [
        result_of("succeeded", time_s=90),
        result_of("succeeded", time_s=95, done_before=True),
        result_of("skipped", time_s=500),
    ]
    assert misdone([ACTION], results) == []


def test_carried_out_twice_and_tried_after_its_expiry_are_named():
    twice = misdone([ACTION], [result_of("succeeded", time_s=90), result_of("succeeded", time_s=95)])
    assert len(twice) == 1
    assert "action a1 was carried out 2 times" in twice[0]
    late = misdone([ACTION], [result_of("failed", time_s=110, duration_s=5)])
    assert late == ["action a1 was tried 5.0 s after its expiry"]
    assert misdone([ACTION], [result_of("succeeded", time_s=110, duration_s=15)]) == []


ACTIONS = [event("trimtab.action.unload.v1", subject=f"bundle-{n}", data={"round": n}) for n in range(3)]
ROUNDS = [event("trimtab.round.v1", subject="round", time_s=n, data={"round": n}) for n in range(3)]
LETTERS = [
    event("trimtab.rejected.v1", subject="not-json", time_s=n, data={"offset": n}).replace(b'": "', b'":"')
    for n in range(3)
]
WANTED = wanted_of([*ACTIONS, *ROUNDS, *LETTERS])


def seen(actions: list[bytes], rounds: list[bytes], letters: list[bytes]) -> Seen:
    return wanted_of([*actions, *rounds, *letters])


def test_what_is_as_it_should_be_has_no_differences_dead_letters_in_any_order():
    found = seen(ACTIONS, ROUNDS, LETTERS[::-1])
    assert len(found.rejected) == 3
    assert is_complete(found, WANTED)
    assert differences(found, WANTED) == []


TAMPERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "lost": (lambda values: values[:-1], "1 missing"),
    "twice": (lambda values: [*values, values[0]], "1 seen again"),
    "twice, another lost": (lambda values: [values[0], *values[:-1]], "1 missing"),
    "altered": (lambda values: [values[0].replace(b"0", b"7"), *values[1:]], "1 not in the replay"),
}


@pytest.mark.parametrize("tampering", TAMPERED)
@pytest.mark.parametrize("kind", range(3))
def test_an_output_that_is_lost_repeated_or_altered_is_named(tampering: str, kind: int):
    outputs = [ACTIONS, ROUNDS, LETTERS]
    tamper, message = TAMPERED[tampering]
    outputs[kind] = tamper(outputs[kind])
    assert any(message in difference for difference in differences(seen(*outputs), WANTED))


def test_another_order_is_named():
    assert differences(seen(ACTIONS[::-1], ROUNDS, LETTERS), WANTED) == [
        "actions of east-1: in another order than in the replay"
    ]


def test_an_epoch_that_falls_is_named():
    found = replace(WANTED, epochs={"actions": [1, 1, 2, 1]})
    assert differences(found, WANTED) == ["epochs on actions fall: 2 before 1"]


def row(schedule: str, *, passed: bool = True, seed: int = 1, system: str = "kafka") -> Row:
    return Row(seed=seed, commit="abc1234", system=system, passed=passed, seconds=60, schedule=schedule)


def test_results_are_read_as_they_were_written(tmp_path: Path):
    rows = [row("pause/3.0s garbage"), row("garbage", passed=False)]
    for each in rows:
        append(each, tmp_path / "results.tsv")
    assert read(tmp_path / "results.tsv") == rows


def test_the_same_schedule_counts_once_and_other_systems_do_not():
    rows = [row("garbage"), row("garbage", seed=2), row("pause/3.0s"), row("pause/4.0s", system="pulsar")]
    first, kinds = tally(rows, "kafka")
    assert first == "kafka: 2 different schedules passed, in 3 runs"
    assert kinds.strip() == "garbage 1, pause 1"


def test_a_schedule_that_failed_owes_ten_passes_after_its_last_failure():
    once = [row("garbage", passed=False), *[row("garbage")] * (TIMES_PASSED - 1)]
    assert "passed 9 of 10 times since: garbage" in "\n".join(tally(once, "kafka"))
    assert "times since" not in "\n".join(tally([*once, row("garbage")], "kafka"))
    assert "passed 0 of 10" in "\n".join(tally([*once, row("garbage"), once[0]], "kafka"))


SYSTEMS: tuple[System, ...] = ("kafka", "pulsar")
Worlds = Callable[[System], World]


def slowly(test: Callable[..., None]) -> Callable[..., None]:
    """A schedule on real brokers, with real controllers."""
    return pytest.mark.live(pytest.mark.slow(test))


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_seed_gives_the_same_schedule_every_time_and_others_another(system: System):
    first = drawn(system, 1, brokers=3)
    assert drawn(system, 1, brokers=3) == first
    assert len({str(drawn(system, seed, brokers=3)) for seed in range(100)}) > 90
    assert FAULTS_MIN <= len(first) <= FAULTS_MAX


@pytest.mark.parametrize("system", SYSTEMS)
def test_over_a_hundred_seeds_every_kind_and_every_broker_comes_up(system: System):
    faults = [fault for seed in range(100) for fault in drawn(system, seed, brokers=3)]
    assert {fault.kind for fault in faults} == set(KINDS[system])
    assert {fault.broker for fault in faults} == {1, 2, 3}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_schedule_of_failovers_ends_the_leader_as_often_as_asked_and_disturbs_it(system: System):
    schedules = [drawn_failovers(system, seed, brokers=3, count=10) for seed in range(30)]
    assert schedules[1] == drawn_failovers(system, 1, brokers=3, count=10)
    assert all(sum(fault.kind in ENDINGS for fault in each) == 10 for each in schedules)
    kinds = {fault.kind for each in schedules for fault in each}
    assert kinds == {*ENDINGS, *DISTURBANCES[system]}


def test_every_kind_can_be_done():
    assert set(DEEDS) == {kind for kinds in KINDS.values() for kind in kinds}
    assert set(FAILOVER_DEEDS) == {*ENDINGS, *(kind for kinds in DISTURBANCES.values() for kind in kinds)}


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


def test_after_a_failure_and_a_kill_it_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with supervised(tmp_path, monkeypatch, "1") as supervisor:
        until(lambda: is_up(supervisor), what="a second start")
        assert supervisor.restarts_count == 1
        assert supervisor.send(signal.SIGKILL, "driver") == 1
        until(lambda: supervisor.restarts_count == 2 and is_up(supervisor), what="a third start")
        assert supervisor.end() == []


MENDED = {"5": "a person has to fix", "2": "a person has to fix", "4": "no process is left"}


@pytest.mark.parametrize(("code", "message"), MENDED.items())
def test_what_a_person_has_to_mend_is_a_problem(
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


def test_a_superseded_one_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with supervised(tmp_path, monkeypatch, "") as supervisor:
        until(lambda: is_up(supervisor), what="a start")
        (tmp_path / "codes").write_text("4")
        with supervisor.hands_off():
            superseded = supervisor.start_one()
            superseded.wait()
        until(lambda: supervisor.newest is not superseded, what="its end is seen")
        assert supervisor.restarts_count == 0
        assert supervisor.end() == []


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """The brokers of a system, started when they are asked for."""
    kinds: dict[System, type[World]] = {"kafka": KafkaWorld, "pulsar": PulsarWorld}
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(kinds[name](tmp_path_factory.mktemp(name) / "brokers")))


@slowly
def test_a_schedule_on_kafka_loses_nothing_and_what_is_repeated_is_seen(worlds: Worlds, tmp_path: Path):
    faults = [
        Fault(kind="garbage", wait_s=1),
        Fault(kind="cut-network", wait_s=1, for_s=3, choice="cut"),
        Fault(kind="kill-controller", wait_s=1, choice="jvm"),
        Fault(kind="move-leaders", wait_s=1),
    ]
    outcome = run_schedule(worlds("kafka"), faults, tmp_path, seed=1)
    assert list(outcome.problems) == [], outcome.notes

    stage, wanted = outcome.stage, outcome.wanted
    assert stage is not None
    actions = stage.topics.actions
    first = stage.read(actions)[0]
    stage.send_raw(first.key, first.value, to=actions, headers=[(EPOCH_HEADER, b"1")])
    stage.flush()
    found = differences(seen_of(stage), wanted)
    stage.close()
    assert any("1 seen again" in difference for difference in found)
    assert any("epochs" in difference for difference in found), "an old controller's voice"


@slowly
def test_a_schedule_on_pulsar_loses_nothing(worlds: Worlds, tmp_path: Path):
    faults = [
        Fault(kind="stop-broker", wait_s=1, for_s=2, choice="orderly", broker=2),
        Fault(kind="kill-executor", wait_s=1),
        Fault(kind="kill-collector", wait_s=1),
    ]
    outcome = run_schedule(worlds("pulsar"), faults, tmp_path, seed=1)
    assert list(outcome.problems) == [], outcome.notes


@slowly
@pytest.mark.parametrize("system", SYSTEMS)
def test_leaders_that_end_beside_a_standby_lose_nothing(worlds: Worlds, tmp_path: Path, system: System):
    world = worlds(system)
    faults = drawn_failovers(system, 1, brokers=world.brokers, count=4)
    outcome = run_schedule(world, faults, tmp_path, seed=1, is_pair=True)
    assert list(outcome.problems) == [], outcome.notes
    assert outcome.failovers_count == 4
