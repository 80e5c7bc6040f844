"""What a policy sees of the cluster's own past."""

from policies.shedding.view import JudgedAction, Traffic, UnloadInFlight
from state.ledger import Verdict, end_watch
from state.pulsar import view
from tests.state.engine.test_ledger import A, B, decision, ledger_of, split

BEFORE = {"source": Traffic(100.0, 10.0), "destination": Traffic(5.0, 1.0)}
AFTER = {"source": Traffic(60.0, 6.0), "destination": Traffic(45.0, 5.0)}


def test_a_judged_unload_shows_its_brokers_and_the_load_expected_and_seen() -> None:
    moved = decision("a", traffic=Traffic(40.0, 4.0), before=BEFORE)
    end_watch(moved, Verdict("good", 4000, "b2", 1, expected=AFTER, seen={"source": Traffic(70.0, 7.0)}))
    assert view._judged_actions(ledger_of(moved), 10_000) == [
        JudgedAction(
            kind="unload",
            outcome="good",
            age_s=6.0,
            brokers={"source": "b1", "destination": "b2"},
            before=BEFORE,
            expected=AFTER,
            seen={"source": Traffic(70.0, 7.0)},
        )
    ]


def test_a_judged_split_and_an_unload_that_pulsar_placed_show_what_is_known() -> None:
    cut, placed = split("s"), decision("a", destination=None)
    end_watch(cut, Verdict("failed", 1000, "b1", 0))
    end_watch(placed, Verdict("ineffective", 2000, "b1", 3))
    first, second = view._judged_actions(ledger_of(cut, placed), 2000)
    assert (first.kind, first.outcome, first.age_s, first.brokers) == ("split", "failed", 1.0, {})
    assert (second.outcome, second.age_s, second.brokers) == ("ineffective", 0.0, {"source": "b1"})


def test_unloads_on_their_way_come_by_bundle() -> None:
    ledger = ledger_of(decision("b", bundle=B, source="b3"), decision("a", bundle=A, destination=None))
    assert view._in_flight(ledger, arrived=()) == [
        UnloadInFlight(A, "b1", None),
        UnloadInFlight(B, "b3", "b2"),
    ]
