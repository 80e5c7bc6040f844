"""What the ledger answers about earlier decisions: one table a question."""

from typing import Any

import pytest

from policies.shedding.view import Traffic
from state.guard_settings import GuardSettings
from state.ledger import HOUR_MS, Decision, Verdict, end_watch
from state.settings import PulsarSettings
from tests.state.building import decided_split as split
from tests.state.building import decision, ledger_of

A, B, LEFT, RIGHT = "t/n/0x0_0x4", "t/n/0x4_0x8", "t/n/0x0_0x2", "t/n/0x2_0x4"
DECIDED_MS, EXPIRES_MS, UNTIL_MS = 1000, 181_000, 361_000
COOLDOWN_MS = 1_800_000
PULSAR = PulsarSettings()


@pytest.mark.parametrize(
    ("end_ms", "in_flight", "cooling"),
    [
        (DECIDED_MS, {A}, {A}),
        (EXPIRES_MS - 1, {A}, {A}),
        (EXPIRES_MS, set(), {A}),
        (DECIDED_MS + COOLDOWN_MS - 1, set(), {A}),
        (DECIDED_MS + COOLDOWN_MS, set(), set()),
    ],
)
def test_a_bundle_is_in_flight_until_its_action_expires_and_rests_for_the_cooldown(
    end_ms: int, in_flight: set[str], cooling: set[str]
) -> None:
    found = ledger_of(decision()).resting("unload", PULSAR, end_ms=end_ms)
    assert (found.in_flight, found.cooling) == (in_flight, cooling)


@pytest.mark.parametrize(
    ("results", "in_flight", "cooling"),
    [
        (["succeeded"], set(), {A}),
        (["skipped"], set(), {A}),
        (["failed"], set(), set()),
        (["failed", "succeeded"], set(), set()),
        (["succeeded", "failed"], set(), set()),
    ],
    ids=str,
)
def test_a_result_ends_the_flight_and_a_failed_one_the_cooldown_for_good(
    results: Any, in_flight: set[str], cooling: set[str]
) -> None:
    ledger = ledger_of(decision())
    ledger.apply_results(("a", outcome, 2000 + at) for at, outcome in enumerate(results))
    found = ledger.resting("unload", PULSAR, end_ms=10_000)
    assert (found.in_flight, found.cooling) == (in_flight, cooling)


@pytest.mark.parametrize(
    ("results", "end_ms", "unconfirmed"),
    [
        ([], EXPIRES_MS - 1, set()),
        ([], EXPIRES_MS, {A}),
        (["skipped"], 10_000, {A}),
        (["succeeded"], EXPIRES_MS, set()),
        (["failed"], EXPIRES_MS, set()),
    ],
    ids=str,
)
def test_a_bundle_that_rests_after_a_skipped_or_unanswered_action_is_not_said_to_have_moved(
    results: Any, end_ms: int, unconfirmed: set[str]
) -> None:
    ledger = ledger_of(decision())
    ledger.apply_results(("a", outcome, 2000 + at) for at, outcome in enumerate(results))
    assert ledger.resting("unload", PULSAR, end_ms=end_ms).unconfirmed == unconfirmed


def test_a_dry_run_waits_for_no_result() -> None:
    assert ledger_of(decision(dry_run=True)).resting("unload", PULSAR, end_ms=EXPIRES_MS).unconfirmed == set()


def test_only_the_newest_decision_about_a_bundle_counts() -> None:
    ledger = ledger_of(decision("a"), decision("b", decided_ms=2000))
    ledger.apply_results([("b", "failed", 3000)])
    assert ledger.resting("unload", PULSAR, end_ms=10_000).cooling == frozenset()
    assert not ledger.unloads_on_their_way(), "the first was replaced, the second failed"


def test_the_children_of_a_split_rest_with_it_and_are_not_in_flight() -> None:
    found = ledger_of(split()).resting("split", PULSAR, end_ms=10_000)
    assert (found.in_flight, found.cooling) == ({A}, {A, LEFT, RIGHT})
    assert ledger_of(split()).resting("unload", PULSAR, end_ms=10_000).cooling == frozenset()


def test_without_a_cooldown_nothing_rests_and_nothing_is_in_flight() -> None:
    off = PulsarSettings(guards=GuardSettings(bundle_cooldown_s=0))
    found = ledger_of(decision()).resting("unload", off, end_ms=10_000)
    assert (found.in_flight, found.cooling) == (frozenset(), frozenset())


@pytest.mark.parametrize(
    ("decided_ms", "end_ms", "count"), [(0, HOUR_MS - 1, 2), (0, HOUR_MS, 1), (1, HOUR_MS, 2)]
)
def test_the_last_hour_counts_unloads_of_rounds_that_ended_less_than_an_hour_ago(
    decided_ms: int, end_ms: int, count: int
) -> None:
    ledger = ledger_of(decision("a", decided_ms=decided_ms), decision("b", B, decided_ms=100), split())
    assert len(ledger.unloads_of_last_hour(is_drain=False, end_ms=end_ms)) == count


def test_children_are_expected_until_nothing_will_be_heard_of_the_split() -> None:
    ledger = ledger_of(split())
    assert list(ledger.expected_children(end_ms=UNTIL_MS - 1)) == [(A, split().children)]
    assert list(ledger.expected_children(end_ms=UNTIL_MS)) == []


def test_brokers_are_unsettled_while_their_unload_runs_and_in_the_round_that_first_shows_it() -> None:
    ledger = ledger_of(decision())
    assert ledger.unsettled_brokers(end_ms=10_000) == {"b1", "b2"}
    assert ledger.unsettled_brokers(end_ms=EXPIRES_MS) == frozenset(), "it expired without a result"
    ledger.apply_results([("a", "succeeded", 9000)])
    assert ledger.unsettled_brokers(end_ms=EXPIRES_MS) == {"b1", "b2"}, "it was carried out and does not show"
    end_watch(ledger.decisions[0], Verdict("effective", 200_000, "b2", 0))
    assert ledger.unsettled_brokers(end_ms=200_000) == {"b1", "b2"}
    assert ledger.unsettled_brokers(end_ms=260_000) == frozenset()


@pytest.mark.parametrize(
    "kind", [decision(dry_run=True, is_watched=False), split()], ids=["dry-run", "split"]
)
def test_a_dry_run_and_a_split_leave_no_broker_unsettled(kind: Decision) -> None:
    assert ledger_of(kind).unsettled_brokers(end_ms=10_000) == frozenset()


def test_of_each_kind_the_last_ten_verdicts_count() -> None:
    ledger = ledger_of(*(decision(str(at), f"{A}{at}", decided_ms=at) for at in range(12)), split())
    for at, each in enumerate(ledger.decisions):
        end_watch(each, Verdict("failed" if at == 0 else "effective", 1000 * at, "b1", 0))
    assert [each.id for each in ledger.judged("unload")] == [str(at) for at in range(2, 12)]
    assert [each.id for each in ledger.judged("split")] == ["s"]
    assert ledger.outcome_counts() == {"effective": 10}


@pytest.mark.parametrize(
    ("failed_count", "sources", "outcomes", "failures_count"),
    [
        pytest.param(60, ["b1"], {"failed": 1}, 1, id="a plan that fails"),
        pytest.param(30, ["b1"], {"failed": 1}, 1, id="half of a plan"),
        pytest.param(29, ["b1"], {"effective": 1}, 0, id="less than half"),
        pytest.param(60, ["b1", "b3", "b4"], {"failed": 3}, 1, id="from several brokers to one"),
    ],
)
def test_the_moves_of_a_plan_to_one_broker_are_one_success_or_one_failure(
    failed_count: int, sources: list[str], outcomes: dict[str, int], failures_count: int
) -> None:
    ledger = ledger_of(
        *(
            decision(str(at), f"{A}{at}", source=sources[at % len(sources)], is_leaving=False)
            for at in range(60)
        )
    )
    for at, each in enumerate(ledger.decisions):
        end_watch(each, Verdict("failed" if at < failed_count else "effective", 1000, "b1", 0))
    assert ledger.outcome_counts() == outcomes
    assert ledger.failures_count("unload") == failures_count
    ledger.forget_old(PULSAR, end_ms=10 * HOUR_MS)
    assert len(ledger.decisions) == len(sources), "one that stands for all is kept"
    assert ledger.failures_count("unload") == failures_count


def test_plans_that_fail_one_after_the_other_add_up_however_many_brokers_give() -> None:
    plans = [
        decision(f"{at}{source}", f"{A}{at}{source}", decided_ms=at, source=f"s{source}")
        for at in range(6)
        for source in range(12)
    ]
    ledger = ledger_of(*plans)
    for each in ledger.decisions:
        end_watch(each, Verdict("failed", each.decided_ms, "b1", 0))
    assert ledger.failures_count("unload") == 6


def test_a_person_who_resumes_makes_failures_and_what_was_decided_before_count_no_more() -> None:
    ledger = ledger_of(decision("a"), decision("b", B, decided_ms=5000))
    ledger.apply_results([("a", "failed", 2000)])
    ledger.failing_since_ms["unload"] = 3000
    for _ in range(2):
        ledger.resume(4000)
    assert ledger.judged() == []
    assert ledger.failing_since_ms == {}
    assert [each.is_watched for each in ledger.decisions] == [False, True]


def test_a_dry_run_is_forgotten_as_a_whole() -> None:
    ledger = ledger_of(decision("a", dry_run=True), decision("b", B))
    ledger.forget_dry_run()
    assert [each.id for each in ledger.decisions] == ["b"]


def test_what_no_question_needs_is_dropped_and_a_cooldown_that_is_over_stays_over() -> None:
    short = PulsarSettings(guards=GuardSettings(bundle_cooldown_s=10))
    ledger = ledger_of(decision(is_watched=False, is_leaving=False))
    ledger.forget_old(short, end_ms=EXPIRES_MS)
    assert len(ledger.decisions) == 1, "the hour's budget needs it"
    assert ledger.resting("unload", PULSAR, end_ms=EXPIRES_MS).cooling == frozenset()
    ledger.forget_old(short, end_ms=DECIDED_MS + HOUR_MS)
    assert ledger.decisions == []


@pytest.mark.parametrize(("end_ms", "rests"), [(7_200_000 + 999, True), (7_200_000 + 1000, False)])
def test_a_bundle_without_effect_is_left_alone_for_its_rest(end_ms: int, *, rests: bool) -> None:
    ledger = ledger_of(decision())
    end_watch(ledger.decisions[0], Verdict("ineffective", 1000, "b1", 3))
    assert (A in ledger.ineffective(7200.0, end_ms=end_ms)) is rests
    ledger.forget_old(PULSAR, end_ms=end_ms)
    assert len(ledger.decisions) == 1, "one of the last ten that were judged"


def unload(id_: str, source: str, destination: str | None, rate: float, **fields: Any) -> Decision:
    known = {"traffic": Traffic(rate, 100 * rate), "result": "succeeded"}
    return decision(id_, source=source, destination=destination, **known | fields)


@pytest.mark.parametrize(
    ("others", "source", "destination"),
    [
        ([], 70.0, 50.0),
        ([unload("b", "b1", "b3", 10.0)], 60.0, 50.0),
        ([unload("b", "b3", "b1", 15.0, decided_ms=DECIDED_MS + 1)], 85.0, 50.0),
        ([unload("b", "b2", None, 5.0, decided_ms=DECIDED_MS + 1)], 70.0, 45.0),
        ([unload("b", "b1", "b3", 90.0)], 0.0, 50.0),
        ([unload("b", "b1", "b3", 10.0, decided_ms=DECIDED_MS - 1)], 70.0, 50.0),
        ([unload("b", "b1", "b3", 10.0, result="failed")], 70.0, 50.0),
        ([unload("b", "b1", "b3", 10.0, result=None)], 70.0, 50.0),
        ([unload("b", "b1", "b3", 10.0, dry_run=True)], 70.0, 50.0),
        ([unload("b", "b1", "b3", 10.0, traffic=None)], 70.0, 50.0),
    ],
    ids=[
        "alone",
        "another of the same round",
        "a later one brings load",
        "a later one to a broker of Pulsar's choice",
        "never below nothing",
        "an earlier one is in the load of then",
        "a failed one moved nothing",
        "one on its way moved nothing yet",
        "a dry-run moved nothing",
        "one of an older trimtab tells no load",
    ],
)
def test_brokers_should_have_the_load_of_then_moved_by_what_was_carried_out_since(
    others: list[Decision], source: float, destination: float
) -> None:
    before = {"source": Traffic(100.0, 10_000.0), "destination": Traffic(20.0, 2_000.0)}
    judged = unload("a", "b1", "b2", 30.0, before=before)
    found = ledger_of(judged, *others).expected_traffic(judged)
    assert found == {
        "source": Traffic(source, 100 * source),
        "destination": Traffic(destination, 100 * destination),
    }


def test_a_verdict_is_listed_once() -> None:
    first, second = decision("a"), decision("b", bundle=B)
    ledger = ledger_of(first, second)
    assert ledger.list_verdicts() == []
    end_watch(second, Verdict("effective", 2000, "b2", 0))
    assert ledger.list_verdicts() == [second]
    end_watch(first, Verdict("failed", 1500, "b1", 0))
    assert ledger.list_verdicts() == [first]
    assert ledger.list_verdicts() == []


def landed(decided_s: int, owner: str, destination: str | None = "b2", **fields: Any) -> Decision:
    """An unload from b1 that was decided then and judged half a minute later, when ``owner`` had its bundle."""
    found = decision(f"{decided_s}/{owner}", decided_ms=1000 * decided_s, destination=destination, **fields)
    end_watch(found, Verdict("effective", 1000 * decided_s + 30_000, owner, 0))
    return found


@pytest.mark.parametrize(
    ("decisions", "unreached"),
    [
        pytest.param([landed(at, "b3") for at in (60, 120)], set(), id="twice"),
        pytest.param([landed(at, "b3") for at in (60, 120, 180)], {"b2"}, id="three rounds in a row"),
        pytest.param([landed(60, "b3") for _ in range(9)], set(), id="nine bundles of one round"),
        pytest.param(
            [landed(at, "b3") for at in (60, 120, 180)] + [landed(240, "b2")], set(), id="then it went well"
        ),
        pytest.param(
            [landed(at, owner) for at in (60, 120, 180) for owner in ("b3", "b3", "b2")],
            {"b2"},
            id="most of each round",
        ),
        pytest.param(
            [landed(at, owner) for at in (60, 120, 180) for owner in ("b3", "b2")],
            set(),
            id="half of each round",
        ),
        pytest.param([landed(at, "") for at in (60, 120, 180)], set(), id="nobody has them yet"),
        pytest.param([landed(at, "b3", None) for at in (60, 120, 180)], set(), id="Pulsar chose"),
        pytest.param(
            [landed(60, "b3"), landed(120, "b3", "b4"), landed(180, "b3")],
            set(),
            id="each destination by itself",
        ),
    ],
)
def test_a_broker_is_unreached_after_three_rounds_whose_unloads_to_it_landed_elsewhere(
    decisions: list[Decision], unreached: set[str]
) -> None:
    assert ledger_of(*decisions).unreached_brokers(end_ms=300_000) == unreached


def test_an_unreached_broker_is_tried_again_when_the_first_of_these_rounds_is_an_hour_old() -> None:
    ledger = ledger_of(*[landed(at, "b3") for at in (60, 120, 180)])
    assert ledger.unreached_brokers(end_ms=60_000 + HOUR_MS - 1) == {"b2"}
    assert ledger.unreached_brokers(end_ms=60_000 + HOUR_MS) == set()
    ledger.resume(250_000)
    assert ledger.unreached_brokers(end_ms=300_000) == set()
