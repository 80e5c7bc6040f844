"""One round of each policy on columns that are ready, and a whole round of the controller around it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from policies.costs import CostMemory, Costs, learn
from policies.placement import LEAST_MESSAGE_RATE
from policies.shedding import (
    avg_shedder,
    fleet_planner,
    overload_shedder,
    threshold_shedder,
    uniform_load_shedder,
)
from policies.shedding.contract import NoMemory
from policies.shedding.view import BrokerTable, BundleTable, RoundView
from policies.usage import NOT_MEASURED, RESOURCES
from state.closing import Identity
from state.controller import Controller
from state.events import LoadReport
from state.guard_settings import GuardSettings
from state.settings import PulsarSettings, RoundSettings
from state.store import DictStore
from streaming.contract.decode import decode
from streaming.settings import ClusterSettingsSource, Settings
from tests.bench.loads import BUNDLES_COUNT, CLUSTER, ROUND_MS, Fleet
from tests.bench.report import Row, Section, best_cpu_s
from tests.policies.fleets import decide

SHARES = (0.0, 0.1, 0.5)
"""Share of the brokers that shed."""
_SMALL, _LARGE = 100, 1000
_PLANNER = "FleetPlanner"
_LIMITS_MS = {(_LARGE, 0.0): 1.0, (_LARGE, 0.5): 30.0}
_PLANNER_LIMITS_MS = {**_LIMITS_MS, (_LARGE, 0.0): 4.0}
"""The planner also learns in calm rounds."""
_SMALL_BUNDLES_COUNT = 1000
_SMALL_BUNDLES_LIMIT_MS = 60.0

Shed = Callable[[RoundView], Any]


def measure_policies(*, quick: bool) -> Section:
    """A round of each policy, and how it grows with the fleet."""
    rows: list[Row] = []
    for name, shed_of in _POLICIES.items():
        found = {
            (brokers, share): _round_ms(shed_of(brokers), brokers, share, times=3 if quick else 30)
            for brokers in (_SMALL, _LARGE)
            for share in SHARES
        }
        rows.extend(
            Row(
                _title(name, brokers, share),
                value,
                "ms",
                at_most=(_PLANNER_LIMITS_MS if name == _PLANNER else _LIMITS_MS).get((brokers, share)),
            )
            for (brokers, share), value in found.items()
        )
        rows.extend(
            Row(
                f"{name}, {share:.0%} shedding: {_LARGE} ÷ {_SMALL} brokers",
                found[_LARGE, share] / found[_SMALL, share],
                "x",
            )
            for share in SHARES
        )
    rows.extend(_planned(times=3 if quick else 30))
    return Section(
        title="A round of each policy",
        method=f"Brokers with {BUNDLES_COUNT} bundles each, every broker past its hit count; CPU time of one call of "
        "`shed`, the best of 30. UniformLoadShedder takes one of the shedding brokers. Placed: `place` "
        "after it, by the least message rate.",
        rows=rows,
    )


def _planned(*, times: int) -> list[Row]:
    """How many moves the planner plans in its rounds, and a round of it where bundles are small."""
    rows = []
    for brokers, bundles in ((_LARGE, BUNDLES_COUNT), (_SMALL, _SMALL_BUNDLES_COUNT)):
        shed, snapshot = _fleet_planner(brokers, bundles), _snapshot(brokers, max(SHARES), bundles)
        name = _title(_PLANNER, brokers, max(SHARES), bundles)
        if bundles != BUNDLES_COUNT:
            value = 1000 * best_cpu_s(lambda: shed(snapshot), times=times)  # noqa: B023  called at once
            rows.append(Row(name, value, "ms", at_most=_SMALL_BUNDLES_LIMIT_MS))
        rows.append(Row(f"{name}: moves planned", len(shed(snapshot).unload_rows), "moves"))
    return rows


def _title(policy: str, brokers_count: int, share: float, bundles_count: int = BUNDLES_COUNT) -> str:
    return f"{policy}, {brokers_count:,} x {bundles_count:,}, {share:.0%} of the brokers shedding"


def _round_ms(shed: Shed, brokers_count: int, share: float, *, times: int) -> float:
    snapshot = _snapshot(brokers_count, share)
    return 1000 * best_cpu_s(lambda: shed(snapshot), times=times)


def _snapshot(brokers_count: int, share: float, bundles_count: int = BUNDLES_COUNT) -> RoundView:
    """A share of the brokers is 30 points busier than the others."""
    draw = np.random.default_rng(1)
    usage = 0.5 + draw.uniform(-0.01, 0.01, brokers_count)
    usage[draw.permutation(brokers_count)[: round(share * brokers_count)]] += 0.3
    weight = draw.lognormal(0.0, 1.0, (brokers_count, bundles_count))
    weight /= weight.sum(axis=1, keepdims=True)
    messages, volume = usage * 1e5, usage * 1e9
    limits = np.full((brokers_count, len(RESOURCES)), NOT_MEASURED)
    limits[:, 0] = 100.0
    return RoundView(
        brokers=BrokerTable(
            names=_names(brokers_count),
            usage_ratio=usage,
            percents=np.column_stack([100.0 * usage, np.zeros((brokers_count, len(RESOURCES) - 1))]),
            limits=limits,
            measured=limits > 0,
            is_measured=np.ones(brokers_count, dtype=np.bool_),
            report_age_s=np.zeros(brokers_count),
            messages_per_s=messages,
            bytes_per_s=volume,
            listed_bundle_counts=np.full(brokers_count, bundles_count),
            may_receive=np.ones(brokers_count, dtype=np.bool_),
        ),
        bundles=BundleTable(
            names=[
                f"t/n{broker}/0x{at:08x}" for broker in range(brokers_count) for at in range(bundles_count)
            ],
            starts=np.arange(brokers_count + 1) * bundles_count,
            rates=np.repeat(
                np.column_stack([(weight * each[:, None]).ravel() / 2 for each in (messages, volume)]),
                2,
                axis=1,
            ),
            sampled=np.ones(brokers_count * bundles_count, dtype=np.bool_),
            messages_per_s=(weight * messages[:, None]).ravel(),
            bytes_per_s=(weight * volume[:, None]).ravel(),
            counts=np.zeros((brokers_count * bundles_count, 2), dtype=np.int64),
            movable=np.ones(brokers_count * bundles_count, dtype=np.bool_),
        ),
    )


def _names(brokers_count: int) -> tuple[str, ...]:
    return tuple(f"broker-{row:04d}" for row in range(brokers_count))


_OVERLOADED = overload_shedder.OverloadShedderSettings(threshold_points=70.0)
"""A threshold between the brokers that shed and those that do not."""


def _avg_shedder(brokers_count: int) -> Shed:
    settings = avg_shedder.AvgShedderSettings()
    hits = dict.fromkeys(_names(brokers_count), settings.low_hit_count)
    return _once(avg_shedder.POLICY, avg_shedder.AvgShedderMemory(low_hits=hits), settings)


def _threshold_shedder(brokers_count: int) -> Shed:
    """The history is equal and has no weight: brokers that are busier now shed."""
    history = dict.fromkeys(_names(brokers_count), 0.5)
    memory = threshold_shedder.ThresholdShedderMemory(history_ratio=history)
    settings = threshold_shedder.ThresholdShedderSettings(history_ratio=0.0)
    return _once(threshold_shedder.POLICY, memory, settings)


def _once(policy: Any, memory: object, settings: object) -> Shed:
    """A call of the policy's ``shed`` with this memory."""
    return lambda snapshot: decide(policy, snapshot, memory, settings)[0]


def _placed(brokers_count: int) -> Shed:
    shed = _POLICIES["OverloadShedder"](brokers_count)
    place, ratio = LEAST_MESSAGE_RATE.place, _OVERLOADED.threshold_ratio
    return lambda snapshot: place(snapshot, shed(snapshot), ratio)


def _fleet_planner(brokers_count: int, bundles_count: int = BUNDLES_COUNT) -> Shed:
    """The planner, after an hour in which it learned from a fleet without a difference."""
    policy, settings = fleet_planner.POLICY, fleet_planner.FleetPlannerSettings()
    memory, calm = policy.memory(), _snapshot(brokers_count, 0.0, bundles_count)
    for _ in range(60):
        _, memory = decide(policy, calm, memory, settings)
    costs, _ = _learn_costs(calm, CostMemory())
    learned: dict[int, Costs] = {}  # what traffic costs is learned outside the policy

    def shed(snapshot: RoundView) -> Any:
        if id(snapshot) not in learned:
            learned[id(snapshot)] = _learn_costs(snapshot, costs)[1]
        return decide(policy, replace(snapshot, costs=learned[id(snapshot)]), memory, settings)[0]

    return shed


def _learn_costs(view: RoundView, costs: CostMemory) -> tuple[CostMemory, Costs]:
    brokers = view.brokers
    rates = np.column_stack([brokers.messages_per_s] * 2 + [brokers.bytes_per_s] * 2) / 2
    return learn(costs, brokers.names, percents=brokers.percents, limits=brokers.limits, rates=rates)


_UNIFORM = uniform_load_shedder.UniformLoadShedderSettings()
_POLICIES: Mapping[str, Callable[[int], Shed]] = {
    "AvgShedder": _avg_shedder,
    "ThresholdShedder": _threshold_shedder,
    "UniformLoadShedder": lambda _: _once(uniform_load_shedder.POLICY, NoMemory(), _UNIFORM),
    "OverloadShedder": lambda _: _once(overload_shedder.POLICY, NoMemory(), _OVERLOADED),
    "OverloadShedder placed": _placed,
    _PLANNER: _fleet_planner,
}


def measure_round(*, quick: bool) -> Section:
    """A round of the controller from memory in bytes to memory in bytes."""
    reports = [_event(report) for report in Fleet(brokers_count=_LARGE).reports(time_ms=0)]
    store, taken_s, closed_s = DictStore(), [], []
    for number in range(3 if quick else 8):
        controller = Controller(
            CLUSTER, store, identity=Identity(), settings=ClusterSettingsSource(_deciding())
        )
        taken_s.append(best_cpu_s(partial(_take, controller, reports, number), times=1))
        closed_s.append(best_cpu_s(partial(_close, controller), times=1))
    return Section(
        title="A round of the controller",
        method=f"{_LARGE} x {BUNDLES_COUNT}, AvgShedder, the busiest hundredth of the brokers shedding: the fleet read from "
        "bytes, ownership and averages, masks, policy, budgets, actions and summary, the fleet written to bytes. CPU "
        "time, the best round.",
        rows=[
            Row("taking 1000 decoded reports", 1000 * min(taken_s), "ms"),
            Row("closing the round and writing the memory", 1000 * min(closed_s[1:]), "ms", at_most=60.0),
        ],
    )


def _event(report: bytes) -> LoadReport:
    event = decode(report)[1]
    assert isinstance(event, LoadReport), f"a report was refused: {event}"
    return event


def _deciding() -> Settings:
    """Settings that decide in every round, on what was reported, and never hold back."""
    return Settings(
        pulsar=PulsarSettings(
            shadow=False,
            rounds=RoundSettings(warmup_rounds=0),
            **{avg_shedder.POLICY.section: avg_shedder.AvgShedderSettings(low_hit_count=1, high_hit_count=1)},
            guards=GuardSettings(
                bundle_cooldown_s=0, max_unloads_per_round_count=0, max_unloads_per_hour_count=0
            ),
        )
    )


def _take(controller: Controller, reports: list[LoadReport], number: int) -> None:
    for report in reports:
        at = {"id": f"{report.id}+{number}", "time_ms": report.time_ms + number * ROUND_MS}
        controller.step(LoadReport(**at, broker=report.broker, report=report.report))


def _close(controller: Controller) -> None:
    outputs = controller.close_open()
    assert outputs[0].kind == "action", "the round decided nothing: it measures too little"
    controller.commit()
