"""TransferShedder: it decides the same as Pulsar's own class of 4.2.4, except where its module says otherwise."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.shedding.contract import ADMITTED, POSTPONED, REFUSED
from policies.shedding.transfer_shedder import POLICY, TransferShedderMemory, TransferShedderSettings
from policies.shedding.view import NOT_OWNED, RoundView
from streaming.spark.jars import JavaError, find_java, is_cached
from tests.policies.fleets import decide, examined_of, tried_of, unloads_of
from tests.policies.transfer_shedder.cases import Case, random_case, settings_of, view_of
from tests.policies.transfer_shedder.pulsar import LOCK, Answers, ask, recorded

AT_ONCE = TransferShedderSettings(hit_count=0)


def broker(usage_ratio: float, *volumes: float, **given: Any) -> dict[str, Any]:
    """A broker with a bundle of each of these bytes/s, ``b1`` and so on; it publishes all of them."""
    return {
        "usage_ratio": usage_ratio,
        "bytes_per_s": sum(volumes),
        "smoothed_bytes_per_s": sum(volumes),
        "age_s": 5.0,
        "volumes": volumes,
        **given,
    }


def fleet(**brokers: dict[str, Any]) -> RoundView:
    found = {
        name: {
            **each,
            "top": [
                {"name": f"shop/{name}/{place}", "bytes_per_s": volume, "movable": True}
                for place, volume in enumerate(each["volumes"], start=1)
            ],
        }
        for name, each in brokers.items()
    }
    return view_of({"brokers": found})


def ours(case: Case) -> Answers:
    """The policy's answers to a case, in the format of Pulsar's answers."""
    memory, settings, answers = TransferShedderMemory(), settings_of(case), []
    for round_ in case["rounds"]:
        view = view_of(round_)
        plan, memory = decide(POLICY, view, memory, settings)
        reasons = [plan.examined.trigger_of(row).capitalize() for row in plan.unload_examined.tolist()]
        unloads = [
            f"{bundle} {source} {destination or '-'} {reason}"
            for (bundle, source, destination), reason in zip(unloads_of(view, plan), reasons, strict=True)
        ]
        tried_of(view, plan)
        answers.append({"unloads": sorted(unloads), "hit_count": memory.hit_count})
    return answers


def test_it_decides_and_counts_what_system_bundles_class_does() -> None:
    cases = list(recorded())
    assert len(cases) >= 500
    different = [number for number, (case, theirs) in enumerate(cases) if ours(case) != theirs]
    assert different == []


def test_the_recorded_cases_have_swaps_both_reasons_and_transfers_without_a_destination() -> None:
    unloads = [
        unload.split() for _, answers in recorded() for answer in answers for unload in answer["unloads"]
    ]
    sources = [
        {unload.split()[1] for unload in answer["unloads"]}
        & {unload.split()[2] for unload in answer["unloads"]}
        for _, answers in recorded()
        for answer in answers
    ]
    assert len(unloads) > 2000
    assert {reason for *_, reason in unloads} == {"Overloaded", "Underloaded"}
    assert any(destination == "-" for _, _, destination, _ in unloads)
    assert sum(bool(each) for each in sources) > 100


@pytest.mark.slow
def test_it_decides_what_pulsars_class_answers_to_cases_never_seen() -> None:
    try:
        find_java()
    except JavaError as error:
        pytest.skip(str(error))
    if not is_cached(LOCK):
        pytest.skip(f"the jars of {LOCK.name} are not in the cache")
    cases = [random_case(seed) for seed in range(10_000, 10_300)]
    for case, theirs in zip(cases, ask(cases), strict=True):
        assert ours(case) == theirs


def test_a_fleet_is_evened_out_from_the_lightest_bundle_on_and_the_heaviest_stays() -> None:
    view = fleet(hot=broker(0.9, 10, 20, 30, 40), cold=broker(0.1, 1))
    plan, _ = decide(POLICY, view, TransferShedderMemory(), AT_ONCE)
    # (0.9 - 0.1) / 2 of 0.9 is 44.4 of 100 bytes/s
    assert unloads_of(view, plan) == [("shop/hot/1", "hot", "cold"), ("shop/hot/2", "hot", "cold")]
    assert tried_of(view, plan) == {
        "shop/hot/1": "acted",
        "shop/hot/2": "acted",
        "shop/hot/3": "need-met",
        "shop/hot/4": "need-met",
    }
    assert examined_of(view, plan) == {"hot>cold": "fired"}


def test_a_bundle_too_big_by_itself_is_swapped_for_one_that_comes_back() -> None:
    # 50 of 100 bytes/s may go. Swapping 60 for 20 leaves 60 and 70, which is not below;
    # swapping 60 for 20 and 10 leaves 70 and 60.
    view = fleet(hot=broker(1.0, 60, 40, bytes_per_s=100.0), cold=broker(0.0, 10, 20))
    plan, _ = decide(POLICY, view, TransferShedderMemory(), AT_ONCE)
    assert unloads_of(view, plan) == [
        ("shop/cold/1", "cold", "hot"),
        ("shop/cold/2", "cold", "hot"),
        ("shop/hot/1", "hot", "cold"),
    ]
    assert {view.bundles.names[row] for row in plan.unload_swap_group.tolist()} == {"shop/hot/1"}


@pytest.mark.parametrize(
    ("view", "outcome"),
    [
        pytest.param(fleet(a=broker(0.5, 1, 2), b=broker(0.4, 1, 2)), "below-target", id="even"),
        pytest.param(fleet(a=broker(0.9, 1, 2)), "sole-broker", id="one broker"),
        pytest.param(
            fleet(a=broker(0.9, 1, 2, unloaded_age_s=100.0), b=broker(0.1)), "cooldown", id="shed lately"
        ),
        pytest.param(
            fleet(a=broker(0.9, 1, age_s=1900.0), b=broker(0.1, age_s=1900.0)), "outdated", id="all outdated"
        ),
        pytest.param(
            fleet(a=broker(0.9, 1), b=broker(0.1), c=broker(0.1, missing=True)),
            "no-load-data",
            id="one missing",
        ),
        pytest.param(
            replace(fleet(a=broker(0.9, 1), b=broker(0.1)), published=None),
            "no-load-data",
            id="not published",
        ),
        pytest.param(fleet(a=broker(0.9), b=broker(0.1)), "no-top-bundles", id="no bundles"),
        pytest.param(fleet(a=broker(0.9, 5), b=broker(0.1)), "sole-bundle", id="one bundle"),
        pytest.param(fleet(a=broker(0.9, 50, 50), b=broker(0.1)), "nothing-fits", id="too big"),
    ],
)
def test_why_nothing_moves_is_said(view: RoundView, outcome: str) -> None:
    plan, _ = decide(POLICY, view, TransferShedderMemory(), AT_ONCE)
    assert plan.examined.outcome_of(0) == outcome
    assert len(plan.unload_rows) == 0


def test_a_broker_that_is_not_there_or_cools_keeps_the_hit_count() -> None:
    view = fleet(a=broker(0.9, 1), b=broker(0.1), c=broker(0.1, missing=True))
    assert decide(POLICY, view, TransferShedderMemory(hit_count=2), AT_ONCE)[1].hit_count == 2


def test_a_bundle_that_may_not_move_is_neither_moved_nor_swapped_back() -> None:
    view = fleet(hot=broker(1.0, 60, 40, bytes_per_s=100.0), cold=broker(0.0, 10, 20))
    names = list(view.bundles.names)
    movable = view.bundles.movable.copy()
    movable[names.index("shop/cold/1")] = False
    view = replace(view, bundles=replace(view.bundles, movable=movable))
    plan, _ = decide(POLICY, view, TransferShedderMemory(), AT_ONCE)
    assert "shop/cold/1" not in {bundle for bundle, _, _ in unloads_of(view, plan)}


def test_a_published_bundle_that_left_its_broker_is_not_tried() -> None:
    view = fleet(hot=broker(0.9, 10, 20, 30, 40), cold=broker(0.1, 1))
    assert view.published is not None
    rows = view.published.top_rows.copy()
    rows[rows == list(view.bundles.names).index("shop/hot/1")] = NOT_OWNED
    view = replace(view, published=replace(view.published, top_rows=rows))
    plan, _ = decide(POLICY, view, TransferShedderMemory(), AT_ONCE)
    assert "shop/hot/1" not in tried_of(view, plan)
    assert tried_of(view, plan)["shop/hot/2"] == "acted"


def test_a_broker_that_may_not_receive_gets_nothing() -> None:
    view = fleet(hot=broker(0.9, 10, 20, 30, 40), cold=broker(0.1, 1))
    cold = view.brokers.names.index("cold")
    may_receive = np.arange(2) != cold
    view = replace(view, brokers=replace(view.brokers, may_receive=may_receive))
    plan, _ = decide(POLICY, view, TransferShedderMemory(), AT_ONCE)
    assert set(tried_of(view, plan).values()) == {"no-destination"}


@pytest.mark.parametrize(("fate", "hit_count"), [(ADMITTED, 0), (REFUSED, 0), (POSTPONED, 4)])
def test_the_hit_count_is_kept_as_long_as_what_it_asked_for_waits(fate: int, hit_count: int) -> None:
    view = fleet(hot=broker(0.9, 10, 20, 30, 40), cold=broker(0.1, 1))
    proposal = POLICY.plan(view, TransferShedderMemory(hit_count=3), TransferShedderSettings())
    fates = np.full(len(proposal.plan.unload_rows), fate, dtype=np.int8)
    assert POLICY.settle(proposal, fates).hit_count == hit_count


def test_a_group_of_brokers_is_judged_by_what_its_own_brokers_publish() -> None:
    view = fleet(a=broker(0.9, 10, 20, 30, 40), b=broker(0.5, 7, 8), c=broker(0.1, 1))
    part, _ = view.part(np.array([0, 2]))
    plan, _ = decide(POLICY, part, TransferShedderMemory(), AT_ONCE)
    assert unloads_of(part, plan) == [("shop/a/1", "a", "c"), ("shop/a/2", "a", "c")]
