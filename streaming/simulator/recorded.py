"""A simulated fleet that begins as a recorded one: its brokers, bundles, traffic, and their noise.

Known from reports: limits, the owner of each bundle, rates, sessions. Learned as the controller learns it: what traffic costs each broker.
Estimated: fast noise from successive rates, the error of CPU from what traffic does not explain. Topics are known where
statistics of topics were recorded; without them nothing can be split. A bundle belongs to the broker that reported it last.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from statistics import median

import numpy as np

from policies.columns import Floats
from policies.costs import BANDWIDTH_IN, BANDWIDTH_OUT, IDLE_CPU_POINTS, KBIT_PER_BYTE
from policies.splitting.ranges import positions_of
from state.events import SESSIONS, Event, LoadReport, TopicStats, namespace_of
from streaming.simulator.backtest import NoFleet, RecordedCosts
from streaming.simulator.setup import CPU, Build, Bundles, Machines, Measuring, Setup, Sources

_HOURS = 4.0
_MOST_NOISE_RATIO, _LEAST_NOISE_RATIO = 1.0, 0.02
_DRIFT_RATIO = 0.1
_FEWEST_BROKERS = 2


@dataclass(slots=True)
class _ClusterEvents:
    """What was reported about a cluster."""

    reports: dict[str, list[LoadReport]] = field(default_factory=lambda: defaultdict(list))
    topics: dict[str, dict[str, float]] = field(default_factory=dict)
    """By bundle, the last message rate of its topics."""


def recorded_fleets(events: Iterable[tuple[str, Event]]) -> dict[str, Build]:
    """The fleets of a recording by cluster. Raises ``NoFleet``."""
    seen: dict[str, _ClusterEvents] = defaultdict(_ClusterEvents)
    for cluster, event in events:
        if isinstance(event, LoadReport):
            seen[cluster].reports[event.broker].append(event)
        elif isinstance(event, TopicStats):
            _remember_topics(seen[cluster], event)
    fleets: dict[str, Build] = {}
    for cluster, each in seen.items():
        if len(each.reports) >= _FEWEST_BROKERS and (last := _find_last_owners(each)):
            machines = _machines(each)
            setup = Setup(
                machines=machines,
                sources=_sources(last),
                bundles=_bundles(each, last),
                alive=np.ones(len(machines), dtype=np.bool_),
                hours=_HOURS,
                measuring=_measuring(each),
            )
            fleets[cluster] = partial(_begin, setup)
    if not fleets:
        raise NoFleet("it has no Pulsar cluster with two brokers and a bundle")
    return fleets


def _begin(setup: Setup, _rng: np.random.Generator) -> Setup:
    """The same fleet for every seed; bundles are copied, because a run changes them."""
    return replace(setup, bundles=deepcopy(setup.bundles))


_LastOwners = dict[str, tuple[str, Floats]]
"""By bundle, ascending, the broker that listed it last, and all rates and sessions that were reported for it, (k, 5)."""


def _remember_topics(seen: _ClusterEvents, event: TopicStats) -> None:
    traffic, at = event.traffic, 0
    for bundle, count in zip(traffic.bundles, traffic.counts.tolist(), strict=True):
        rates = traffic.messages_per_s[at : at + count].tolist()
        seen.topics[bundle] = dict(zip(traffic.topics[at : at + count], rates, strict=True))
        at += count


def _find_last_owners(seen: _ClusterEvents) -> _LastOwners:
    owner: dict[str, tuple[int, str]] = {}
    rates: dict[str, list[Floats]] = defaultdict(list)
    for broker, reports in seen.reports.items():
        for each in reports:
            figures = np.column_stack([each.report.traffic, each.report.counts[:, SESSIONS]])
            for row, bundle in enumerate(each.report.bundles):
                owner[bundle] = max(owner.get(bundle, (0, "")), (each.time_ms, broker))
                rates[bundle].append(figures[row])
    return {bundle: (owner[bundle][1], np.array(rates[bundle])) for bundle in sorted(owner)}


def _machines(seen: _ClusterEvents) -> Machines:
    """The machines of the brokers by what their traffic costs."""
    learned = RecordedCosts()
    for report in sorted(chain.from_iterable(seen.reports.values()), key=attrgetter("age_key")):
        learned.add(report)
    names, costs = learned.costs()
    own = costs.factor[:, :, None] * costs.rule
    limits = costs.limits[:, : BANDWIDTH_OUT + 1]
    measured = limits > 0
    network = np.where(measured, limits, 0.0)[:, BANDWIDTH_IN:].max(axis=1) * 1000 / 8
    return Machines(
        names=names,
        cores=np.where(measured[:, CPU], limits[:, CPU] / 100.0, 1.0),
        network_bytes_per_s=np.where(network > 0, network, np.inf),
        idle_points=np.where(measured[:, CPU], IDLE_CPU_POINTS, 0.0),
        cpu_s_per_message=own[:, CPU, 0] / 100.0,
        cpu_s_per_byte=own[:, CPU, 1] / 100.0,
        network_per_byte=np.stack([own[:, BANDWIDTH_IN], own[:, BANDWIDTH_OUT, ::-1]], axis=1)
        / KBIT_PER_BYTE,
        sessions_count=np.full(len(names), np.inf),
        is_measured=measured,
    )


def _bundles(seen: _ClusterEvents, last: _LastOwners) -> Bundles:
    brokers = {name: row for row, name in enumerate(sorted(seen.reports))}
    names = list(last)
    rows = np.arange(len(names), dtype=np.int64)
    topics = [
        (row, topic, rate)
        for row, name in enumerate(names)
        for topic, rate in seen.topics.get(name, {}).items()
    ]
    home = np.array([row for row, _, _ in topics], dtype=np.int64)
    rate = np.array([each for _, _, each in topics], dtype=np.float64)
    total = np.bincount(home, weights=rate, minlength=len(names))
    return Bundles(
        names=names,
        source=rows,
        share=np.ones(len(names)),
        owner=np.array([brokers[last[name][0]] for name in names], dtype=np.int64),
        topics=[topic for _, topic, _ in topics],
        position=positions_of([topic for _, topic, _ in topics]),
        topic_bundle=home,
        topic_share=np.divide(rate, total[home], out=np.zeros_like(rate), where=total[home] > 0),
    )


def _sources(last: _LastOwners) -> Sources:
    namespaces = {name: row for row, name in enumerate(sorted({namespace_of(each) for each in last}))}
    mean = np.array([rates.mean(axis=0) for _, rates in last.values()])
    messages_in = np.where(mean[:, 0] > 0, mean[:, 0], mean[:, 1])
    sizes = (mean[:, 2] + mean[:, 3]) / np.maximum(mean[:, 0] + mean[:, 1], 1e-9)
    return Sources(
        namespace=np.array([namespaces[namespace_of(each)] for each in last], dtype=np.int64),
        messages_per_s=messages_in,
        bytes_per_message=sizes,
        fan_out=np.where(mean[:, 0] > 0, mean[:, 1] / np.maximum(mean[:, 0], 1e-9), 1.0),
        sessions_count=mean[:, 4],
        noise_ratio=np.array([_noise_ratio(rates) for _, rates in last.values()]),
        noise_s=40.0,
        common_noise_ratio=0.0,
        drift_ratio=_DRIFT_RATIO,
        drift_s=3 * 3600.0,
        swing_ratio=np.zeros(len(namespaces)),
        swing_phase_s=np.zeros(len(namespaces)),
    )


def _noise_ratio(rates: Floats) -> float:
    """Standard deviation of successive message rates' logarithms, as far as they are known."""
    messages = rates[:, 0] + rates[:, 1]
    logs = np.log(messages[messages > 0])
    steps = np.abs(np.diff(logs))
    steps = steps[steps > 0]  # two sweeps may find the same figures
    found = 1.4826 * float(np.median(steps)) / math.sqrt(2) if len(steps) else _LEAST_NOISE_RATIO
    return min(max(found, _LEAST_NOISE_RATIO), _MOST_NOISE_RATIO)


def _measuring(seen: _ClusterEvents) -> Measuring:
    """The error of CPU readings: their changes that changes of traffic do not explain."""
    errors = []
    for reports in seen.reports.values():
        usage, limit = np.array([each.report.resources[CPU] for each in reports]).T
        points = np.divide(100.0 * usage, limit, out=np.zeros_like(usage), where=limit > 0)
        messages = np.array([each.report.messages_per_s for each in reports])
        expected = points.mean() * messages / messages.mean() if messages.mean() > 0 else points
        errors += np.abs(np.diff(points - expected)).tolist()
    found = 1.4826 * median(errors) / math.sqrt(2) if errors else Measuring().cpu_error_points
    return Measuring(cpu_error_points=min(found, 20.0), spike_ratio=0.0)
