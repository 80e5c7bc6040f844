"""Limits for any record, whatever is in it: memory, passes over the state, and the bytes of what is written about it."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from policies.splitting.criteria import MOST_BOUNDARIES
from state.closing import Identity
from state.controller import Controller
from state.events import MAX_DETAIL_CHARACTERS, Control, Event
from state.ledger import Decision
from state.store import DictStore
from streaming.contract.decode import decode
from tests.state.traces import CLUSTER, KAFKA, kafka_trace, load, settings_of, statistics
from tests.streaming import events
from tests.streaming.events import TOPIC_STATS, event, facts, report, traffic
from tests.streaming.test_poison import Desk, overlay


def reason_and_detail(value: bytes) -> tuple[str, str]:
    found: Any = decode(value)[1]
    return found.reason, found.detail


def peak_bytes(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("opening", [(b'{"aaaaaaaaaa":', b"}"), (b"[", b"]")], ids=["objects", "arrays"])
def test_diagnosing_a_refused_record_takes_memory_in_proportion_to_its_size(opening: tuple[bytes, bytes]):
    depth = 900
    wide = b",".join([opening[0] * depth + b"1" + opening[1] * depth] * 50)
    value = report(data={"bundles": [{}], "news": "HERE"}).replace(b'"HERE"', b"[" + wide + b"]")
    assert reason_and_detail(value)[0] == "bad-data"
    assert peak_bytes(lambda: decode(value)) < 100 * len(value)


def test_the_path_of_a_number_that_is_none_is_still_named():
    value = report(data={"news": {"a": [1, {"b": "HERE"}]}}).replace(b'"HERE"', b"NaN")
    assert reason_and_detail(value) == ("not-finite", "data.news.a[1].b is nan, expected a finite number")


@pytest.mark.parametrize(
    "value",
    [
        overlay("pulsar", {f"unknown_{number}": 1 for number in range(20_000)}),
        overlay("pulsar.guards", {"x" * 1_000_000: 1}),
        overlay("pulsar.guards.quiet_hours", ["x" * 1_000_000]),
    ],
    ids=["20,000 unknown keys", "a key of a megabyte", "a value of a megabyte"],
)
def test_the_detail_of_a_refusal_is_short_whatever_the_record(value: bytes):
    ((reason, detail),) = Desk().take(value).refusals
    assert reason == "bad-settings"
    assert len(detail) <= MAX_DETAIL_CHARACTERS


LONG = "x" * 4_000_000


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        (report(LONG, id="x"), "bad-data", "subject is 'xxx"),
        (report(id=LONG), "not-cloudevent", "id is 'xxx"),
        (report(bundles={f"t/{LONG}/0x0_0x1": traffic(1)}), "bad-bundle-name", "is no bundle"),
        (event(TOPIC_STATS, data={"t/n/0x0_0x1": {LONG: traffic(1)}}), "bad-data", "at most 2048 are taken"),
        (facts(time_s=1, isolation={LONG: (["t/n"], ["b1"])}), "bad-data", "at most 2048 are taken"),
        (facts(time_s=1, restricted=[LONG]), "bad-data", "broker 'xxx"),
        (facts(time_s=1, anti_affinity={LONG: ["t/n"]}), "bad-data", "anti-affinity group 'xxx"),
        (facts(time_s=1, own_topics={LONG: {}}), "bad-data", "bundle 'xxx"),
    ],
    ids=["broker", "id", "bundle", "topic", "isolation policy", "configured broker", "group", "own bundle"],
)
def test_a_name_that_would_make_actions_or_summaries_too_large_is_refused_by_name(
    value: bytes, reason: str, message: str
):
    found = reason_and_detail(value)
    assert found[0] == reason
    assert message in found[1]


def test_what_an_operator_writes_is_kept_as_far_as_a_summary_shows_it():
    found = decode(events.control(time_s=1, data={"who": LONG, "why": LONG}))[1]
    assert isinstance(found, Control)
    assert (len(found.who), len(found.why)) == (500, 500)


@pytest.mark.parametrize("pattern", ["(a|aa)+$", "(a+)+", "(.*a){12}"])
def test_the_pattern_of_an_isolation_policy_is_matched_in_linear_time(pattern: str):
    """A backtracking engine would practically never finish the first two."""
    names = [f"t/{'a' * 2000}!" for _ in range(3)]
    bundles = {f"{name}/0x00000000_0xffffffff": traffic(5) for name in names}
    desk = Desk().take(
        facts(time_s=5, isolation={"red": ([f"t/{pattern}"], ["b1"])}),
        *(report(time_s=at, bundles=bundles) for at in (6, 16, 26)),
    )
    assert (desk.refusals, [each["outcome"] for each in desk.summaries]) == ([], ["decided"] * 2)


@pytest.mark.parametrize("pattern", ["t/(?=x)", r"(t)/\1", "a{100000}", "(" * 100_000, "(a{1000}){1000}"])
def test_a_pattern_outside_the_linear_language_is_refused_when_it_comes(pattern: str):
    reason, detail = reason_and_detail(facts(time_s=1, isolation={"red": ([pattern], ["b1"])}))
    assert reason == "bad-data"
    assert "isolation policy 'red' has the regular expression" in detail


class Counted(str):
    """An action id that counts how often it is compared."""

    compared = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_results_of_unknown_actions_are_looked_up_rather_than_searched_for():
    """2,000 of them, each sent twice, beside 60 actions: one pass over the actions and one over the results."""
    controller = Controller(CLUSTER, DictStore(), identity=Identity(), settings=settings_of())
    controller.step(load("b1", 5))
    header = controller._header
    Counted.compared = 0
    header.ledger.decisions = [_decision(Counted(f"a{at}"), f"b{at}") for at in range(60)]
    for at in range(2000):
        controller.step(events_result(f"r{at}", at_ms=5000 + at % 1000))
        controller.step(events_result(f"r{at}", at_ms=5000 + at % 1000))
    results = header.rounds[0].results
    header.ledger.apply_results((each.action_id, each.outcome, each.time_ms) for each in results)
    assert len(header.rounds[0].results) == 2000
    assert Counted.compared < 1000


def _decision(id_: str, bundle: str) -> Decision:
    return Decision(
        id=id_,
        kind="unload",
        bundle=bundle,
        source="b1",
        destination="b2",
        children=[],
        decided_ms=1,
        expires_ms=10**9,
        until_ms=10**9,
        dry_run=False,
        is_watched=True,
        is_leaving=True,
    )


def events_result(action_id: str, *, at_ms: int) -> Event:
    found = decode(events.result(action_id, "failed", time_s=at_ms / 1000))[1]
    assert isinstance(found, Event)
    return found


def test_a_split_has_no_more_boundaries_than_fit_in_an_action():
    count, bundle = 12_000, "t/a/0x00000000_0xffffffff"
    eager = {"enabled": True, "hit_count": 0, "max_namespace_bundles_count": 0, "average_samples": 1}
    source = settings_of(rounds={"warmup_rounds": 0}, split=eager)
    controller = Controller(CLUSTER, DictStore(), identity=Identity(mode="act"), settings=source)
    topics = {f"persistent://t/a/{at}": 40_000.0 for at in range(count)}
    batch = [load("b1", 5, bundles={bundle: 1e6}, topics_count=count), statistics("b1", 5, {bundle: topics})]
    outputs = [each for event_ in (*batch, load("b1", 16)) for each in controller.step(event_).outputs]
    (split,) = (each for each in outputs if each.kind == "action")
    assert count / 4 < len(json.loads(split.data)["boundaries"]) <= MOST_BOUNDARIES
    assert len(split.data) < Identity().max_action_bytes


def test_a_throttle_that_the_output_would_refuse_is_held_by_name():
    store = DictStore()
    small = Controller(CLUSTER, store, identity=Identity(mode="act", max_action_bytes=200), settings=KAFKA)
    outputs = [each for event_ in kafka_trace(5) for each in small.step(event_).outputs]
    assert {each.kind for each in outputs} == {"round"}
    reasons = [json.loads(each.data)["reason"] for each in outputs]
    assert any("first-throttle is held, too-large: the action takes " in each for each in reasons)
