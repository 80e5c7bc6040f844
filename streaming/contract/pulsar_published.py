"""What a broker publishes where the extensible load manager runs, turned into the report that the state reads, or refused."""

from dataclasses import replace

import numpy as np

from state.events import BrokerReport, Published, Rejection, RejectReason
from streaming.contract.messages import MAX_NUMBER, SHOWN_CHARACTERS, BrokerLoadData, LocalBrokerData
from streaming.contract.pulsar_report import Refusal, broker_report

_LAST_MS = 221_845_392_000_000
"""Year 9000, the same limit as for the time of an event."""


def published_report(data: BrokerLoadData, broker: tuple[str, str]) -> BrokerReport:
    """The report of ``broker`` (its cluster and id). Raises ``Refusal``."""
    names = [each.bundleName for each in data.topBundlesLoadData]
    _check(data, names)
    stats = {**data.otherBundles, **{each.bundleName: each.stats for each in data.topBundlesLoadData}}
    given = {name: getattr(data, name) for name in LocalBrokerData.__struct_fields__ if hasattr(data, name)}
    report = broker_report(LocalBrokerData(**given, lastStats=stats), broker)
    volumes = [
        (each.stats.msgThroughputIn or 0.0) + (each.stats.msgThroughputOut or 0.0)
        for each in data.topBundlesLoadData
    ]
    published = Published(
        usage_ratio=data.weightedMaxEMA,
        bytes_per_s=data.msgThroughputEMA,
        updated_ms=data.updatedAt,
        top_bundles=names,
        top_bytes_per_s=np.array(volumes, dtype=np.float64),
    )
    return replace(report, published=published)


def _check(data: BrokerLoadData, names: list[str]) -> None:
    smoothed: tuple[tuple[str, RejectReason], ...] = (
        ("weightedMaxEMA", "negative-usage"),
        ("msgThroughputEMA", "negative-rate"),
    )
    for name, reason in smoothed:
        value = getattr(data, name)
        if value < 0:
            raise _make_refusal(f"{name} is {value!r}, expected 0 or more", reason)
        if value > MAX_NUMBER:
            raise _make_refusal(f"{name} is {value!r}, expected at most {MAX_NUMBER:g}")
    if not 0 <= data.updatedAt <= _LAST_MS:
        raise _make_refusal(f"updatedAt is {data.updatedAt}, expected milliseconds since 1970")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _make_refusal(f"topBundlesLoadData has {twice[:SHOWN_CHARACTERS]!r} twice")


def _make_refusal(detail: str, reason: RejectReason = "bad-data") -> Refusal:
    return Refusal(Rejection(reason=reason, detail=detail))
