"""Problems that no action of ours can solve: of actions, bundles, topics and brokers, and coordinators that gathered at one."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policies.splitting.plan import SplitSettings, TopicTable
from state.events import Event, Tick
from state.ledger import Decision, Verdict
from state.pulsar import findings
from state.pulsar.effects import Effects, Elsewhere
from tests.state.building import END_MS, decision, ledger_of, seen
from tests.state.traces import load, run, settings_of


def ineffective(bundle: str, *, judged: bool = True, judged_ms: int = 1) -> Decision:
    found = decision(bundle=bundle)
    found.verdict = Verdict("ineffective", judged_ms, "b1", 3) if judged else None
    return found


def test_actions_without_effect_come_by_name_and_those_without_a_verdict_are_none() -> None:
    known = {"t/b": ineffective("t/b"), "t/c": ineffective("t/c", judged=False)}
    context = seen(
        load("b1", 470), header={"ledger": ledger_of(ineffective("t/a", judged_ms=END_MS - 1))}
    ).context
    found = findings.of_actions(context, Effects(elsewhere=[], ineffective=known, leaving={}))
    assert [(each.kind, each.subject, each.broker) for each in found] == [
        ("ineffective", "t/a", "b1"),
        ("ineffective", "t/b", "b1"),
    ]
    assert found[0].advice.startswith(
        "its unload is said to have succeeded, 3 rounds of reports show no effect"
    )


def test_what_landed_elsewhere_names_where_it_is_and_where_it_was_to_go() -> None:
    context = seen(load("b1", 470)).context
    moved = [Elsewhere("t/a", "b2", "b3")]
    (found,) = findings.of_actions(context, Effects(elsewhere=moved, ineffective={}, leaving={}))
    assert (found.kind, found.subject, found.broker) == ("landed-elsewhere", "t/a", "b2")
    assert found.advice.startswith("it was to go to b3: ")


def unowned(count: int, *, named: int | None = None) -> Tick:
    """A sweep that found so many bundles without an owner."""
    names = tuple((f"t/n/{number:03d}", 60_000) for number in range(count if named is None else named))
    return Tick(120_000, "t", ("b1",), (), names, count)


@pytest.mark.parametrize(
    ("tick", "bundles_count", "subjects"),
    [
        pytest.param(None, 100, [], id="no sweep in the round"),
        pytest.param(unowned(0), 100, [], id="all have an owner"),
        pytest.param(unowned(1), 4, ["t/n/000"], id="one of a few"),
        pytest.param(unowned(5), 100, [f"t/n/00{number}" for number in range(5)], id="a twentieth"),
        pytest.param(unowned(6), 100, [""], id="more than a twentieth are one finding"),
        pytest.param(unowned(40, named=40), 0, [""], id="all of them"),
    ],
)
def test_used_bundles_without_an_owner_are_named_and_many_at_once_are_one_finding(
    tick: Tick | None, bundles_count: int, subjects: list[str]
) -> None:
    found = findings.of_unowned(tick, bundles_count)
    assert [each.subject for each in found] == subjects
    assert {each.kind for each in found} <= {"unowned"}
    for each in found:
        assert "1970-01-01T00:01:00Z" in each.advice or "t/n/000, t/n/001, t/n/002" in each.advice


def table(*spans: tuple[int, int], rates: tuple[float, ...]) -> TopicTable:
    """Topics of each bundle row from start to end; ``rates`` in bytes/s by topic."""
    count = len(rates)
    known: dict[str, Any] = {
        "names": tuple(f"persistent://t/a/{row}" for row in range(count)),
        "bytes_per_s": np.array(rates),
        "messages_per_s": np.zeros(count),
        "starts": np.array([start for start, _ in spans]),
        "ends": np.array([end for _, end in spans]),
    }
    fields = TopicTable.__dataclass_fields__
    more = {name: np.zeros(count, dtype=np.int64) for name in fields if name not in known}
    return TopicTable(**known | more)


def hot(found: TopicTable) -> list[tuple[str, str | None]]:
    view: Any = SimpleNamespace(broker_of=lambda row: f"broker of {row}")
    settings = SplitSettings(hot_partition_bytes_per_s=10.0)
    return [(each.subject[-1], each.broker) for each in findings.of_topics(view, found, settings)]


def test_a_hot_partition_is_named_with_the_owner_of_its_bundle_the_hottest_first() -> None:
    assert hot(table((0, 1), (1, 1), (1, 4), rates=(11.0, 1.0, 12.0, 13.0))) == [
        ("3", "broker of 2"),
        ("2", "broker of 2"),
        ("0", "broker of 0"),
    ]


def test_bundles_out_of_order_and_topics_of_no_bundle_are_told_apart() -> None:
    assert hot(table((3, 4), (0, 2), rates=(11.0, 12.0, 13.0, 14.0))) == [
        ("3", "broker of 0"),
        ("1", "broker of 1"),
        ("0", "broker of 1"),
    ], "topic 2 is in no bundle's span"
    assert hot(table((0, 0), rates=(11.0,))) == []


SYSTEM = [f"pulsar/system/0x{at:x}0000000_0x{at + 1:x}0000000" for at in range(4)]
ROUNDS = {"length_s": 60.0, "lateness_s": 5.0, "max_report_age_s": 180.0, "warmup_rounds": 0}


def gathered_in(*moments: tuple[int, dict[str, list[str]]]) -> list[tuple[int, str, str]]:
    """Minute, subject and broker of each such finding; each moment has its minute and the bundles of pulsar/system by broker."""
    events: list[Event] = [
        load(
            broker,
            60 * minute + 5,
            cpu=40.0,
            bundles={f"t/{broker}/0x0_0x8": 10.0},
            system_bundles=[f"pulsar/{broker}:8080/0x0_0xf", *own],
        )
        for minute, brokers in moments
        for broker, own in brokers.items()
    ]
    found = run([events], settings_of(rounds=ROUNDS)).summaries
    return [
        (summary["round"], each["subject"], each["broker"])
        for summary in found
        for each in summary["findings"]["heaviest"]
        if each["kind"] == "coordinators-at-one-broker"
    ]


GATHERED: dict[str, list[str]] = {"b1": [], "b2": SYSTEM, "b3": []}


def test_they_are_named_when_all_were_at_one_of_three_brokers_for_a_quarter_of_an_hour() -> None:
    found = gathered_in(*((minute, GATHERED) for minute in range(19)))
    assert found == [(minute, "pulsar/system", "b2") for minute in range(15, 19)]


def test_a_missing_report_proves_nothing_and_another_broker_with_one_of_them_ends_it() -> None:
    silent = {"b1": [], "b3": []}
    assert gathered_in(*((minute, silent if minute == 9 else GATHERED) for minute in range(17)))[0][0] == 15
    spread = {"b1": SYSTEM[:1], "b2": SYSTEM[1:], "b3": []}
    assert gathered_in(*((minute, spread if minute == 9 else GATHERED) for minute in range(17))) == []


def test_two_brokers_or_a_single_bundle_are_no_finding() -> None:
    assert gathered_in(*((minute, {"b1": [], "b2": SYSTEM}) for minute in range(17))) == []
    assert gathered_in(*((minute, {"b1": [], "b2": SYSTEM[:1], "b3": []}) for minute in range(17))) == []
    assert gathered_in(*((minute, {"b1": [], "b2": [], "b3": []}) for minute in range(17))) == []
