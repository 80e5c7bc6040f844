"""Maintenance and drains as operators ask for them: carried on by every other change, ended by name, refused on Kafka."""

from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest

from state.outputs import (
    Configured,
    DrainRow,
    Finding,
    LeftRow,
    MaintenanceRow,
    MaintenanceSummary,
    RoundSummary,
    Section,
)
from state.outputs.actions import ROUND_TYPE
from state.overlay import ControlData, MaintenanceWindow
from streaming.cli import published
from streaming.cli.control import Edit, Planned, plan
from streaming.cli.maintenance import (
    begin_drain,
    begin_maintenance,
    brokers_of,
    end_maintenance,
    follow_drains,
    is_dry_run,
    is_stuck,
    is_without_receiver,
    progress_lines,
)
from streaming.cli.operate import configured_edit, mode_edit, pause_edit, resume_edit, settings_edit
from streaming.cli.request import KnownCluster, change_text, overlay_text
from streaming.cli.summaries import drain_line, left_lines, maintenance_lines, own_lines
from streaming.process.exits import NotAcknowledged, WrongUse
from streaming.settings import Settings
from tests.streaming.controlling import ASKED, NOW, NOW_MS, data_of, planned, stands
from tests.streaming.controlling import SETTINGS as SOURCE
from tests.streaming.summaries import ROUND, section
from tests.streaming.topics import Topic

HOUR = timedelta(hours=1)
SINCE = "2026-11-25T05:00:00.000Z"
WINDOW = MaintenanceWindow(since=NOW, **ASKED)
DRAIN = begin_drain(["b3"], WINDOW)
MAINTENANCE = begin_maintenance(["b1"], ["t/n"], msgspec.structs.replace(WINDOW, until=NOW + HOUR))
SPELL = {"since": "2023-11-14T22:13:20Z", "who": "maria", "why": "the sale"}
ENDING = SPELL | {"until": "2023-11-14T23:13:20Z"}
FIELDS = ("maintenance_brokers", "maintenance_namespaces", "drained_brokers")


def maintenance_of(event: Planned) -> dict[str, object]:
    return {name: each for name, each in data_of(event).items() if name in FIELDS}


def both() -> Planned:
    first = planned(MAINTENANCE)
    return planned(DRAIN, first.value, now_ms=NOW_MS + 1)


def test_a_maintenance_and_a_drain_are_fields_of_the_control_event():
    assert maintenance_of(both()) == {
        "maintenance_brokers": {"b1": ENDING},
        "maintenance_namespaces": {"t/n": ENDING},
        "drained_brokers": {"b3": SPELL},
    }


@pytest.mark.parametrize(
    "edit",
    [
        pause_edit(),
        resume_edit(NOW),
        mode_edit("act"),
        settings_edit(["pulsar.shedding_policy=threshold-shedder"]),
    ],
)
def test_pause_mode_and_settings_carry_them_on(edit: Edit):
    before = both()
    assert maintenance_of(planned(edit, before.value, now_ms=NOW_MS + 2)) == maintenance_of(before)


def test_they_carry_pause_mode_and_settings_on():
    first = planned(pause_edit())
    second = planned(mode_edit("act"), first.value, now_ms=NOW_MS + 1)
    third = planned(settings_edit(["pulsar.shadow=false"]), second.value, now_ms=NOW_MS + 2)
    for edit in (MAINTENANCE, DRAIN):
        data = data_of(planned(edit, third.value, now_ms=NOW_MS + 3))
        assert (data["paused"], data["mode"], data["settings"]) == (
            True,
            "act",
            {"pulsar": {"shadow": False}},
        )


def test_a_maintenance_that_is_over_is_not_carried_on():
    later = planned(pause_edit(), both().value, now_ms=NOW_MS + 3_600_000)
    assert maintenance_of(later) == {"drained_brokers": {"b3": SPELL}}


def test_what_is_ended_takes_part_again_a_drained_broker_too():
    ended = planned(end_maintenance(["b1", "b3"], ["t/n"]), both().value, now_ms=NOW_MS + 2)
    assert maintenance_of(ended) == {}
    assert "drain of b3: ends" in change_text(ended)


def test_what_is_deleted_is_under_no_maintenance():
    assert stands(both().value).overlay.changes_anything
    assert not stands(
        planned(configured_edit(), both().value, now_ms=NOW_MS + 2).value
    ).overlay.changes_anything


def test_what_has_ended_by_itself_stands_no_more():
    stand = stands(planned(pause_edit(NOW + HOUR), planned(MAINTENANCE).value, now_ms=NOW_MS + 1).value)
    assert stand.at(NOW + HOUR / 2).overlay.paused
    assert not stand.at(NOW + HOUR).overlay.changes_anything


def test_what_is_not_under_maintenance_cannot_be_ended():
    with pytest.raises(WrongUse, match=r"^east-1: b9 is neither under maintenance nor drained"):
        planned(end_maintenance(["b9"], []), both().value, now_ms=NOW_MS + 2)


def test_a_broker_is_drained_or_under_maintenance_and_a_second_drain_is_the_first():
    drained = planned(begin_drain(["b1"], WINDOW), both().value, now_ms=NOW_MS + 2)
    assert maintenance_of(drained)["drained_brokers"] == {"b1": SPELL, "b3": SPELL}
    assert "maintenance_brokers" not in maintenance_of(drained)
    again = begin_drain(["b3"], msgspec.structs.replace(WINDOW, since=NOW + HOUR))
    assert maintenance_of(planned(again, both().value, now_ms=NOW_MS + 2))["drained_brokers"] == {"b3": SPELL}
    kept = begin_maintenance(["b3"], [], WINDOW)
    assert "drained_brokers" not in maintenance_of(planned(kept, both().value, now_ms=NOW_MS + 2))


def test_a_maintenance_that_no_round_could_obey_is_refused():
    with pytest.raises(WrongUse, match=r"the maintenance of b1 would end at .* let it last longer"):
        planned(
            begin_maintenance(["b1"], [], msgspec.structs.replace(WINDOW, until=NOW + timedelta(seconds=1)))
        )


@pytest.mark.parametrize("edit", [MAINTENANCE, DRAIN])
def test_a_kafka_cluster_refuses_them_by_name(edit: Edit):
    with pytest.raises(
        WrongUse, match=r"east-1 is a Kafka cluster, .* cannot be put under maintenance or drained"
    ):
        plan(
            "east-1",
            edit=edit,
            **ASKED,
            stands=stands(),
            settings=SOURCE,
            now_ms=NOW_MS,
            nonce="n",
            system="kafka",
        )


def test_a_drain_in_dry_run_is_known_by_the_controllers_mode_and_by_the_own_one_only_without_it():
    configured = Configured(mode="dry-run", approval="none", settings_digest="")
    known = KnownCluster(system="pulsar", configured=configured)
    assert is_dry_run(ControlData(), known, "act")
    assert not is_dry_run(ControlData(mode="act"), known, "dry-run")
    assert not is_dry_run(ControlData(), None, "act")
    assert is_dry_run(ControlData(), KnownCluster(system="pulsar"), "dry-run")


def test_what_stands_is_shown_with_its_end_and_reason():
    text = overlay_text("east-1", stands(both().value), SOURCE)
    assert "maintenance of b1: since 2023-11-14T22:13:20Z until 2023-11-14T23:13:20Z, by maria" in text
    assert "drain of b3: since 2023-11-14T22:13:20Z until it is ended, by maria: the sale" in text


def test_a_namespace_under_maintenance_without_a_bundle_may_have_a_wrong_name():
    rows = [MaintenanceRow(name=f"t/{count}", bundles_count=count, since="", **ASKED) for count in (0, 3)]
    found = MaintenanceSummary(
        brokers=[], namespaces=rows, drains=[], bundles_left=Section(count=0, outcomes={}, heaviest=[])
    )
    said = list(maintenance_lines(msgspec.structs.replace(ROUND, maintenance=found)))
    begin = "namespace t/{} under maintenance until it is ended, by maria: the sale"
    assert said == [
        begin.format(0) + " (no bundle of it is known: is the name right?)",
        begin.format(3),
    ]


def drain(state: str, left: int | None) -> DrainRow:
    return msgspec.convert(
        {"name": "b3", "since": "", "who": "", "why": "", "state": state, "bundles_left_count": left}
        | {"bundles_at_start_count": 9},
        DrainRow,
    )


def test_how_far_a_drain_is_is_said_in_bundles():
    assert drain_line(drain("draining", 1)) == "drain of b3: 1 bundle left of 9"
    assert drain_line(drain("draining", 4)) == "drain of b3: 4 bundles left of 9"
    assert drain_line(drain("silent", None)) == "drain of b3: no report of it"
    assert drain_line(drain("empty", 0)) == "drain of b3: empty, under maintenance until it is ended"
    busy = "drain of b3: it lists no bundle, but its totals show traffic: it is not known to be empty"
    assert drain_line(drain("busy", 0)) == busy


def test_bundles_left_are_listed_as_far_as_the_summary_does_and_the_rest_is_counted():
    stay = [
        LeftRow(
            bundle=f"t/n/{i}", broker="b3", outcome=outcome, detail=outcome, messages_per_s=1, bytes_per_s=1
        )
        for i, outcome in enumerate(["budget"] * 30 + ["acted"] * 4)
    ]
    left = Section(count=134, outcomes={"acted": 4, "budget": 130}, heaviest=stay)
    head, *rows, more = left_lines(
        MaintenanceSummary(brokers=[], namespaces=[], drains=[], bundles_left=left)
    )
    assert head == "bundles left: 4 acted, 130 budget"
    assert rows == [f"  t/n/{i} at b3: budget" for i in range(30)]
    assert more == "  and 100 more, which stay, too"


def test_a_drain_that_nobody_carries_out_says_so_while_it_waits():
    advice = "3 actions got no result yet: if no executor runs, start one: `trimtab execute pulsar east-1`"
    row = Finding(kind="no-results", subject="east-1", broker="", bytes_per_s=None, advice=advice)
    silent = msgspec.structs.replace(section(no_results=1), heaviest=[row])
    data = msgspec.structs.replace(ROUND, findings=silent)
    lines = progress_lines(data, [drain("draining", 4)])
    assert lines == ["round 7: drain of b3: 4 bundles left of 9", advice]
    assert progress_lines(data, [drain("empty", 0)])[1:] == []


HOLD = "the memory of earlier rounds began at 10:00: the first round that acts ends after 10:28"


def left_at(outcome: str, detail: str, *, round_outcome: str = "decided") -> RoundSummary:
    """A round in which four bundles stay at the drained b3."""
    stay = [
        LeftRow(
            bundle=f"t/n/{i}", broker="b3", outcome=outcome, detail=detail, messages_per_s=1, bytes_per_s=1
        )
        for i in range(4)
    ]
    left = Section(count=4, outcomes={outcome: 4}, heaviest=stay)
    return msgspec.structs.replace(
        ROUND,
        outcome=round_outcome,
        reason="the first round only looks",
        maintenance=MaintenanceSummary(brokers=[], namespaces=[], drains=[], bundles_left=left),
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (left_at("starting", HOLD), [f"starting: {HOLD}"]),
        (left_at("paused", "the cluster is paused"), ["paused: the cluster is paused"]),
        (
            left_at("acted", "acted", round_outcome="warm-up"),
            ["warm-up: the first round only looks"],
        ),
        (left_at("in-flight", "in-flight"), []),
        (ROUND, []),
    ],
)
def test_a_drain_that_is_waited_for_says_what_holds_the_whole_round(data: RoundSummary, said: list[str]):
    lines = progress_lines(data, [drain("draining", 4)])
    assert lines == ["round 7: drain of b3: 4 bundles left of 9", *said]


def test_a_detail_that_many_bundles_share_is_said_once():
    assert list(left_lines(left_at("starting", HOLD).maintenance)) == [
        "bundles left: 4 starting",
        f"  t/n/0 at b3: {HOLD}",
        *(f"  t/n/{i} at b3: starting" for i in (1, 2, 3)),
    ]
    told = msgspec.structs.replace(left_at("starting", HOLD), reason=f"starting: {HOLD}; 0 unloads")
    assert HOLD not in "".join(maintenance_lines(told)), "the round's line tells it in status and rounds"


OWN = ["pulsar/system/0x00000000_0x40000000", "pulsar/system/0x40000000_0x80000000"]


def test_system_bundles_bundles_at_a_drained_broker_are_named():
    row = msgspec.structs.replace(
        drain("only-system-bundles", 0), system_bundles_count=120, system_bundles=OWN
    )
    assert drain_line(row) == (
        "drain of b3: empty but for 120 bundles of Pulsar's own, under maintenance until it is ended"
    )
    says, *names, more = own_lines(row)
    assert "they serve the whole cluster" in says
    assert names == [f"  {each} is Pulsar's own" for each in OWN]
    assert more == "  and 118 more"
    one = msgspec.structs.replace(row, system_bundles_count=1, system_bundles=OWN[:1])
    assert "empty but for 1 bundle of Pulsar's own" in drain_line(one)
    assert list(own_lines(one)) == [says, f"  {OWN[0]} is Pulsar's own"]
    assert list(own_lines(drain("draining", 4))) == []


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ({"excluded-namespace": 2}, True),
        ({"excluded-namespace": 2, "anti-affinity": 1}, True),
        ({"excluded-namespace": 2, "budget": 1}, False),
        ({}, False),
    ],
)
def test_a_drain_cannot_end_where_all_that_is_left_stays(outcomes: dict[str, int], *, expected: bool):
    left = Section(count=sum(outcomes.values()), outcomes=outcomes, heaviest=[])
    maintenance = MaintenanceSummary(brokers=[], namespaces=[], drains=[], bundles_left=left)
    assert is_stuck(msgspec.structs.replace(ROUND, maintenance=maintenance)) is expected


@pytest.mark.parametrize(("until", "expected"), [(None, True), ("2026-11-25T06:00:00.000Z", False)])
def test_a_drain_waits_for_a_maintenance_of_namespaces_that_ends_by_itself(
    until: str | None, *, expected: bool
):
    row = MaintenanceRow(name="shop/orders", since="2026-11-25T05:00:00.000Z", until=until, who="jo", why="x")
    left = Section(count=1, outcomes={"maintenance": 1}, heaviest=[])
    maintenance = MaintenanceSummary(brokers=[], namespaces=[row], drains=[], bundles_left=left)
    assert is_stuck(msgspec.structs.replace(ROUND, maintenance=maintenance)) is expected


@pytest.mark.parametrize(
    ("left", "error"),
    [
        (["excluded-namespace"] * 3, "no later round will move the bundles that are left"),
        (["excluded-namespace", "excluded-namespace", "in-flight", "excluded-namespace", "", ""], None),
        (["acted", "", "acted", "", ""], None),
        (["", "absent", "absent", "absent"], "no later round will move the bundles that are left"),
    ],
    ids=["three rounds in a row", "others between", "one empty round is no end", "bundles are left out"],
)
def test_a_drain_that_is_waited_for_ends_after_two_empty_rounds_or_three_in_which_all_stays(
    monkeypatch: pytest.MonkeyPatch, left: list[str], error: str | None
):
    rounds = [
        msgspec.structs.replace(
            ROUND,
            round=number,
            maintenance=MaintenanceSummary(
                brokers=[],
                namespaces=[],
                drains=[
                    DrainRow(
                        name="b3", state="draining" if outcome else "empty", since=SINCE, who="jo", why="x"
                    )
                ],
                bundles_left=Section(count=1, outcomes={outcome: 1}, heaviest=[]) if outcome else section(),
            ),
        )
        for number, outcome in enumerate(left)
    ]
    events = [
        {
            "specversion": "1.0",
            "id": "r",
            "source": "/trimtab/main",
            "type": ROUND_TYPE,
            "cluster": "east-1",
            "data": each,
        }
        for each in rounds
    ]
    values = iter([msgspec.json.encode(each) for each in events])
    side = SimpleNamespace(reader=lambda *_, **__: Topic([next(values)]))
    monkeypatch.setattr(published, "output_side", lambda _: side)
    monkeypatch.setattr("streaming.cli.maintenance.time.sleep", lambda _: None)
    with pytest.raises(NotAcknowledged, match=error) if error else nullcontext():
        follow_drains(Settings(), [planned(DRAIN)], ["b3"])
    assert next(values, None) is None


NAMED = KnownCluster(
    system="pulsar",
    brokers_reporting=["broker-1:8080", "broker-2:8080", "broker-2:8081"],
    brokers_reporting_count=3,
    brokers_missing=["broker-3:8080"],
    brokers_missing_count=1,
)


def meant(typed: str, known: KnownCluster | None = NAMED, *, force: bool = False) -> list[str]:
    return brokers_of("east-1", [typed], known, ControlData(drained_brokers={"b9:1": WINDOW}), force=force)


@pytest.mark.parametrize(
    ("typed", "broker"),
    [
        ("broker-1:8080", "broker-1:8080"),
        ("broker-1", "broker-1:8080"),
        ("broker-3", "broker-3:8080"),
        ("b9", "b9:1"),
    ],
)
def test_a_broker_is_found_without_its_port_one_that_is_away_or_drained_too(typed: str, broker: str):
    assert meant(typed) == [broker]


@pytest.mark.parametrize(
    ("drained", "maintained", "reporting_count", "expected"),
    [
        (["broker-1:8080", "broker-2:8080", "broker-2:8081"], [], 3, True),
        (["broker-1:8080", "broker-2:8080"], ["broker-2:8081"], 3, True),
        (["broker-1:8080", "broker-2:8080"], [], 3, False),
        (["broker-1:8080", "broker-2:8080", "broker-2:8081"], [], 200, False),
    ],
    ids=["all", "the last one is under maintenance", "one is left", "not all are named"],
)
def test_a_drain_says_where_no_broker_is_left_to_receive_a_bundle(
    drained: list[str], maintained: list[str], reporting_count: int, *, expected: bool
):
    known = msgspec.structs.replace(NAMED, brokers_reporting_count=reporting_count)
    stands = ControlData(maintenance_brokers=dict.fromkeys(maintained, WINDOW))
    assert is_without_receiver(drained, known, stands) is expected


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("brokr-1:8080", "did you mean broker-1:8080"),
        ("broker-7", r"known here: broker-1:8080, broker-2:8080, broker-2:8081, broker-3:8080\)"),
        ("brokers-", "known here: broker-1:8080, broker-2"),
        ("zzz", "known here: b9:1, broker-1:8080, .* add --force"),
        ("broker-2", "may be broker-2:8080 or broker-2:8081: give the port"),
    ],
)
def test_a_broker_that_is_not_known_is_refused_with_those_that_are(typed: str, answer: str):
    with pytest.raises(WrongUse, match=answer):
        meant(typed)


def test_a_broker_is_taken_as_typed_by_force_and_where_the_summary_does_not_name_all():
    cut = msgspec.structs.replace(NAMED, brokers_reporting_count=250)
    assert meant("zzz", cut) == meant("zzz", None) == meant("zzz", force=True) == ["zzz"]


@pytest.mark.parametrize(
    ("known", "force", "why"),
    [
        (None, False, "east-1: no recent round is known, so it is not checked that there is a broker zzz\n"),
        (
            msgspec.structs.replace(NAMED, brokers_reporting_count=250),
            False,
            "east-1: its newest round does not name all its brokers, so it is not checked that there is a broker zzz\n",
        ),
        (None, True, ""),
        (NAMED, True, ""),
    ],
)
def test_a_broker_that_could_not_be_checked_is_named(
    capsys: pytest.CaptureFixture[str], known: KnownCluster | None, why: str, *, force: bool
):
    assert meant("zzz", known, force=force) == ["zzz"]
    assert capsys.readouterr().err == why


def test_a_maintenance_is_ended_without_the_port():
    begun = planned(begin_drain(["b3:8080"], WINDOW))
    assert maintenance_of(planned(end_maintenance(["b3"], []), begun.value, now_ms=NOW_MS + 1)) == {}
