"""What a round may do: each limit holds by itself, and the last bundle of a broker stays."""

import pytest

from state.engine.ledger import Ledger
from state.pulsar.budget import Budget
from state.settings import GuardSettings

BUNDLES = [f"t/a/0x{at}_0x{at + 1}" for at in range(4)]


def budget(*, hour_count: int = 0, leaving: dict[str, set[str]] | None = None, **guards: object) -> Budget:
    return Budget(guards=GuardSettings(**guards), hour_count=hour_count, leaving=leaving or {})  # type: ignore[arg-type]


def taken(found: Budget, *, owned_count: int = 9, broker: str = "b1") -> list[str]:
    """The reason of each bundle's hold, empty for one that may go."""
    holds = [found.take(bundle, broker=broker, owned_count=owned_count) for bundle in BUNDLES]
    return ["" if hold is None else hold.reason for hold in holds]


@pytest.mark.parametrize(
    "limit",
    [
        "max_unloads_per_round_count",
        "max_unloads_per_hour_count",
        "max_unloads_per_broker_count",
        "max_unloads_per_namespace_count",
    ],
)
def test_a_limit_lets_as_many_through_as_it_says_and_0_lets_all_through(limit: str) -> None:
    assert taken(budget(**{limit: 2})) == ["", "", "budget", "budget"]
    assert taken(budget(**{limit: 0})) == ["", "", "", ""]


def test_the_hour_counts_what_earlier_rounds_did() -> None:
    assert taken(budget(hour_count=3, max_unloads_per_hour_count=4)) == ["", "budget", "budget", "budget"]


def test_the_last_bundle_of_a_broker_stays() -> None:
    assert taken(budget(), owned_count=3) == ["", "", "sole-bundle", "sole-bundle"]
    assert taken(budget(keep_sole_bundle=False), owned_count=3) == ["", "", "", ""]


def test_a_bundle_that_is_on_its_way_is_no_company_and_does_not_count_twice() -> None:
    assert taken(budget(leaving={"b1": {"t/z/0x0_0x1"}}), owned_count=3)[:2] == ["", "sole-bundle"]
    assert taken(budget(leaving={"b1": {BUNDLES[0]}}), owned_count=3)[:2] == ["", ""]


def test_what_is_held_spends_nothing() -> None:
    found = budget(max_unloads_per_round_count=2)
    assert found.take(BUNDLES[0], broker="b1", owned_count=1) is not None
    assert taken(found) == ["", "", "budget", "budget"]


def test_the_budget_of_a_round_begins_with_what_the_ledger_counts() -> None:
    found = Budget.of(Ledger(), GuardSettings(), {"b1": {"x"}}, end_ms=0)
    assert (found.hour_count, found.round_count, found.leaving) == (0, 0, {"b1": {"x"}})
