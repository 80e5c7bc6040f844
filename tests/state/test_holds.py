"""Why a whole kind of actions is held, and what ends it."""

import pytest

from state import closing
from state.closing import Hold
from state.ledger import Ledger
from state.memory import Header
from state.settings import GuardSettings

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
        ("failing", True),
        ("two-balancers", True),
        ("quiet-hours", True),
        ("calm-after-change", True),
        ("budget", True),
        ("restricted-split", False),
        ("split-instead", False),
        ("too-little-benefit", False),
        ("anti-affinity", False),
        ("sole-bundle", False),
    ],
)
def test_hits_stay_where_the_same_action_may_happen_later(*, reason: str, passes: bool) -> None:
    assert Hold(reason, "").passes == passes  # type: ignore[arg-type]
