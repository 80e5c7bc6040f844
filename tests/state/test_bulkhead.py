"""An error in our code ends one record or one round; actions that expire without a result are named."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from state import control, rounds
from state.closing import Identity
from state.controller import REJECTED, USED, Controller
from state.events import ActionResult, Coordinates, Event, KafkaLoadReport, LoadReport
from state.kafka import decide as decide_kafka
from state.kafka import reconcile
from state.layouts import seal
from state.memory import Header, decode_header
from state.pulsar import decide, effects, findings, fleet, masks
from state.store import DictStore, StoredKey
from state.systems import decode_memory
from tests.state.traces import (
    CLUSTER,
    KAFKA,
    Fault,
    Run,
    failing_in,
    kafka_trace,
    load,
    overlay,
    run,
    settings_of,
    sweep,
)

_SHEDDER = {"high_hit_count": 1, "low_hit_count": 1, "min_unload_messages_per_s": 1.0}
EAGER = settings_of(rounds={"warmup_rounds": 0}, avg_shedder=_SHEDDER, guards={"bundle_cooldown_s": 25.0})
RESTLESS = settings_of(rounds={"warmup_rounds": 0}, avg_shedder=_SHEDDER, guards={"bundle_cooldown_s": 0})


def hot(time_s: float) -> list[Event]:
    """Two brokers, the first of them hot."""
    bundles = {f"t/a/0x{at}0000000_0x{at + 1}0000000": 100.0 + at for at in range(4)}
    return [load("b1", time_s, cpu=90.0, bundles=bundles), load("b2", time_s, cpu=10.0)]


def trace(rounds_count: int, *, resumed_s: float | None = None) -> list[Event]:
    events = [
        each for number in range(rounds_count) for each in (*hot(10 * number + 5), sweep(10 * number + 6))
    ]
    if resumed_s is not None:
        events.append(overlay(resumed_s, resumed_s=resumed_s))
    return sorted(events, key=lambda each: each.time_ms)


def outcomes(found: Run) -> list[str]:
    return [each["outcome"] for each in found.summaries]


PULSAR_STEPS = [
    (control, "in_force"),
    (fleet, "advance"),
    (effects, "judge"),
    (masks, "unload_mask"),
    (decide, "shed"),
    (decide, "remember"),
    (findings, "of_actions"),
    (decide, "fit"),
]


@pytest.mark.parametrize(("module", "name"), PULSAR_STEPS, ids=[name for _, name in PULSAR_STEPS])
def test_a_round_that_fails_at_any_step_leaves_the_memory_as_it_was_but_for_the_clock(
    module: Any, name: str, monkeypatch: pytest.MonkeyPatch
):
    store, events = DictStore(), trace(4)
    controller = Controller(CLUSTER, store, identity=Identity(mode="act"), settings=EAGER)
    for event in events[:9]:
        controller.step(event)
    controller.commit()
    before, fleet_before = decode_header(store.header() or b""), store.fleet()
    assert before.ledger.decisions, "something to lose"
    failing_in(monkeypatch, module, name, lambda number: number == 0)
    outputs = [each for event in events[9:] for each in controller.step(event).outputs]
    controller.commit()
    assert [json.loads(each.data)["outcome"] for each in outputs] == ["internal-error"]
    after = decode_header(store.header() or b"")
    assert store.fleet() == fleet_before
    assert after.error_rounds_count == 1
    clock = ("newest_ms", "next_round", "rounds", "last_summary", "last_report_ms", "error_rounds_count")
    for field in Header.__struct_fields__:
        if field not in clock:
            assert getattr(after, field) == getattr(before, field), field


KAFKA_STEPS = [
    (reconcile, "reconcile"),
    (reconcile, "observe_drift"),
    (decide_kafka, "pace"),
    (decide_kafka, "throttle_action"),
    (decide_kafka, "round_summary"),
]


@pytest.mark.parametrize(("module", "name"), KAFKA_STEPS, ids=[name for _, name in KAFKA_STEPS])
def test_a_kafka_round_that_fails_leaves_the_memory_of_the_throttle_as_it_was(
    module: Any, name: str, monkeypatch: pytest.MonkeyPatch
):
    store, events = DictStore(), kafka_trace(12)
    controller = Controller(CLUSTER, store, identity=Identity(mode="act"), settings=KAFKA)
    failing = {"on": False}
    failing_in(monkeypatch, module, name, lambda _number: failing["on"])
    failed_count = 0
    for event in events:
        controller.commit()
        before = store.fleet()
        failing["on"] = before is not None
        outputs = controller.step(event).outputs
        controller.commit()
        if any(
            json.loads(each.data)["outcome"] == "internal-error" for each in outputs if each.kind == "round"
        ):
            failed_count += 1
            assert (decode_memory("kafka", before), len(outputs)) == (
                decode_memory("kafka", store.fleet()),
                1,
            )
    assert failed_count > 0


def test_a_round_that_fails_says_which_settings_were_in_force(monkeypatch: pytest.MonkeyPatch):
    control_event = overlay(1, settings={"pulsar": {"avg_shedder": {"low_hit_count": 7}}})
    failing_in(monkeypatch, fleet, "advance", lambda _number: True)
    digests = [summary["settings_digest"] for summary in run([[control_event, *trace(4)]], EAGER).summaries]
    overlaid = EAGER.overlaid(CLUSTER, control_event.data.settings_json).in_force["pulsar"].digest
    assert digests[0] == EAGER.base(CLUSTER).in_force["pulsar"].digest
    assert digests[-1] == overlaid != digests[0]


def test_the_summary_names_class_and_place_of_the_error_without_paths(monkeypatch: pytest.MonkeyPatch):
    def overflowing(*_args: Any, **_options: Any) -> None:
        float("1e999").__int__()

    monkeypatch.setattr(fleet, "advance", overflowing)
    found = run([trace(2)], EAGER)
    assert outcomes(found) == ["internal-error"] * 2
    assert found.summaries[0]["reason"].startswith("OverflowError at state.pulsar.decide:")
    place, _, _ = found.summaries[0]["reason"].partition(": a fault of trimtab")
    assert "decide" in place
    assert "/" not in found.summaries[0]["reason"]
    assert found.summaries[0]["brokers_reporting"] == ["b1", "b2"]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_where_batches_are_cut_changes_nothing_of_a_failed_round(size: int, monkeypatch: pytest.MonkeyPatch):
    events = trace(9)
    failing_in(monkeypatch, decide, "remember", lambda number: number in {2, 5})
    whole = run([events], EAGER)
    monkeypatch.undo()
    failing_in(monkeypatch, decide, "remember", lambda number: number in {2, 5})
    cut = run([events[at : at + size] for at in range(0, len(events), size)], EAGER)
    assert outcomes(whole).count("internal-error") == 2
    assert [each.data for each in cut.outputs] == [each.data for each in whole.outputs]
    assert cut.results == whole.results


def test_a_failed_round_is_no_gap_and_no_restart(monkeypatch: pytest.MonkeyPatch):
    failing_in(monkeypatch, decide, "remember", lambda number: number in {2, 3, 4})
    found = run([trace(9)], EAGER)
    assert outcomes(found)[2:5] == ["internal-error"] * 3
    assert {each["gap_rounds"] for each in found.summaries} == {0}
    assert not any(each["restarted"] for each in found.summaries[1:])


def test_a_cluster_whose_first_round_after_a_silence_fails_begins_anew_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
):
    failing_in(monkeypatch, decide, "remember", lambda number: number in {2, 3})
    late = [msgspec.structs.replace(each, time_ms=each.time_ms + 100_000) for each in trace(4)]
    found = run([[*trace(2), *late]], EAGER)
    assert outcomes(found) == ["decided"] * 2 + ["internal-error"] * 2 + ["decided"] * 2
    assert [each["restarted"] for each in found.summaries[2:]] == [False, False, True, False]


def test_after_three_failed_rounds_in_a_row_nothing_is_done_until_a_person_resumes(
    monkeypatch: pytest.MonkeyPatch,
):
    failing_in(monkeypatch, decide, "remember", lambda number: number in {0, 1, 3, 4, 5})
    found = run([trace(14, resumed_s=81)], RESTLESS, identity=Identity(mode="act"))
    assert outcomes(found)[:7] == [*["internal-error"] * 2, "decided", *["internal-error"] * 3, "decided"]
    held = [each["failing_since"] for each in found.summaries]
    assert held[:5] == [None] * 5
    assert held[5:9] == ["1970-01-01T00:01:00.000Z"] * 4
    assert held[10:] == [None] * len(held[10:])
    row = found.summaries[6]["candidates"]["heaviest"][0]
    assert row["outcome"] == "failing"
    assert "3 rounds in a row ended in an internal error (Fault" in row["detail"]
    assert [each["actions_count"] > 0 for each in found.summaries[6:9]] == [False] * 3
    assert any(each["actions_count"] for each in found.summaries[10:])


def test_a_kafka_cluster_is_held_too_after_three_failed_rounds(monkeypatch: pytest.MonkeyPatch):
    failing_in(monkeypatch, decide_kafka, "round_summary", lambda number: number in {1, 2, 3})
    found = run([kafka_trace(12)], KAFKA, identity=Identity(mode="act"))
    after = found.summaries[4:]
    assert all(each["failing_since"] is not None for each in after)
    assert not any(each["actions_count"] for each in after)
    assert any("held, failing: 3 rounds in a row" in each["reason"] for each in after)


def test_a_record_that_cannot_be_taken_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    store = DictStore()
    controller = Controller(CLUSTER, store, identity=Identity(), settings=EAGER)
    controller.step(load("b1", 5))
    controller.commit()
    before = store.header()

    def failing(*_args: Any) -> None:
        raise Fault

    monkeypatch.setattr("state.controller.widen", failing)
    step = controller.step(load("b2", 17), Coordinates(3))
    controller.commit()
    assert step.rejection is not None
    assert step.rejection.reason == "internal-error"
    assert "Fault at state.controller:" in step.rejection.detail
    assert store.header() == before
    assert dict(controller.take_results()) == {(LoadReport, REJECTED): 1}
    monkeypatch.undo()
    assert controller.step(load("b2", 17)).outputs, "the first round closes as if nothing had been"


def test_the_first_record_of_a_kafka_cluster_that_fails_adopts_nothing(monkeypatch: pytest.MonkeyPatch):
    events = kafka_trace(3)
    first = next(each for each in events if isinstance(each, KafkaLoadReport))
    store = DictStore()
    controller = Controller(CLUSTER, store, identity=Identity(), settings=KAFKA)
    controller.step(sweep(first.time_ms / 1000 - 1))
    controller.commit()
    before = store.header()
    monkeypatch.setattr("state.controller.widen", lambda *_args: 1 // 0)
    assert controller.step(first).rejection is not None
    controller.commit()
    assert store.header() == before


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_what_is_no_verdict_on_a_round_ends_the_task(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
):
    def failing(*_args: Any, **_options: Any) -> None:
        raise error

    monkeypatch.setattr(fleet, "advance", failing)
    with pytest.raises(error):
        run([trace(2)], EAGER)


class DamagedStore(DictStore):
    """A store that cannot be read any more, as when the socket to Spark is lost."""

    is_damaged = False

    def fleet(self) -> bytes | None:
        if self.is_damaged:
            raise ConnectionError
        return super().fleet()


def test_a_store_that_cannot_be_read_ends_the_task_rather_than_a_round():
    store = DamagedStore()
    controller = Controller(CLUSTER, store, identity=Identity(), settings=EAGER)
    for event in trace(2):
        controller.step(event)
    controller.commit()
    store.is_damaged = True
    later = Controller(CLUSTER, store, identity=Identity(), settings=EAGER)
    with pytest.raises(ConnectionError):
        later.step(trace(4)[6])


def test_a_draft_shares_nothing_that_a_close_may_change():
    store = DictStore()
    run([trace(4)], EAGER, store=store, is_closed=False)
    header = decode_header(store.header() or b"")
    draft = rounds.draft_of(header)
    for name in Header.__struct_fields__:
        mine, its = getattr(header, name), getattr(draft, name)
        assert mine == its
        assert not isinstance(mine, dict | list) or mine is not its
    assert draft.ledger.decisions
    for mine, its in zip(header.ledger.decisions, draft.ledger.decisions, strict=True):
        its.result = "failed"
        assert mine.result is None


def test_a_fleet_is_replaced_and_never_changed_in_place(monkeypatch: pytest.MonkeyPatch):
    """A close can therefore work on a copy that shares every column."""
    seen: list[tuple[Any, Any]] = []
    real = decide.decide

    def watched(closing: Any, header: Any, before: Any, *args: Any) -> Any:
        kept = seal(before)
        shared = copy.copy(before)
        found = real(closing, header, before, *args)
        seen.append((kept, seal(shared)))
        return found

    monkeypatch.setattr(decide, "decide", watched)
    run([trace(8)], settings_of(rounds={"warmup_rounds": 0}, split={"enabled": True}))
    assert len(seen) == 8
    assert all(kept == after for kept, after in seen)


def test_used_records_of_a_failed_round_are_counted_once(monkeypatch: pytest.MonkeyPatch):
    failing_in(monkeypatch, decide, "remember", lambda number: number == 0)
    found = run([trace(2)], EAGER)
    assert found.results[LoadReport, USED] == 4


class DamagedWaiting(DamagedStore):
    """A store whose waiting reports cannot be read any more."""

    def all_waiting(self) -> Iterator[tuple[StoredKey, bytes]]:
        if self.is_damaged:
            raise ConnectionError
        return super().all_waiting()


def test_what_waits_in_a_store_that_cannot_be_read_ends_the_task_rather_than_a_round():
    store = DamagedWaiting()
    controller = Controller(CLUSTER, store, identity=Identity(), settings=EAGER)
    controller.step(load("b1", 5))
    controller.commit()
    store.is_damaged = True
    later = Controller(CLUSTER, store, identity=Identity(), settings=EAGER)
    with pytest.raises(ConnectionError):
        later.step(load("b1", 17))


BUNDLES = [f"t/n/0x{i}0000000_0x{i + 1}0000000" for i in range(4)]
HOT = {"rounds": {"warmup_rounds": 0}, "avg_shedder": {"high_hit_count": 1, "min_unload_messages_per_s": 1.0}}
TTL_S = 20.0
ACT = Identity(mode="act", action_ttl_s=TTL_S)
"""Rounds last ten seconds: an action of round 0 expires with round 2, and round 3 has the first reports after that."""


def reports(number: int, *, gone: int = 0, cpu: float = 90.0) -> list[Event]:
    """A round's reports: b1 is hot and has all bundles but ``gone`` ones, which are at b2."""
    return [
        load("b1", 10 * number + 5, cpu=cpu, rate=400.0, bundles=dict.fromkeys(BUNDLES[gone:], 50.0)),
        load("b2", 10 * number + 5, cpu=10.0, rate=20.0, bundles=dict.fromkeys(BUNDLES[:gone], 1.0)),
    ]


def batches_of(count: int, *, gone_from: int | None = None, gone: int = 0) -> list[list[Event]]:
    """So many rounds; from one of them on, ``gone`` bundles are at b2."""
    return [reports(at, gone=gone if gone_from is not None and at >= gone_from else 0) for at in range(count)]


def played(batches: list[list[Event]], *, identity: Identity = ACT, **pulsar: Any) -> Run:
    return run(batches, settings_of(**HOT | pulsar), identity=identity)


def kinds(found: Run) -> list[list[str]]:
    """Kinds of the findings of each round."""
    return [[each["kind"] for each in summary["findings"]["heaviest"]] for summary in found.summaries]


def ids(count: int, identity: Identity = ACT) -> list[str]:
    """Ids of the actions of the first round, which decides on ``count``."""
    found = [each.id for each in played([reports(0)], identity=identity).outputs if each.kind == "action"]
    assert len(found) == count
    return found


def answer(action_id: str, time_s: float, outcome: Any = "succeeded") -> ActionResult:
    return ActionResult(
        id=f"r/{action_id}/{time_s}", time_ms=round(1000 * time_s), action_id=action_id, outcome=outcome
    )


def test_it_says_so_since_the_first_of_them_and_counts_on() -> None:
    cooling = {"guards": {"bundle_cooldown_s": 30.0}}
    advice = [
        summary["findings"]["heaviest"][0]["advice"]
        for summary in played(batches_of(9), **cooling).summaries
        if summary["findings"]["count"]
    ]
    assert advice[0].startswith("the last 3 actions, since 1970-01-01T00:00:10Z")
    assert advice[-1].startswith("the last 6 actions, since 1970-01-01T00:00:10Z")


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "skipped"])
@pytest.mark.parametrize("time_s", [12.0, 42.0])
def test_any_result_shows_that_somebody_obeys(outcome: str, time_s: float) -> None:
    batches = batches_of(7)
    batches[int(time_s) // 10].append(answer(ids(3)[1], time_s, outcome))
    assert "not-carried-out" not in kinds(played(batches))[-1]


def test_a_result_of_somebody_elses_action_is_no_answer() -> None:
    batches = batches_of(6)
    batches[4].append(answer("another", 42.0))
    assert kinds(played(batches))[-1] == ["not-carried-out"]


def test_what_came_after_the_newest_answer_counts() -> None:
    batches = batches_of(7)
    batches[1].append(answer(ids(3)[0], 12.0))
    found = played(batches)
    assert "not-carried-out" in kinds(found)[-1], "the second, the third and the one of the next round"


def test_moves_that_are_seen_without_results_are_information() -> None:
    found = played(batches_of(5, gone_from=2, gone=3))
    assert kinds(found)[2:] == [["no-results"]] * 3
    assert "the reports show their effect" in found.summaries[-1]["findings"]["heaviest"][0]["advice"]


def test_a_move_that_is_seen_among_the_last_three_is_no_sure_sign() -> None:
    assert kinds(played(batches_of(5, gone_from=2, gone=1)))[-1] == ["no-results"]


def test_fewer_than_three_actions_may_be_an_accident_and_are_information() -> None:
    found = played(batches_of(6), guards={"max_unloads_per_round_count": 2, "max_unloads_per_hour_count": 2})
    assert kinds(found) == [[]] * 3 + [["no-results"]] * 3
    advice = found.summaries[-1]["findings"]["heaviest"][0]["advice"]
    assert advice.startswith("the last 2 actions, since 1970-01-01T00:00:10Z, expired without a result")
    assert advice.endswith("if no executor runs, start one: `trimtab execute pulsar east-1`")


PATIENT = Identity(mode="act", action_ttl_s=300.0)


def test_actions_that_wait_for_three_rounds_are_information_before_they_expire() -> None:
    found = played(batches_of(5), identity=PATIENT)
    assert kinds(found) == [[]] * 3 + [["no-results"]] * 2
    advice = found.summaries[-1]["findings"]["heaviest"][0]["advice"]
    assert advice.startswith("3 actions, decided since 1970-01-01T00:00:10Z, got no result yet: if no")


def test_while_an_executor_answers_actions_of_the_oldest_round_nothing_is_missed() -> None:
    batches = batches_of(5)
    batches[2].append(answer(ids(3, PATIENT)[0], 22.0, "skipped"))
    assert kinds(played(batches, identity=PATIENT)) == [[]] * 5


def test_a_source_that_does_not_report_shows_neither_and_the_next_report_counts() -> None:
    batches = batches_of(6)
    batches[3] = batches[3][1:]
    assert kinds(played(batches)) == [[], [], [], [], ["not-carried-out"], ["not-carried-out"]]


def test_a_dry_run_and_proposals_are_not_meant_to_be_obeyed() -> None:
    for identity in (
        Identity(mode="dry-run", action_ttl_s=TTL_S),
        Identity(mode="act", action_ttl_s=TTL_S, approval="required"),
    ):
        assert kinds(played(batches_of(6), identity=identity)) == [[]] * 6


def test_it_is_over_in_a_dry_run_and_begins_anew_with_mode_act() -> None:
    batches = batches_of(12)
    batches[4].append(overlay(40, mode="dry-run"))
    batches[7].append(overlay(75, mode="act"))
    found = played(batches)
    modes = [summary["mode"] for summary in found.summaries]
    said = [mode for mode, each in zip(modes, kinds(found), strict=True) if "not-carried-out" in each]
    first_again = modes.index("act", modes.index("dry-run"))
    assert "dry-run" not in said
    assert "not-carried-out" not in kinds(found)[first_again]


def test_resume_forgets_it() -> None:
    batches = batches_of(9)
    batches[5].append(overlay(50, resumed_s=50))
    found = played(batches)
    assert kinds(found)[5:] == [["not-carried-out"], [], [], ["no-results"]]
    advice = found.summaries[-1]["findings"]["heaviest"][0]["advice"]
    assert advice.startswith("the last action, decided at 1970-01-01T00:01:00Z, expired without a result")
