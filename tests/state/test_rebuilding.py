"""Memory rebuilt from events and from what was published: where they cover it, decisions are the same as without the rebuild."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from state.controller import Controller
from state.engine.closing import Identity
from state.engine.encoding import decode_header
from state.engine.ledger import Decision
from state.engine.published import Published
from state.engine.store import DictStore
from state.events import ActionResult, Approval, Control, Event
from state.outputs import Output
from state.settings import SettingsSource
from tests.state.traces import CLUSTER, load, overlay, run, settings_of, traces, with_results

EAGER = {"high_hit_count": 1, "low_hit_count": 2, "min_unload_messages_per_s": 1.0}
SETTINGS = settings_of(avg_shedder=EAGER, guards={"bundle_cooldown_s": 40.0}, split={"enabled": True})
ACT = Identity(mode="act")
APPROVED = Identity(mode="act", approval="required")

outcomes = st.lists(st.sampled_from(["succeeded", "failed", "skipped"]), max_size=6)


def rebuilt(
    events: Sequence[Event],
    actions: Sequence[Output],
    *,
    settings: SettingsSource = SETTINGS,
    identity: Identity = ACT,
    unpublished: Sequence[int] = (),
) -> DictStore:
    """Memory made of these events and of what was published."""
    store = DictStore()
    controller = Controller(
        CLUSTER, store, identity=identity, settings=settings, published=Published(actions)
    )
    for event in events:
        controller.step(event)
    controller.end_rebuild(0, unpublished)
    controller.commit()
    return store


def actions_of(outputs: Sequence[Output]) -> list[Output]:
    return [each for each in outputs if each.kind == "action"]


def decisions(store: DictStore) -> list[Decision]:
    header = store.header()
    assert header is not None
    return decode_header(header).ledger.decisions


def without_flag(written: Sequence[tuple[str, str, int, bytes]]) -> list[tuple[str, int, Any]]:
    found = [(subject, place, json.loads(data)) for _, subject, place, data in written]
    return [
        (subject, place, {name: value for name, value in data.items() if name != "rebuilt"})
        for subject, place, data in found
    ]


@given(traces, outcomes, st.integers(0, 100), st.sampled_from([ACT, APPROVED, Identity()]))
def test_wherever_a_stream_is_cut_the_decisions_after_a_rebuild_of_all_of_it_are_those_without(
    trace: list[Event], results: list[str], cut_percent: int, identity: Identity
) -> None:
    events = with_results(trace, SETTINGS, results)
    cut = len(events) * cut_percent // 100
    before = run([events[:cut]], SETTINGS, identity=identity, is_closed=False)
    whole = run([events], SETTINGS, identity=identity)
    store = rebuilt(events[:cut], actions_of(before.outputs), identity=identity)
    has_memory = store.header() is not None
    after = run([events[cut:]], SETTINGS, identity=identity, store=store)
    assert without_flag(after.written) == without_flag(whole.written[len(before.outputs) :])
    said = ["rebuilt" in each for each in after.summaries]
    assert said[:1] in ([], [has_memory])
    assert not any(said[1:])


@given(traces, outcomes, st.integers(0, 100), st.integers(0, 100))
def test_whatever_of_it_is_read_again_what_was_published_last_rests_and_counts(
    trace: list[Event], results: list[str], cut_percent: int, begin_percent: int
) -> None:
    events = with_results(trace, SETTINGS, results)
    cut = len(events) * cut_percent // 100
    begin = cut * begin_percent // 100
    store = DictStore()
    before = run([events[:cut]], SETTINGS, store=store, is_closed=False)
    # A rebuild reads the whole control topic.
    reread = [each for each in events[:begin] if isinstance(each, Control)] + events[begin:cut]
    again = run([reread], SETTINGS, is_closed=False)
    if not again.summaries:
        return
    found = decisions(rebuilt(reread, actions_of(before.outputs)))
    newest_ms = max(each.time_ms for each in again.outputs)
    wanted = [each.id for each in decisions(store) if each.decided_ms <= newest_ms and each.is_resting]
    assert set(wanted) <= {each.id for each in found}
    assert {each.id for each in found} <= {each.id for each in actions_of(before.outputs)}


def pair(time_s: float, *, hot: str = "b1", cold: str = "b2") -> list[Event]:
    """A hot broker beside a cold one."""
    return [
        load(hot, time_s, cpu=90.0, bundles={"t/n/0x00000000_0x40000000": 20.0, "t/n/0x40000000_0x80000000": 80.0}),
        load(cold, time_s, cpu=10.0, bundles={"t/n/0x80000000_0xc0000000": 10.0}),
    ]  # fmt: skip


def rounds_of(count: int) -> list[Event]:
    return [event for number in range(count) for event in pair(10 * number + 1)]


def test_of_a_cut_batch_what_is_out_stands_and_the_rest_was_never_decided() -> None:
    settings = settings_of(avg_shedder=EAGER, rounds={"warmup_rounds": 0})
    events = rounds_of(3)
    first, *others = actions_of(run([events], settings, is_closed=False).outputs)
    assert others == []
    kept = rebuilt(events, [first], settings=settings, unpublished=[0])
    assert [each.id for each in decisions(kept)] == [first.id]
    none = rebuilt(events, [], settings=settings, unpublished=[0])
    assert decisions(none) == []
    after = run([rounds_of(5)[6:]], settings, store=none)
    assert after.summaries[0]["rebuilt"]["unpublished_rounds"] == [0]
    assert "rounds 0 have no published summary" in after.summaries[0]["rebuilt"]["reason"]
    assert [each["bundle"] for each in after.actions] == [json.loads(first.data)["bundle"]]


def test_an_action_of_other_settings_or_another_version_is_remembered_as_it_was_published() -> None:
    settings = settings_of(avg_shedder=EAGER, rounds={"warmup_rounds": 0})
    events = rounds_of(3)
    (first,) = actions_of(run([events], settings, is_closed=False).outputs)
    data = json.loads(first.data) | {"reason": "as an older version says it"}
    older = msgspec.structs.replace(first, id="0" * 32, data=json.dumps(data).encode())
    (found,) = decisions(rebuilt(events, [older], settings=settings))
    assert (found.id, found.bundle, found.source, found.destination) == (
        "0" * 32,
        data["bundle"],
        "b1",
        data["destination_broker"],
    )
    assert found.decided_ms == first.time_ms
    assert found.is_watched
    assert found.is_leaving


def test_what_a_dry_run_decided_is_forgotten_by_a_rebuild_that_acts() -> None:
    settings = settings_of(avg_shedder=EAGER, rounds={"warmup_rounds": 0})
    events = rounds_of(4)
    dry = run([events], settings, identity=Identity(), is_closed=False)
    assert decisions(rebuilt(events, actions_of(dry.outputs)[:1], settings=settings)) == []


def test_a_proposal_that_was_published_can_be_approved_after_a_rebuild() -> None:
    settings = settings_of(avg_shedder=EAGER, rounds={"warmup_rounds": 0})
    events = rounds_of(4)
    (proposal, *_) = actions_of(run([events], settings, identity=APPROVED, is_closed=False).outputs)
    store = rebuilt(events[2:], [proposal], settings=settings, identity=APPROVED)
    answer = Approval(
        id="yes", time_ms=0, proposal_id=proposal.id, verdict="approved", who="ann", why="a test"
    )
    after = run([[answer, *rounds_of(6)[8:]]], settings, identity=APPROVED, store=store)
    assert [each["proposal_id"] for each in after.actions if "proposal_id" in each] == [proposal.id]


def test_a_result_that_comes_after_a_rebuild_ends_the_flight_of_an_action_from_before() -> None:
    settings = settings_of(avg_shedder=EAGER, rounds={"warmup_rounds": 0})
    events = rounds_of(4)
    first, *_ = actions_of(run([events], settings, is_closed=False).outputs)
    store = rebuilt(events[2:], [first], settings=settings)
    result = ActionResult(id="r", time_ms=41_000, action_id=first.id, outcome="failed")
    run([[result, *rounds_of(7)[8:]]], settings, store=store)
    assert [each.result for each in decisions(store) if each.id == first.id] == ["failed"]


def test_a_control_event_of_long_ago_is_in_force_after_a_rebuild() -> None:
    store = rebuilt([overlay(1, paused=True), *rounds_of(5)[6:]], [])
    after = run([rounds_of(7)[10:]], SETTINGS, store=store)
    assert {each["paused"] for each in after.summaries} == {True}
