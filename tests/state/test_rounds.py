"""What an open round keeps, how it closes, why a kind of actions is held in it, and that the memory before it stays.

What an error of ours leaves behind is in ``test_bulkhead``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from state import closing
from state.closing import Closing, Hold, Identity
from state.controller import SUPERSEDED, USED, Controller
from state.events import Event, Tick
from state.guard_settings import GuardSettings
from state.ledger import Decision, Ledger
from state.memory import Header, OpenRound, WaitingKey, decode_header, encode_header
from state.outputs import Configured, Output
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.pulsar.memory import Fleet
from state.pulsar.system import Pulsar
from state.rounds import Memory, Round, close
from state.store import DictStore
from tests.state.building import control, decision, ledger_of
from tests.state.traces import CLUSTER, facts, load, settings_of

NUMBER, START_MS, END_MS = 7, 70_000, 80_000
"""Rounds last ten seconds; a cluster that is silent for more than 25 s begins anew."""
SETTINGS = settings_of()


class Watched(Pulsar):
    """Pulsar, with what it is given to decide on."""

    def __init__(self) -> None:
        self.closings: list[Closing] = []

    def decide(
        self, closing: Closing, header: Header, memory: Fleet, waiting: Mapping[WaitingKey, Any]
    ) -> tuple[Fleet, list[Output]]:
        self.closings.append(closing)
        return super().decide(closing, header, memory, waiting)


def header_of(*, open_round: OpenRound | None = None, **fields: Any) -> Header:
    """A cluster whose broker b1 reported at 75 s."""
    usual: dict[str, Any] = {"length_ms": 10_000, "system": "pulsar", "next_round": NUMBER}
    reported = OpenRound(spans=[(75_000, 75_000)])
    return Header(**usual | fields, rounds={NUMBER: open_round or reported})


def closed(
    header: Header, *, identity: Identity | None = None, own: Fleet | None = None
) -> tuple[Memory[Fleet], list[Output], list[Closing]]:
    """The memory after the round, its outputs, and what the system was given."""
    system = Watched()
    event = load("b1", 75, bundles={"t/a/0x0_0x1": 1.0})
    reports = {WaitingKey(NUMBER, "report", "b1"): event}
    ended = Round(
        cluster=CLUSTER,
        number=NUMBER,
        waiting=reports,
        identity=identity or Identity(mode="act"),
        settings=SETTINGS,
        system=system,
    )
    after, outputs = close(ended, Memory(header=header, own=own or Fleet()))
    return after, outputs, system.closings


def the_closing(header: Header | None = None, **options: Any) -> Closing:
    (found,) = closed(header or header_of(), **options)[2]
    return found


def test_a_round_shows_what_its_controller_is_configured_with_whatever_the_control_event_says() -> None:
    event = control(mode="act", approval="none", settings={"pulsar": {"shadow": False}})
    identity = Identity(mode="dry-run", approval="required")
    found = the_closing(header_of(control={0: event}), identity=identity)
    base = SETTINGS.base(CLUSTER).in_force["pulsar"]
    assert (found.mode, found.settings.pulsar.shadow) == ("act", False)
    assert found.configured == Configured(
        mode="dry-run", approval="required", settings_digest=base.digest, settings=base.different
    )


def test_a_round_has_its_number_its_span_and_the_expiry_of_its_actions() -> None:
    found = the_closing(identity=Identity(mode="act", action_ttl_s=45.5, max_action_bytes=9))
    assert (found.cluster, found.number, found.start_ms, found.end_ms) == (CLUSTER, NUMBER, START_MS, END_MS)
    assert (found.expires_ms, found.max_action_bytes) == (END_MS + 45_500, 9)
    assert (found.control, found.settings_problem, found.overlay) == (None, None, ControlData())


def test_after_a_round_the_next_one_is_open_and_the_memory_before_it_stays_as_it_was() -> None:
    header, fleet = header_of(last_summary=6, rounds_since_start=3), Fleet()
    before = encode_header(header)
    after, outputs, _ = closed(header, own=fleet)
    assert [each.kind for each in outputs] == ["round"]
    assert (encode_header(header), fleet.brokers) == (before, [])
    assert after.own is not None
    assert after.own.brokers == ["b1"]
    assert (after.header.rounds, after.header.next_round) == ({}, NUMBER + 1)
    assert (after.header.last_summary, after.header.last_report_ms) == (NUMBER, 75_000)
    assert (after.header.rounds_since_start, after.header.last_mode) == (4, "act")


def test_a_round_without_a_report_has_no_summary_and_only_moves_the_clock() -> None:
    silent = OpenRound(tick=Tick(75_000, "t", ("b1",), ()))
    header = header_of(open_round=silent, last_summary=5, rounds_since_start=3, last_mode="dry-run")
    after, outputs, closings = closed(header)
    assert (outputs, closings) == ([], [])
    assert after.header == msgspec.structs.replace(header, rounds={}, next_round=NUMBER + 1)


@pytest.mark.parametrize(("last_summary", "gap_rounds"), [(None, 0), (6, 0), (5, 1), (0, 6)])
def test_rounds_without_a_summary_since_the_last_one_are_counted(
    last_summary: int | None, gap_rounds: int
) -> None:
    assert the_closing(header_of(last_summary=last_summary)).gap_rounds == gap_rounds


@pytest.mark.parametrize(
    ("last_report_ms", "restarted", "rounds_since_start"),
    [(None, False, 10), (50_000, False, 10), (49_999, True, 1)],
    ids=["the first report", "25 s of silence", "more than 25 s"],
)
def test_after_a_long_silence_the_warm_up_begins_anew(
    last_report_ms: int | None, *, restarted: bool, rounds_since_start: int
) -> None:
    header = header_of(last_report_ms=last_report_ms, rounds_since_start=9)
    after, _, (found,) = closed(header)
    assert found.restarted is restarted
    assert after.header.rounds_since_start == rounds_since_start


@pytest.mark.parametrize(
    ("started", "ordered", "mode"),
    [
        ("act", None, "act"),
        ("act", "dry-run", "dry-run"),
        ("dry-run", "act", "act"),
        ("dry-run", None, "dry-run"),
    ],
)
def test_the_mode_of_a_control_event_comes_before_that_of_the_start(
    started: Any, ordered: Any, mode: str
) -> None:
    header = header_of(control={0: control(mode=ordered)})
    assert the_closing(header, identity=Identity(mode=started)).mode == mode


@pytest.mark.parametrize(
    ("identity", "ordered", "expire_ms"),
    [
        (Identity(mode="act", approval="required", proposal_ttl_s=30.0), None, END_MS + 30_000),
        (Identity(mode="act", proposal_ttl_s=30.0), "required", END_MS + 30_000),
        (Identity(mode="act", approval="required"), "none", None),
        (Identity(mode="act"), None, None),
        (Identity(mode="dry-run", approval="required"), None, None),
    ],
    ids=["as started", "as ordered", "no longer", "never", "a dry-run needs none"],
)
def test_proposals_expire_where_actions_need_approval(
    identity: Identity, ordered: Any, expire_ms: int | None
) -> None:
    header = header_of(control={0: control(approval=ordered)})
    assert the_closing(header, identity=identity).proposals_expire_ms == expire_ms


@pytest.mark.parametrize(("until_ms", "apart"), [(None, {"b1"}), (70_001, {"b1"}), (70_000, set())])
def test_maintenance_holds_for_rounds_that_begin_before_its_end(
    until_ms: int | None, apart: set[str]
) -> None:
    until = None if until_ms is None else moment_at(until_ms)
    windows = {"b1": MaintenanceWindow(since=moment_at(0), until=until)}
    header = header_of(control={0: control(maintenance_brokers=windows)})
    assert set(the_closing(header).overlay.apart) == apart


def test_an_overlay_that_fits_is_in_force_and_one_that_does_not_is_named() -> None:
    fits = control(settings={"pulsar": {"shedding_policy": "threshold-shedder"}})
    found = the_closing(header_of(control={0: fits}))
    assert (found.settings.pulsar.shedding_policy, found.settings_problem) == ("threshold-shedder", None)
    strange = control(settings={"pulsar": {"shedding_policy": "none-such"}})
    found = the_closing(header_of(control={0: strange}))
    assert found.settings == SETTINGS.base(CLUSTER)
    assert found.settings_problem is not None
    assert found.settings_problem.startswith("the overlay does not fit the settings of this start")


DRY, REAL = decision("dry", dry_run=True), decision("real", "t/a/0x1_0x2")


@pytest.mark.parametrize(
    ("last_mode", "mode", "left"),
    [
        ("dry-run", "act", [REAL]),
        ("dry-run", "dry-run", [DRY, REAL]),
        ("act", "act", [DRY, REAL]),
        ("act", "dry-run", [DRY, REAL]),
    ],
)
def test_what_a_dry_run_decided_is_forgotten_in_the_round_that_acts_again(
    last_mode: Any, mode: Any, left: list[Decision]
) -> None:
    header = header_of(last_mode=last_mode, ledger=ledger_of(DRY, REAL))
    after, _, _ = closed(header, identity=Identity(mode=mode))
    assert [each.id for each in after.header.ledger.decisions] == [each.id for each in left]
    assert after.header.last_mode == mode


KNOWN = (60_000, "m")
"""Time and id of what is known already."""


def tick(time_ms: int, id_: str) -> Tick:
    return Tick(time_ms, id_, ("b1", id_), (("b1", "no answer"),), (("t/n/0x0_0x1", 5),), 7)


def known_facts(time_ms: int, id_: str) -> Event:
    return facts(time_ms / 1000, shedding=[id_], id_=id_)


@pytest.mark.parametrize("event_of", [tick, known_facts], ids=["ticks", "facts"])
@pytest.mark.parametrize(
    ("time_ms", "id_", "is_kept"),
    [
        (60_001, "a", True),
        (59_999, "z", False),
        (60_000, "n", True),
        (60_000, "l", False),
        (60_000, "m", False),
    ],
    ids=["newer", "older", "a greater id", "a lesser id", "a repeat"],
)
def test_the_newest_tick_and_the_newest_facts_of_a_round_are_kept(
    event_of: Callable[[int, str], Event], time_ms: int, id_: str, *, is_kept: bool
) -> None:
    store = DictStore()
    settings = settings_of(rounds={"length_s": 120.0})
    controller = Controller(CLUSTER, store, identity=Identity(), settings=settings)
    known, event = event_of(*KNOWN), event_of(time_ms, id_)
    for each in (load("b1", 59.0), known, event):
        controller.step(each)
    assert controller.take_results()[type(event), USED if is_kept else SUPERSEDED] == (2 if is_kept else 1)
    controller.commit()
    (open_round,) = decode_header(store.header() or b"").rounds.values()
    kept = event if is_kept else known
    assert [each for each in (open_round.tick, open_round.facts) if each is not None] == [kept]


GUARDS = GuardSettings(failing_actions_count=5)


def header(*, failing_since_ms: dict[str, int] | None = None, held_ms: int | None = None) -> Header:
    ledger = Ledger(failing_since_ms=failing_since_ms or {})  # type: ignore[arg-type]
    return Header(length_ms=60_000, ledger=ledger, error_held_since_ms=held_ms, error_place="f.py:1")


def test_a_healthy_cluster_is_not_held() -> None:
    assert closing.failing_hold(header(), GUARDS, "unload") is None
    assert closing.error_hold(header()) is None
    assert closing.failing_since(header(), GUARDS) == {}


def test_failures_of_one_kind_hold_that_kind_only_and_name_the_remedy() -> None:
    failing = header(failing_since_ms={"split": 60_000})
    assert closing.failing_hold(failing, GUARDS, "unload") is None
    found = closing.failing_hold(failing, GUARDS, "split")
    assert found is not None
    assert found.reason == "failing"
    assert found.detail.startswith("5 of the last 10 actions failed or had no effect")
    assert "trimtab resume" in found.detail
    assert closing.failing_since(failing, GUARDS) == {"split": "1970-01-01T00:01:00.000Z"}


def test_a_guard_that_is_off_holds_nothing() -> None:
    off = GuardSettings(failing_actions_count=0)
    failing = header(failing_since_ms={"unload": 60_000})
    assert closing.failing_hold(failing, off, "unload") is None
    assert closing.failing_since(failing, off) == {}


def test_errors_of_ours_hold_every_kind_since_the_earlier_of_both_reasons() -> None:
    failing = header(failing_since_ms={"unload": 30_000}, held_ms=60_000)
    for kind in ("unload", "split"):
        found = closing.failing_hold(failing, GuardSettings(failing_actions_count=0), kind)  # type: ignore[arg-type]
        assert found is not None
        assert "3 rounds in a row ended in an internal error (f.py:1)" in found.detail
    assert closing.failing_since(failing, GUARDS) == {
        "unload": "1970-01-01T00:00:30.000Z",
        "split": "1970-01-01T00:01:00.000Z",
    }


@pytest.mark.parametrize(("resumed_ms", "is_held"), [(59_999, True), (60_000, False), (60_001, False)])
def test_a_person_ends_what_held_up_to_then(*, resumed_ms: int, is_held: bool) -> None:
    held = header(failing_since_ms={"unload": 60_000, "split": 60_000}, held_ms=60_000)
    closing.resume(held, resumed_ms)
    assert (held.error_held_since_ms is not None) == is_held
    assert (held.error_place == "f.py:1") == is_held
    assert set(held.ledger.failing_since_ms) == ({"unload", "split"} if is_held else set())


@pytest.mark.parametrize(
    ("reason", "passes"),
    [
        ("paused", True),
        ("starting", True),
        ("failing", True),
        ("two-balancers", True),
        ("quiet-hours", True),
        ("calm-after-change", True),
        ("budget", True),
        ("split-first", True),
        ("restricted-split", False),
        ("split-instead", False),
        ("too-little-benefit", False),
        ("anti-affinity", False),
        ("sole-bundle", False),
    ],
)
def test_hits_stay_where_the_same_action_may_happen_later(*, reason: str, passes: bool) -> None:
    assert Hold(reason, "").passes == passes  # type: ignore[arg-type]
