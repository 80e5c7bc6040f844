"""Brokers that report some resources for some rounds, and the findings of each round."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from state.closing import Identity
from state.events import Event, LoadReport
from tests.state.traces import BUNDLES, load, run, settings_of

DRY_RUN = Identity(mode="dry-run")
NOT_MEASURED = (-1.0, -1.0)
RESOURCES = ("cpu", "bandwidth-in", "bandwidth-out", "direct-memory")


def report(
    broker: str,
    time_s: float,
    *,
    bundles: Mapping[str, float | None] | None = None,
    topics_count: int = 1,
    **used: tuple[float, float],
) -> LoadReport:
    """A load report with usage and limit of some resources (``_`` for ``-``); the others are not measured."""
    found = load(broker, time_s, bundles=bundles or {BUNDLES[0]: 1.0}, topics_count=topics_count)
    resources = np.array([used.get(name.replace("-", "_"), NOT_MEASURED) for name in RESOURCES])
    return msgspec.structs.replace(found, report=replace(found.report, resources=resources))


def found_in(batches: Sequence[Sequence[Event]], kind: str, **pulsar: Any) -> list[list[tuple[str, str]]]:
    """Subject and broker of the findings of a kind in each round; every round is a batch of its own, so the memory is stored."""
    played = run(batches, settings_of(**pulsar), identity=DRY_RUN)
    return [
        [
            (each["subject"], each["broker"])
            for each in summary["findings"]["heaviest"]
            if each["kind"] == kind
        ]
        for summary in played.summaries
    ]


def advice_in(batches: Sequence[Sequence[Event]], **pulsar: Any) -> list[str]:
    """The advice of the last round's findings."""
    last = run(batches, settings_of(**pulsar), identity=DRY_RUN).summaries[-1]
    return [each["advice"] for each in last["findings"]["heaviest"]]
