"""Reports as a broker would have sent them with other bundles: figures of the recorded report, less what left, plus what came."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from policies.columns import Floats, Ints
from policies.costs import Costs, figures_of
from policies.usage import REPORTED_COUNT
from state.events import BrokerReport, TopicTraffic
from streaming.simulator.backtest.elsewhere import Topics


class Row(NamedTuple):
    """A bundle that a report did not list."""

    bundle: str
    traffic: Floats
    """(4,)."""
    counts: Ints
    """Topics and sessions, (2,)."""


class TopicsOfBundle(NamedTuple):
    """A bundle that the statistics of a broker did not list."""

    bundle: str
    topics: Topics


def with_rows(
    report: BrokerReport, leaving: Collection[int], arriving: Sequence[Row], costs: Costs, broker: int
) -> BrokerReport:
    """The report without some of its rows and with others; ``broker`` is its row of ``costs``."""
    kept = np.array([row for row in range(len(report.bundles)) if row not in leaving], dtype=np.int64)
    bundles = [report.bundles[row] for row in kept.tolist()] + [each.bundle for each in arriving]
    traffic = np.vstack([report.traffic[kept], *(each.traffic for each in arriving)])
    counts = np.vstack([report.counts[kept], *(each.counts for each in arriving)])
    known = np.concatenate([report.has_traffic[kept], np.ones(len(arriving), dtype=np.bool_)])
    order = sorted(range(len(bundles)), key=bundles.__getitem__)
    change = traffic[len(kept) :].sum(axis=0) - report.traffic[sorted(leaving)].sum(axis=0)
    return BrokerReport(
        resources=_resources(report.resources, change, costs, broker),
        messages_per_s=max(0.0, report.messages_per_s + float(change[:2].sum())),
        bytes_per_s=max(0.0, report.bytes_per_s + float(change[2:].sum())),
        listed_count=report.listed_count + len(arriving) - len(leaving),
        bundles=[bundles[row] for row in order],
        traffic=traffic[order],
        has_traffic=known[order],
        counts=counts[order],
    )


def _resources(resources: Floats, change: Floats, costs: Costs, broker: int) -> Floats:
    """What a broker measures after a change of traffic, from 0 to its limits; what was not measured stays so."""
    amounts = costs.amounts_at(np.array([broker]), figures_of(change[None, :]))[0, :REPORTED_COUNT]
    usage, limits = resources.T
    changed = resources.copy()
    changed[:, 0] = np.where(limits > 0, np.clip(usage + amounts, 0.0, np.maximum(usage, limits)), usage)
    return changed


def with_topics(
    traffic: TopicTraffic, leaving: Collection[str], arriving: Sequence[TopicsOfBundle]
) -> TopicTraffic:
    """Statistics without some bundles and with others."""
    is_kept = np.array([each not in leaving for each in traffic.bundles], dtype=np.bool_)
    topics = np.repeat(is_kept, traffic.counts)
    kept = np.flatnonzero(topics).tolist()
    return TopicTraffic(
        bundles=[
            *(name for name, keep in zip(traffic.bundles, is_kept.tolist(), strict=True) if keep),
            *(each.bundle for each in arriving),
        ],
        counts=np.concatenate(
            [traffic.counts[is_kept], np.array([len(each.topics.names) for each in arriving], dtype=np.int64)]
        ),
        topics=[traffic.topics[row] for row in kept]
        + [name for each in arriving for name in each.topics.names],
        messages_per_s=np.concatenate(
            [traffic.messages_per_s[topics], *(each.topics.messages_per_s for each in arriving)]
        ),
        bytes_per_s=np.concatenate(
            [traffic.bytes_per_s[topics], *(each.topics.bytes_per_s for each in arriving)]
        ),
        sessions=np.concatenate([traffic.sessions[topics], *(each.topics.sessions for each in arriving)]),
    )
