"""How an operator's command changes the control in force, and what it answers: one part changes, the rest stays, a bad change is refused."""

import json
import os
import re
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from click import BadParameter
from click.testing import CliRunner

from state.control import first_round
from state.events import System
from streaming.cli import main
from streaming.cli.control import (
    Edit,
    Standing,
    check_taken,
    check_written,
    find_standings,
    plan,
)
from streaming.cli.operate import (
    configured_edit,
    forget_edit,
    mode_edit,
    pause_edit,
    resume_edit,
    settings_edit,
    unset_edit,
)
from streaming.cli.options import Duration, Moment, login_user
from streaming.cli.request import change_text, overlay_text, overlay_tree
from streaming.contract.decode import decode
from streaming.contract.messages import ControlData
from streaming.process.exits import Refused, WrongUse
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from tests.streaming.controlling import (
    ASKED,
    CONTROLLERS,
    FULL,
    HERE,
    KNOWN,
    LOW_10,
    NOW,
    NOW_MS,
    SETTINGS,
    data_of,
    planned,
    record,
    shown,
    stands,
)
from tests.streaming.events import control


@pytest.mark.parametrize(
    ("edit", "changed"),
    [
        pytest.param(
            resume_edit(NOW),
            {"paused": False, "resumed_at": "2023-11-14T22:13:20Z"},
            id="resume keeps mode and settings",
        ),
        pytest.param(pause_edit(), {}, id="a second pause keeps them, too"),
        pytest.param(mode_edit("dry-run"), {"mode": "dry-run"}, id="mode keeps pause and settings"),
        pytest.param(mode_edit("configured"), {"mode": None}, id="the mode can be the file's again"),
        pytest.param(
            settings_edit(["pulsar.avg_shedder.low_hit_count=3"]),
            {"settings": {"pulsar": {"avg_shedder": {"low_threshold_points": 10, "low_hit_count": 3}}}},
            id="a setting keeps the others",
        ),
        pytest.param(
            settings_edit(["pulsar.avg_shedder.low_threshold_points=12.5"]),
            {"settings": {"pulsar": {"avg_shedder": {"low_threshold_points": 12.5}}}},
            id="a setting replaces itself",
        ),
        pytest.param(
            unset_edit(["pulsar.avg_shedder.low_threshold_points"]),
            {"settings": {}},
            id="a setting can go, and so do the sections it leaves empty",
        ),
        pytest.param(unset_edit(["pulsar"]), {"settings": {}}, id="a section can go"),
    ],
)
def test_a_change_is_laid_over_what_stands_and_changes_nothing_else(edit: Edit, changed: dict[str, object]):
    before = {"paused": True, "mode": "act", "settings": LOW_10, "resumed_at": None}
    assert data_of(planned(edit, FULL)) == before | changed | {"who": "maria", "why": "the sale"}


def test_forgetting_a_cluster_carries_its_overlay_on_and_the_next_change_does_not_repeat_it():
    event = planned(forget_edit(), FULL)
    before = {"paused": True, "mode": "act", "settings": LOW_10, "resumed_at": None}
    assert data_of(event) == before | {"forget": True, "who": "maria", "why": "the sale"}
    assert "  forgotten: all that is remembered of the cluster" in change_text(event)
    assert "forget" not in data_of(planned(pause_edit(), event.value, now_ms=NOW_MS + 1000))
    taken = stands(event.value).event
    assert taken.data.forget


HOUR = timedelta(hours=1)


def test_a_pause_may_end_by_itself_and_what_is_changed_meanwhile_keeps_its_end():
    event = planned(pause_edit(NOW + HOUR), FULL)
    assert "  paused: yes -> until 2023-11-14T23:13:20Z\n" in change_text(event)
    assert "  paused: until 2023-11-14T23:13:20Z\n" in overlay_text("east-1", stands(event.value), SETTINGS)
    later = planned(mode_edit("dry-run"), event.value, now_ms=NOW_MS + 60_000)
    assert (later.after.paused, later.after.until) == (True, NOW + HOUR)
    for edit in (pause_edit(), resume_edit(NOW)):
        assert "until" not in data_of(planned(edit, event.value, now_ms=NOW_MS + 60_000))


def test_a_change_after_the_pauses_end_does_not_carry_it_on():
    event = planned(pause_edit(NOW + HOUR), FULL)
    later = planned(mode_edit("dry-run"), event.value, now_ms=NOW_MS + 3_600_000)
    assert (later.before.paused, later.after.paused, later.after.until) == (False, False, None)


def test_a_pause_that_no_round_could_obey_is_refused():
    """The first round that can obey it begins 40 s later."""
    assert planned(pause_edit(NOW + timedelta(seconds=41))).after.paused
    with pytest.raises(WrongUse, match=r"would end at .*14:00Z, .* begins at .*14:00Z: let it last longer"):
        planned(pause_edit(NOW + timedelta(seconds=40)))


def test_what_is_deleted_is_as_configured_and_is_named_no_more():
    event = planned(configured_edit(), FULL)
    assert data_of(event) == {
        "paused": False,
        "mode": None,
        "settings": {},
        "resumed_at": None,
        "who": "maria",
        "why": "the sale",
    }
    assert stands(FULL).overlay.changes_anything
    assert not stands(FULL, event.value).overlay.changes_anything


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86_400), ("1h30m", 5400), ("365d", 365 * 86_400)],
)
def test_a_duration_is_written_as_people_do(text: str, seconds: int):
    assert Duration().convert(text, None, None) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "2", "h", "-1h", "1.5h", "30m1h", "0s", "366d", "9" * 30 + "s"])
def test_what_is_no_duration_is_refused_by_its_text(text: str):
    with pytest.raises(BadParameter, match=re.escape(repr(text))):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600), ("2h", 7200), ("7d", 7 * 86_400)])
@pytest.mark.parametrize(("is_ahead", "sign"), [(False, -1), (True, 1)], ids=["back", "ahead"])
def test_a_moment_may_be_a_span_from_now(text: str, seconds: int, *, is_ahead: bool, sign: int):
    before = datetime.now(UTC)
    moment = Moment(is_ahead=is_ahead).convert(text, None, None)
    assert before <= moment - timedelta(seconds=sign * seconds) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["rounds", "tail", "--from"], "earliest, latest, "),
        (["actions", "tail", "--from"], "earliest, latest, "),
        (["rejected", "tail", "--from"], "earliest, latest, "),
        (["record", "-", "--from"], "earliest, latest, "),
        (["run", "--from"], "earliest, latest, "),
        (["backtest", __file__, "--from"], ""),
        (["backtest", __file__, "--to"], ""),
        (["replay", "--started"], ""),
    ],
)
def test_every_time_is_refused_with_the_forms_that_it_takes(command: list[str], words: str):
    result = CliRunner().invoke(main, [*command, "earlist"])
    assert result.exit_code == 2
    assert (
        f"expected {words}RFC 3339, such as 2026-11-25T06:00:00Z, or 10m, 2h or 7d back from now"
        in result.stderr
    )


def test_what_is_written_is_an_event_the_controller_takes():
    event = planned(settings_edit(["pulsar.shedding_policy=threshold-shedder"]))
    cluster, control_event, _ = decode(event.value, key="east-1")
    assert cluster == "east-1"
    assert find_standings([record(event.value)], SETTINGS)["east-1"].event is not None
    assert json.loads(event.value)["source"] == "/operator/maria"
    assert control_event.data.why == "the sale"


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("pulsar.avg_shedder.low_threshold_points=10", 10),
        ("pulsar.avg_shedder.low_threshold_points = 10.5", 10.5),
        ("pulsar.skip_sample_after_move=false", False),
        ("pulsar.shedding_policy=threshold-shedder", "threshold-shedder"),
        ('pulsar.shedding_policy="threshold-shedder"', "threshold-shedder"),
        ('pulsar.guards.excluded_brokers=["b1:8080"]', ["b1:8080"]),
        ('pulsar.capacity.brokers."b1:8080".messages_per_s=2000', 2000),
    ],
)
def test_a_value_is_written_as_in_the_settings_file_quotes_may_go(assignment: str, value: object):
    node: object = data_of(planned(settings_edit([assignment])))["settings"]
    while isinstance(node, dict):
        (node,) = node.values()
    assert node == value


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("pulsar.avg_shedder.low_threshold=10", "did you mean pulsar.avg_shedder.low_threshold_points?"),
        ("pulsar.avg_shedder.low_threshold_points=90", "low_threshold_points"),
        ("pulsar.rounds.length_s=10", "not-changeable"),
        (
            "controller.mode=act",
            "controller.mode is no decision setting: it is changed by `trimtab mode act`",
        ),
        ("controller.approval=none", "changed by `trimtab mode MODE --approval required`"),
        ("controller.name=x", "controller.name is no decision setting: it is read once, at a start"),
        ("input.url=kafka://a:1", "input.url is no decision setting: it is read once, at a start"),
        (
            "clusters.a.pulsar.shadow=true",
            "name the cluster with --cluster, and the setting as pulsar.shadow",
        ),
        ("guards.bundle_cooldown_s=1", "guards: unknown setting"),
        ("low_threshold_points", "expected KEY=VALUE"),
        ("=3", "expected KEY=VALUE"),
        ("pulsar..x=3", "no line of TOML"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_is_written(assignment: str, complaint: str):
    with pytest.raises(WrongUse, match=re.escape(complaint)):
        planned(settings_edit([assignment]))


def test_what_the_controller_would_say_of_the_settings_is_what_the_command_says():
    overlay = {"pulsar": {"avg_shedder": {"low_threshold_points": 90}}}
    refused = stands(control(time_s=1, data={"settings": overlay})).refused
    with pytest.raises(WrongUse) as caught:
        planned(settings_edit(["pulsar.avg_shedder.low_threshold_points=90"]))
    message = str(caught.value).removeprefix("east-1: ").removesuffix(" (bad-settings)")
    assert refused.endswith(message)


def test_a_setting_that_is_not_in_the_overlay_cannot_be_taken_out():
    with pytest.raises(WrongUse, match=r"pulsar.avg_shedder.low_hit_count is not in the overlay"):
        planned(unset_edit(["pulsar.avg_shedder.low_hit_count"]), FULL)
    with pytest.raises(WrongUse, match="control list"):
        planned(unset_edit(["pulsar.avg_shedder.low_threshold_points.deeper"]), FULL)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("pulsar.nonsense", "pulsar.nonsense: unknown setting; known here: approval, "),
        ("pulsar.avg_sheder", "pulsar.avg_sheder: unknown setting; did you mean pulsar.avg_shedder?"),
        (
            "pulsar.avg_shedder.low_threshold",
            "unknown setting; did you mean pulsar.avg_shedder.low_threshold_points?",
        ),
        ("nonsense", "nonsense: unknown setting; known here: kafka, pulsar"),
    ],
)
def test_what_is_to_be_taken_out_and_is_no_setting_is_called_that(key: str, said: str):
    with pytest.raises(
        WrongUse, match=rf"{re.escape(said)}.*; `trimtab control list` says what is in the overlay"
    ):
        planned(unset_edit([key]), FULL)


def test_a_setting_of_another_version_can_be_taken_out_of_the_overlay():
    older = ControlData(settings={"pulsar": {"nonsense": 1}})
    assert unset_edit(["pulsar.nonsense"])(older).settings == {}


def test_a_setting_that_another_command_takes_back_is_refused_with_that_command():
    with pytest.raises(
        WrongUse, match=r"controller.mode is no decision setting: .*`trimtab mode configured`"
    ):
        unset_edit(["controller.mode"])


def test_the_newest_event_stands_by_time_then_id_whatever_the_order_on_the_topic():
    newest = control(time_s=20, id="b", data={"mode": "act"})
    others = [control(time_s=20, id="a", data={}), control(time_s=10, id="z", data={"paused": True})]
    for values in ([newest, *others], [*others, newest]):
        assert stands(*values).overlay.mode == "act"


def test_an_event_the_controller_refuses_does_not_stand_and_is_named():
    good = control(time_s=10, id="good", data={"mode": "act"})
    bad = control(time_s=20, id="bad", data={"settings": {"pulsar": {"rounds": {"length_s": 1}}}})
    ahead = control(time_s=NOW_MS / 1000 + 11, id="ahead", data={"paused": True})
    assert stands(good, bad).overlay.mode == "act"
    assert "bad of 1970-01-01T00:00:20Z has settings that do not fit" in str(stands(good, bad).refused)
    assert stands(good, ahead).overlay.mode == "act"
    assert "ahead of its log" in str(stands(good, ahead).refused)
    assert stands(bad).event is None


def test_records_of_other_clusters_or_that_are_no_control_events_do_not_count():
    records = [
        record(b"junk"),
        record(FULL, key="other"),
        record(control(time_s=1, cluster="west", data={}), key="west"),
    ]
    assert set(find_standings(records, SETTINGS)) == {"west"}


def test_what_a_person_resumed_stays_resumed_whatever_changes_later():
    """Otherwise the next change within the same round would take it back before it was ever in force."""
    first = planned(resume_edit(NOW), FULL)
    later = planned(mode_edit("dry-run"), first.value, now_ms=NOW_MS + 1000)
    assert data_of(later)["resumed_at"] == "2023-11-14T22:13:20Z"
    assert stands(later.value).overlay.resumed_at == NOW


def test_a_new_event_is_newer_than_what_stands_whatever_the_clock_says():
    future = control(time_s=NOW_MS / 1000 + 5, id="z", data={"paused": True})
    event = planned(resume_edit(NOW), future)
    assert event.time_ms == NOW_MS + 5001
    assert stands(future, event.value).overlay.paused is False


@pytest.mark.parametrize(
    ("time_ms", "number"),
    [(0, 1), (39_999, 1), (40_000, 1), (40_001, 2), (100_000, 2), (100_001, 3)],
)
def test_a_change_holds_from_the_first_round_that_starts_two_latenesses_later(time_ms: int, number: int):
    """Rounds of a minute, lateness 10 s: 40 s + 20 s is exactly the start of round 1."""
    assert first_round(time_ms, lateness_ms=10_000, length_ms=60_000) == number


def test_the_command_says_what_changes_and_from_when():
    text = change_text(planned(settings_edit(["pulsar.avg_shedder.low_threshold_points=12"]), FULL))
    assert text == (
        "east-1: from round 28333334 on, which begins at 2023-11-14T22:14:00Z\n"
        "  paused: yes\n"
        "  mode: act\n"
        "  pulsar.avg_shedder.low_threshold_points: 10 -> 12\n"
        "  computed with the settings read here, because no recent round shows those of the controller\n"
    )
    assert "; executors stop at once\n" in change_text(planned(pause_edit()))
    assert "  paused: yes -> no\n" in change_text(planned(resume_edit(NOW), FULL))
    assert "  actions that failed until now no longer count\n" in change_text(planned(resume_edit(NOW), FULL))
    assert "failed" not in text
    assert "  mode: act -> as configured\n" in change_text(planned(mode_edit("configured"), FULL))


def test_a_command_speaks_of_the_controllers_settings_not_of_those_where_the_operator_stands():
    """Its rounds end 5 s late, so a change holds from the round that begins 40 s on; by those here, two later."""
    text = change_text(planned(unset_edit(["pulsar.avg_shedder.low_threshold_points"]), FULL, settings=KNOWN))
    assert text == (
        "east-1: from round 28333334 on, which begins at 2023-11-14T22:14:00Z\n"
        "  paused: yes\n"
        "  mode: act\n"
        "  pulsar.avg_shedder.low_threshold_points: 10 -> 13\n"
    )
    here = ClusterSettingsSource(HERE)
    assert "from round 28333336 on" in change_text(planned(pause_edit(), settings=here))
    back = planned(mode_edit("configured", "configured"), FULL, settings=KNOWN)
    assert "  mode: act -> as configured (dry-run)\n" in change_text(back)
    required = planned(mode_edit("act", "required"), settings=KNOWN)
    assert "  approval: as configured (none) -> required\n" in change_text(required)


def test_what_is_unset_is_answered_with_what_applies_then():
    key = "pulsar.guards.max_unloads_per_round_count"
    capped = planned(settings_edit([f"{key}=7"]))
    text = change_text(planned(unset_edit([key]), capped.value, now_ms=NOW_MS + 60_000))
    assert f"  {key}: 7 -> 20, or more for the fleet planner (the default)\n" in text


def test_whether_an_event_fits_is_judged_by_the_controllers_settings():
    """Its high threshold is 35 points, so a low one of 30 fits there; here it is 25."""
    high = {"pulsar": {"avg_shedder": {"high_threshold_points": 25, "low_threshold_points": 5}}}
    asked = control(time_s=1, data={"settings": {"pulsar": {"avg_shedder": {"low_threshold_points": 30}}}})
    own = ClusterSettingsSource(compose(high))
    refused = find_standings([record(asked)], own)["east-1"].refused
    assert refused is not None
    assert "do not fit, by the settings read here, because no recent round shows those of the" in refused
    known = ClusterSettingsSource(compose(high), {"east-1": shown(CONTROLLERS)})
    assert find_standings([record(asked)], known)["east-1"].refused is None


def test_a_change_of_a_kafka_cluster_is_told_in_its_own_settings_and_rounds():
    edit = settings_edit(["kafka.throttle.stale_after_rounds=9"])
    made = plan(
        "east-1",
        edit=edit,
        **ASKED,
        stands=Standing(),
        settings=SETTINGS,
        now_ms=NOW_MS,
        nonce="n",
        system="kafka",
    )
    assert made.first_round_ms == NOW_MS + 10_000, "2 x 5 s, and a round begins there"
    assert made.first_round == made.first_round_ms // 10_000
    (change,) = made.changes
    assert change.startswith("kafka.throttle.stale_after_rounds: ")
    assert change.endswith(" -> 9")


@pytest.mark.parametrize("system", ["kafka", "pulsar"])
def test_settings_of_the_other_kind_of_cluster_are_refused_unless_they_stand_already(system: System):
    other = (
        "pulsar.guards.bundle_cooldown_s=7" if system == "kafka" else "kafka.throttle.stale_after_rounds=9"
    )
    make = partial(plan, "east-1", **ASKED, settings=SETTINGS, now_ms=NOW_MS, nonce="n", system=system)
    with pytest.raises(WrongUse, match=rf"east-1 is a {system.capitalize()} cluster, and .* does nothing"):
        make(edit=settings_edit([other]), stands=Standing())
    standing_already = stands(control(time_s=1, id="a", data={"settings": LOW_10}))
    assert make(edit=pause_edit(), stands=standing_already).after.paused
    assert plan(
        "east-1",
        edit=settings_edit([other]),
        **ASKED,
        stands=Standing(),
        settings=SETTINGS,
        now_ms=NOW_MS,
        nonce="n",
    ).changes, "nobody knows yet what it is"


def test_a_clock_that_is_ahead_is_judged_by_the_rounds_of_the_clusters_own_system():
    patient = ClusterSettingsSource(compose({"kafka": {"rounds": {"max_ahead_s": 60.0}}}))
    ahead = [record(control(time_s=NOW_MS / 1000 + 11, id="ahead", data={"paused": True}))]
    assert find_standings(ahead, patient, {"east-1": "kafka"})["east-1"].event is not None
    assert find_standings(ahead, patient, {"east-1": "pulsar"})["east-1"].event is None


def test_what_stands_is_shown_with_who_and_why():
    assert overlay_text("east-1", stands(FULL), SETTINGS) == (
        "east-1: jo at 2023-11-14T21:56:40Z: x\n"
        "  paused: yes\n"
        "  mode: act\n"
        "  pulsar.avg_shedder.low_threshold_points = 10\n"
    )
    assert overlay_text("east-1", Standing(), SETTINGS) == "east-1: as configured, no control event\n"


def test_what_stands_is_shown_beside_what_the_controller_is_configured_with():
    assert "  pulsar.avg_shedder.low_threshold_points = 10  # configured: 13\n" in overlay_text(
        "east-1", stands(FULL), KNOWN
    )
    maintained = control(time_s=1, data={"paused": True})
    assert "  mode: as configured (dry-run)\n" in overlay_text("east-1", stands(maintained), KNOWN)
    assert overlay_text("east-1", Standing(), KNOWN) == (
        "east-1: as configured (mode dry-run), no control event\n"
    )
    tree = overlay_tree("east-1", stands(FULL), KNOWN)
    assert tree["configured"]["settings"] == CONTROLLERS["pulsar"]
    assert overlay_tree("east-1", stands(FULL), SETTINGS)["configured"] is None


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 12345"), OSError("No username set")])
def test_a_user_without_a_name_is_named_by_number(monkeypatch: pytest.MonkeyPatch, error: Exception):
    def nameless() -> str:
        raise error

    monkeypatch.setattr("getpass.getuser", nameless)
    assert login_user() == f"uid {os.getuid()}"


def test_a_write_that_met_another_ones_is_told():
    event = planned(pause_edit(), FULL)
    mine, theirs = record(event.value, offset=2), record(FULL, offset=1)
    before = [record(FULL, offset=0)]
    check_written([event], before, [*before, mine])
    check_written([event], before, [*before, record(FULL, key="west", offset=1), mine])
    with pytest.raises(Refused, match="somebody else wrote"):
        check_written([event], before, [*before, theirs, mine])
    with pytest.raises(Refused, match="not on the topic"):
        check_written([event], before, before)


def test_a_write_that_the_controller_refuses_is_told_with_the_remedy():
    event = planned(pause_edit(), FULL)
    before = record(FULL, offset=0)

    def found(appended_ms: int) -> dict[str, Standing]:
        return find_standings([before, record(event.value, offset=1, appended_ms=appended_ms)], SETTINGS)

    check_taken([event], found(NOW_MS))
    with pytest.raises(
        Refused, match=r"east-1: .*the controller refuses it: .*ahead of its log.*set the clock"
    ):
        check_taken([event], found(NOW_MS - 60_000))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["pause", "--cluster", "a"], "--why"),
        (["pause", "--cluster", "a", "--why", " "], "give a reason"),
        (["policy", "set", "--cluster", "a", "--why", "x", "pulsar.zzz=1"], "pulsar.zzz: unknown setting"),
        (["forget", "--all", "--why", "x"], "name the clusters to forget"),
        (["control", "list", "--all", "--cluster", "a"], "give either --cluster NAME"),
        (["pause", "--why", "x"], "give either --cluster NAME"),
        (["pause", "--cluster", "a", "--why", "x", "--until", "soon"], "or 10m, 2h or 7d from now on"),
        (["pause", "--cluster", "a", "--why", "x", "--until", "2020-01-01T00:00:00Z"], "is over already"),
        (["mode", "stop", "--cluster", "a", "--why", "x"], "'stop' is not one of"),
        (["maintenance", "start", "--cluster", "a", "--why", "x"], "give --broker ID or --namespace"),
        (["maintenance", "end", "--cluster", "a", "--why", "x"], "give --broker ID or --namespace"),
        (
            ["maintenance", "start", "--cluster", "a", "--broker", "b", "--why", "x", "--until", "soon"],
            "expected RFC 3339",
        ),
        (
            [
                "maintenance",
                "start",
                "--cluster",
                "a",
                "--broker",
                "b",
                "--why",
                "x",
                "--until",
                "2026-11-25T06:00:00",
            ],
            "add Z for UTC",
        ),
        (["maintenance", "start", "--cluster", "a", "--broker", "b", "--why", " "], "give a reason"),
        (["drain", "--cluster", "a", "--why", "x"], "Missing option '--broker'"),
    ],
)
def test_a_command_without_sense_ends_with_code_2_before_it_connects(arguments: list[str], complaint: str):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
