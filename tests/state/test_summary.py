"""The frame of a round's summary, and the cut to its greatest size."""

from typing import Any

import msgspec
import pytest

from state.closing import obstacle
from state.events import ActionResult, Tick
from state.guard_settings import GuardSettings
from state.ledger import Decision, Ledger
from state.memory import Header, OpenRound
from state.outputs import (
    BrokerLoad,
    Configured,
    ExaminedRow,
    Finding,
    OtherBalancers,
    RateViolation,
    RoundSummary,
    Section,
    ThrottleSummary,
    UnknownNumber,
    canonical,
)
from state.overlay import moment_at
from state.settings import ClusterSettings, PulsarSettings, RoundSettings
from state.summary import (
    MAX_BYTES,
    MAX_REMARK_CHARACTERS,
    MAX_SETTINGS_BYTES,
    SHOWN_CHARACTERS,
    SHOWN_ROWS,
    cut_throttle,
    findings_section,
    fit,
    frame,
)
from tests.state.building import closing, control

TICK = Tick(5, "t", ("b2", "b1"), (("b3", "no answer"),))


def framed(
    *, header: Header | None = None, live: tuple[str, ...] = ("b1", "b2", "b4"), **fields: Any
) -> RoundSummary:
    return frame(
        closing(**fields),
        header or Header(length_ms=60_000),
        policy="avg-shedder",
        outcome="decided",
        reason="why",
        reports_ms={"b2": 450_000, "b1": 441_000},
        live=live,
    )


def test_it_lists_the_settings_that_differ_from_the_defaults_and_what_is_in_flight() -> None:
    assert (framed().settings, framed().in_flight) == ({}, [])
    settings = ClusterSettings(pulsar=PulsarSettings(guards=GuardSettings(bundle_cooldown_s=7)))
    assert framed(settings=settings).settings == {"guards": {"bundle_cooldown_s": 7}}
    assert framed(settings=settings, header=Header(length_ms=10_000, system="kafka")).settings == {}

    ledger = Ledger(
        decisions=[
            decision("a1"),
            decision("a2", expires_ms=480_000),
            decision("a3", result="succeeded"),
            decision("a4", dry_run=True),
            decision("a5", kind="split"),
            decision(""),
        ]
    )
    found = framed(header=Header(length_ms=60_000, ledger=ledger)).in_flight
    assert [(each.id, each.kind, each.target) for each in found] == [
        ("a1", "unload", "t/n/b"),
        ("a5", "split", "t/n/b"),
    ]
    assert found[0].expires_at == "1970-01-01T00:08:00.001Z"


def decision(id_: str, **fields: Any) -> Decision:
    usual: dict[str, Any] = {
        "id": id_,
        "kind": "unload",
        "bundle": "t/n/b",
        "source": "b1",
        "destination": "b2",
        "children": (),
        "decided_ms": 0,
        "expires_ms": 480_001,
        "until_ms": 480_001,
        "dry_run": False,
        "is_watched": True,
        "is_leaving": True,
    }
    return Decision(**usual | fields)


def test_the_settings_of_file_and_control_event_are_shown_each_by_itself_whole_or_not_at_all() -> None:
    brokers = {f"b{number}": {"messages_per_s": 1.0} for number in range(150)}
    for settings in ({}, {"capacity": {"brokers": brokers}}):
        configured = Configured(mode="dry-run", approval="none", settings_digest="d", settings=settings)
        found = fit(framed(configured=configured, control=control(settings={"pulsar": settings})))
        assert found.configured == configured
        assert found.control is not None
        assert found.control.settings == {"pulsar": settings}
    huge = {"excluded_namespaces": ["x" * MAX_SETTINGS_BYTES]}
    found = framed(
        configured=msgspec.structs.replace(configured, settings=huge), control=control(settings=huge)
    )
    assert found.control is not None
    assert found.configured == msgspec.structs.replace(configured, settings=None)
    assert found.control.settings is None


def test_settings_of_each_broker_are_cut_like_lists_of_brokers() -> None:
    brokers = {f"b{number}": {"messages_per_s": 1.0} for number in range(150)}
    capacity = {"brokers": brokers, "messages_per_s": 5.0}
    found = fit(msgspec.structs.replace(framed(), settings={"capacity": capacity, "shedding_policy": "x"}))
    assert found.settings["shedding_policy"] == "x"
    assert found.settings["capacity"]["messages_per_s"] == 5.0
    assert list(found.settings["capacity"]["brokers"]) == list(brokers)[:100]


def test_it_says_which_round_it_is_who_reported_and_who_did_not() -> None:
    found = framed(open_round=OpenRound(tick=TICK))
    assert (found.cluster, found.round, found.gap_rounds, found.system) == ("east-1", 7, 2, "pulsar")
    assert (found.start, found.end) == ("1970-01-01T00:07:00.000Z", "1970-01-01T00:08:00.000Z")
    assert (found.brokers_reporting, found.brokers_reporting_count) == (["b1", "b2"], 2)
    assert (found.brokers_missing, found.brokers_missing_count, found.brokers_live_count) == (["b4"], 1, 3)
    assert (found.brokers_asked, found.brokers_failed) == (["b1", "b2"], {"b3": "no answer"})
    assert (found.brokers_reporting_count, found.oldest_report_age_s) == (2, 39.0)
    assert (found.control, found.failing_since, found.paused) == (None, None, False)


@pytest.mark.parametrize(
    ("fields", "is_paused", "until"),
    [
        ({}, True, None),
        ({"until": moment_at(420_001)}, True, "1970-01-01T00:07:00.001Z"),
        ({"until": moment_at(420_000)}, False, "1970-01-01T00:07:00.000Z"),
        ({"until": moment_at(420_001), "paused": False}, False, None),
    ],
)
def test_a_pause_holds_the_rounds_that_begin_before_its_end(
    fields: dict[str, Any], until: str | None, *, is_paused: bool
) -> None:
    found = framed(control=control(**fields))
    assert found.paused is is_paused
    assert found.control is not None
    assert found.control.until == until
    assert ("until" in canonical(found.control).decode()) is (until is not None)


@pytest.mark.parametrize(
    ("fields", "skipped_ms", "is_held", "is_named"),
    [
        ({"until": moment_at(420_000)}, 430_000, True, True),
        ({"until": moment_at(420_000)}, 420_000, True, True),
        ({"until": moment_at(420_000)}, 419_999, True, False),
        ({"until": moment_at(420_000)}, 430_000, False, False),
        ({"until": moment_at(420_000), "paused": False}, 430_000, True, False),
        ({"until": moment_at(430_000)}, 430_000, True, False),
        ({}, 430_000, True, False),
    ],
)
def test_an_action_that_is_skipped_as_paused_after_the_pauses_end_is_a_finding(
    fields: dict[str, Any], skipped_ms: int, *, is_held: bool, is_named: bool
) -> None:
    results = [ActionResult(skipped_ms, "r", "a1", "skipped", is_held)]
    found = framed(control=control(**fields), open_round=OpenRound(results=results)).findings
    assert [(each.kind, each.subject) for each in found.heaviest] == [
        ("skipped-after-pause", "a1")
    ] * is_named
    assert all("update the executor" in each.advice for each in found.heaviest)


def finding(number: int) -> Finding:
    return Finding(kind=f"kind-{number % 2}", subject=str(number), broker="", bytes_per_s=None, advice="")  # type: ignore[arg-type]


def test_the_section_of_findings_counts_all_and_shows_the_first_hundred() -> None:
    found = findings_section([finding(number) for number in range(101)])
    assert (found.count, found.outcomes) == (101, {"kind-0": 51, "kind-1": 50})
    assert [each.subject for each in found.heaviest] == [str(number) for number in range(100)]


def test_without_a_tick_nobody_was_asked() -> None:
    found = framed()
    assert (found.brokers_asked, found.brokers_failed) == ([], {})


def test_the_control_event_in_force_is_named_and_long_remarks_are_cut() -> None:
    long = "x" * (MAX_REMARK_CHARACTERS + 1)
    found = framed(control=control(who=long, why="w", resumed_at=moment_at(2_000)), settings_problem=long)
    assert found.paused
    assert found.control is not None
    assert (found.control.id, found.control.why, found.control.time) == ("c", "w", "1970-01-01T00:00:01.000Z")
    assert found.control.who == found.control.problem == long[:-1]
    assert found.control.resumed_at == "1970-01-01T00:00:02.000Z"


def test_a_control_event_without_a_problem_or_a_resumption_says_neither() -> None:
    found = framed(control=control())
    assert found.control is not None
    assert (found.control.problem, found.control.resumed_at) == (None, None)


def test_a_cluster_held_after_errors_is_failing_for_both_kinds() -> None:
    header = Header(length_ms=60_000, error_held_since_ms=60_000)
    found = framed(header=header)
    assert found.failing_since == found.splits_failing_since == "1970-01-01T00:01:00.000Z"
    assert (
        framed(
            header=Header(length_ms=60_000, system="kafka", error_held_since_ms=60_000)
        ).splits_failing_since
        is None
    )


@pytest.mark.parametrize(
    ("rounds_since_start", "reporting_count", "live_count", "expected"),
    [
        (0, 3, 3, ("warm-up", "round 1 of the 2 that only look")),
        (1, 3, 3, ("warm-up", "round 2 of the 2 that only look")),
        (2, 3, 3, None),
        (2, 2, 4, None),
        (2, 1, 4, ("no-quorum", "1 of 4 live brokers reported, 0.5 of them are needed")),
        (2, 0, 0, None),
        (0, 0, 4, ("warm-up", "round 1 of the 2 that only look")),
    ],
)
def test_no_policy_runs_in_the_warm_up_nor_without_a_quorum(
    rounds_since_start: int, reporting_count: int, live_count: int, expected: tuple[str, str] | None
) -> None:
    header = Header(length_ms=60_000, rounds_since_start=rounds_since_start)
    reporting = [f"b{number}" for number in range(reporting_count)]
    rounds = RoundSettings(warmup_rounds=2, quorum_ratio=0.5)
    assert obstacle(header, rounds, reporting, live_count=live_count) == expected


def broker(name: str) -> BrokerLoad:
    return BrokerLoad(
        broker=name,
        usage_points=1.0,
        resources={},
        messages_per_s=1.0,
        bytes_per_s=1.0,
        bundles_count=1,
        excluded=False,
        group=None,
    )


def examined(name: str) -> ExaminedRow:
    return ExaminedRow(
        high_broker=name, low_broker=None, group="", outcome="calm", detail="calm", trigger=None, evidence={}
    )


def test_of_each_table_the_first_hundred_rows_are_shown_and_the_counts_stay() -> None:
    names = [f"b{number:03}" for number in range(SHOWN_ROWS + 1)]
    whole = msgspec.structs.replace(
        framed(live=tuple(names)),
        brokers_reporting=names,
        brokers_excluded=names,
        brokers_asked=names,
        brokers_failed=dict.fromkeys(names, "x"),
        other_balancers=OtherBalancers(
            shedding_brokers=names, splitting_brokers=names, unknown_brokers=names
        ),
        brokers=[broker(name) for name in names],
        examined=Section(count=101, outcomes={"calm": 101}, heaviest=[examined(name) for name in names]),
        actions=names,
    )
    found = fit(whole)
    assert found.brokers_reporting == found.brokers_excluded == found.brokers_asked == names[:-1]
    assert found.actions == list(found.brokers_failed) == names[:-1]
    assert [row.broker for row in found.brokers] == names[:-1]
    assert (found.examined.count, len(found.examined.heaviest)) == (101, SHOWN_ROWS)
    assert found.other_balancers is not None
    assert found.other_balancers.shedding_brokers == found.other_balancers.splitting_brokers == names[:-1]
    assert found.other_balancers.unknown_brokers == names[:-1]
    assert found.brokers_missing == sorted(set(names) - {"b1", "b2"})[:SHOWN_ROWS]
    assert found.brokers_missing_count == 101


@pytest.mark.parametrize("table", ["examined", "candidates", "splits", "judged", "findings"])
def test_of_each_section_the_first_hundred_rows_are_shown_and_the_count_stays(table: str) -> None:
    rows = [examined(f"b{number:03}") for number in range(SHOWN_ROWS + 1)]
    section = Section(count=len(rows), outcomes={"calm": len(rows)}, heaviest=rows)
    found = getattr(fit(msgspec.structs.replace(framed(), **{table: section})), table)
    assert found == Section(count=len(rows), outcomes={"calm": len(rows)}, heaviest=rows[:-1])


def test_tables_are_halved_until_the_summary_fits() -> None:
    names = [f"{number:02}" + "x" * 5_000 for number in range(SHOWN_ROWS)]
    found = fit(msgspec.structs.replace(framed(), brokers_excluded=names))
    assert found.brokers_excluded == names[:50]
    assert len(canonical(found)) <= MAX_BYTES < 51 * 5_000 + 10_000


def test_a_name_that_is_too_long_by_itself_leaves_empty_tables() -> None:
    found = fit(msgspec.structs.replace(framed(), actions=["x" * MAX_BYTES]))
    assert found.actions == []


def test_a_summary_fits_however_many_names_the_settings_have() -> None:
    names = [f"tenant/{number:060}" for number in range(6_000)]
    settings = {"guards": {"excluded_namespaces": names, "bundle_cooldown_s": 60.0}}
    found = fit(msgspec.structs.replace(framed(), settings=settings))
    assert len(canonical(found)) <= MAX_BYTES
    assert found.settings["guards"]["excluded_namespaces"] == names[: SHOWN_ROWS // 2]
    assert found.settings["guards"]["bundle_cooldown_s"] == 60.0


def test_lists_of_settings_stay_whole_in_a_summary_that_fits() -> None:
    names = [f"t/{number}" for number in range(2 * SHOWN_ROWS)]
    whole = msgspec.structs.replace(framed(), settings={"guards": {"excluded_namespaces": names}})
    assert fit(whole).settings == whole.settings


def throttle(**fields: Any) -> ThrottleSummary:
    usual: dict[str, Any] = {
        "outcome": "kept",
        "trigger": None,
        "as_of": "",
        "partitions_moving_count": 1,
        "fingerprint": None,
        "bytes_left": None,
        "feasible": None,
        "eta_s": None,
        "eta_basis": None,
        "eta_predicted_s": None,
        "eta_observed_low_s": None,
        "eta_observed_high_s": None,
        "bottleneck": None,
        "late": False,
        "broken_count": None,
        "held_over_count": 0,
        "unknown_count": 0,
        "failures_count": 0,
        "retry_at": None,
        "violations": [],
        "unknown": [],
    }
    tables = {name: {} for name in ThrottleSummary.__struct_fields__ if name not in usual}
    return ThrottleSummary(**usual | tables | fields)


def test_rates_are_shown_ten_times_as_many_and_lists_of_others_are_cut_in_length() -> None:
    roles = {f"leader:{broker}": broker for broker in range(21)}
    lists = {"a": "x" * SHOWN_CHARACTERS, "b": "y" * (SHOWN_CHARACTERS + 1), "c": "z"}
    violation = RateViolation(role="leader:1", rate_bytes_per_s=1, min_bytes_per_s=2)
    unknown = UnknownNumber(partition="t-0", lacks=[], why="")
    found = cut_throttle(
        throttle(
            rates_bytes_per_s=roles,
            min_bytes_per_s=roles,
            others_rates_bytes_per_s=roles,
            changed_rates_bytes_per_s=roles,
            others_leader_throttled_replicas=lists,
            others_follower_throttled_replicas=lists,
            lost_leader_throttled_replicas=lists,
            lost_follower_throttled_replicas=lists,
            violations=[violation] * 3,
            unknown=[unknown] * 3,
            unknown_count=3,
            under_min_isr=["t-0", "t-1", "t-2"],
            recovering=dict.fromkeys("123"),
        ),
        2,
    )
    assert (found.under_min_isr, list(found.recovering)) == (["t-0", "t-1"], ["1", "2"])
    assert len(found.rates_bytes_per_s) == len(found.min_bytes_per_s) == 20
    assert found.others_rates_bytes_per_s == found.changed_rates_bytes_per_s == {"leader:0": 0, "leader:1": 1}
    assert found.others_leader_throttled_replicas == found.others_follower_throttled_replicas
    assert found.lost_leader_throttled_replicas == found.lost_follower_throttled_replicas
    assert (
        found.others_leader_throttled_replicas
        == found.lost_leader_throttled_replicas
        == {"a": "x" * SHOWN_CHARACTERS, "b": "y" * SHOWN_CHARACTERS + "…"}
    )
    assert (len(found.violations), len(found.unknown), found.unknown_count) == (2, 2, 3)
