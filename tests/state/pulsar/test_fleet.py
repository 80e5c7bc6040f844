"""Ownership and averages: the columns agree with a plain version of the rule, on many random traces."""

from itertools import groupby

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.shedding.view import BrokerTable, BundleTable, RoundView
from policies.usage import RESOURCES, weighted_maximum_ratio
from state.events import Event, LoadReport, namespace_of
from state.pulsar.codec import decode_fleet, encode_fleet
from state.pulsar.fleet import Sampling, advance
from state.pulsar.memory import NOBODY, Fleet, WaitingReport
from tests.policies.fleets import decide, unloads_of
from tests.state.pulsar.dumb_fleet import Bundle, DumbFleet
from tests.state.traces import EAGER, PULSARS_POLICIES, plain_traces, run, settings_of

LENGTH_MS, AGE_MS = 10_000, 25_000


def rounds_of(trace: list[Event]) -> list[tuple[int, dict[str, WaitingReport]]]:
    """Newest report of each broker, round by round, as the controller would take them."""
    loads = [event for event in trace if isinstance(event, LoadReport)]
    return [
        (
            number,
            {
                event.broker: WaitingReport(event.time_ms, event.id, event.report)
                for event in sorted(of_round, key=lambda e: e.age_key)
            },
        )
        for number, of_round in groupby(loads, key=lambda event: event.time_ms // LENGTH_MS)
    ]


def spelled_out(fleet: Fleet) -> tuple[dict[str, int], dict[str, dict[str, int]], dict[str, Bundle]]:
    runs = {
        broker: {
            fleet.bundles[row]: start
            for row, start in zip(
                fleet.listed_rows[fleet.starts[i] : fleet.starts[i + 1]].tolist(),
                fleet.run_start_ms[fleet.starts[i] : fleet.starts[i + 1]].tolist(),
                strict=True,
            )
        }
        for i, broker in enumerate(fleet.brokers)
    }
    bundles = {
        name: Bundle(
            owner=None if fleet.owner[row] == NOBODY else fleet.brokers[int(fleet.owner[row])],
            last_ms=int(fleet.last_ms[row]),
            samples=int(fleet.samples[row]),
            average=fleet.averages[row].tolist(),
            is_skip_owed=bool(fleet.owed_skip[row]),
        )
        for row, name in enumerate(fleet.bundles)
    }
    return dict(zip(fleet.brokers, fleet.broker_last_ms.tolist(), strict=True)), runs, bundles


@settings(max_examples=80, deadline=None, derandomize=True)
@given(trace=plain_traces, average_samples=st.integers(1, 4), skips=st.booleans(), is_stored=st.booleans())
def test_the_columns_agree_with_the_plain_telling(
    *, trace: list[Event], average_samples: int, skips: bool, is_stored: bool
):
    dumb = DumbFleet(max_age_ms=AGE_MS, average_samples=average_samples, skips=skips)
    fleet = Fleet()
    for number, reports in rounds_of(trace):
        end_ms = (number + 1) * LENGTH_MS
        dumb.advance(reports, end_ms=end_ms)
        sampling = Sampling(samples=average_samples, split_samples=average_samples, skip_after_move=skips)
        advanced = advance(fleet, reports, sampling, round_end_ms=end_ms, max_report_age_ms=AGE_MS)
        fleet, listed = advanced.fleet, advanced.owned_count
        named = [fleet.namespaces[row] for row in fleet.namespace.tolist()]
        assert named == [namespace_of(bundle) for bundle in fleet.bundles]
        assert sorted(set(named)) == sorted(fleet.namespaces)
        assert fleet.split_samples.tolist() == fleet.samples.tolist()
        sums = np.column_stack([fleet.averages[:, :2].sum(axis=1), fleet.averages[:, 2:].sum(axis=1)])
        np.testing.assert_allclose(fleet.split_averages, sums)
        assert spelled_out(fleet) == (dumb.last_ms, dumb.runs, dumb.bundles)
        assert fleet.bundles[:listed] == dumb.listed
        assert fleet.brokers == sorted(fleet.brokers)
        fleet = decode_fleet(encode_fleet(fleet)) if is_stored else fleet


FREE = {
    "guards": {
        "bundle_cooldown_s": 0.0,
        "keep_sole_bundle": False,
        "max_unloads_per_round_count": 0,
        "max_unloads_per_hour_count": 0,
    },
    "rounds": {"warmup_rounds": 0, "quorum_ratio": 0.0, "max_report_age_s": 1000.0},
    "skip_sample_after_move": False,
    "split": {"enabled": False},
}


def snapshot_of(dumb: DumbFleet, reports: dict[str, WaitingReport], weights: list[float]) -> RoundView:
    """What the policy should see, computed by the plain version."""
    names = tuple(sorted(reports))
    found = [reports[name].report for name in names]
    cpu = np.array([each.resources[0, 0] for each in found])
    percents = np.zeros((len(names), len(RESOURCES)))
    percents[:, 0] = (cpu.astype(np.float32) / np.float32(100) * np.float32(100)).astype(np.float64)
    owned = list(dumb.listed)
    averages = np.array([dumb.bundles[name].average for name in owned]).reshape(-1, 4)
    counts = [sum(dumb.bundles[name].owner == broker for name in owned) for broker in names]
    return RoundView(
        brokers=BrokerTable(
            names=names,
            percents=percents,
            limits=np.full((len(names), len(RESOURCES)), 100.0),
            measured=np.ones((len(names), len(RESOURCES)), dtype=np.bool_),
            is_measured=np.ones(len(names), dtype=np.bool_),
            report_age_s=np.zeros(len(names)),
            usage_ratio=weighted_maximum_ratio(percents, np.array(weights)),
            messages_per_s=np.array([each.messages_per_s for each in found]),
            bytes_per_s=np.array([each.bytes_per_s for each in found]),
            listed_bundle_counts=np.array([each.listed_count for each in found]),
            may_receive=np.ones(len(names), dtype=np.bool_),
        ),
        bundles=BundleTable(
            names=owned,
            starts=np.cumsum([0, *counts]),
            rates=averages,
            sampled=np.ones(len(owned), dtype=np.bool_),
            messages_per_s=averages[:, 0] + averages[:, 1],
            bytes_per_s=averages[:, 2] + averages[:, 3],
            counts=np.zeros((len(owned), 2), dtype=np.int64),
            movable=np.array([dumb.bundles[name].samples > 0 for name in owned], dtype=np.bool_),
        ),
    )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(plain_traces, st.sampled_from(PULSARS_POLICIES))
def test_without_guards_exactly_the_policys_decisions_come_out(trace: list[Event], policy: str):
    source = settings_of(**(EAGER | FREE), shedding_policy=policy)
    pulsar = source.base("").pulsar
    dumb = DumbFleet(max_age_ms=1_000_000, average_samples=pulsar.bundle_average_samples, skips=False)
    chosen = pulsar.policy
    memory = chosen.memory()
    expected = []
    for number, reports in rounds_of(trace):
        dumb.advance(reports, end_ms=(number + 1) * LENGTH_MS)
        snapshot = snapshot_of(dumb, reports, pulsar.usage.weights().tolist())
        plan, memory = decide(chosen, snapshot, memory, pulsar.of_policy(chosen))
        expected += [(number, *unload) for unload in unloads_of(snapshot, plan)]
    actions = run([trace], source).actions
    assert [
        (action["round"], action["bundle"], action["source_broker"], action["destination_broker"])
        for action in actions
    ] == expected
