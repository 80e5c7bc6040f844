"""One run of a scenario: the same seed and the same balancer give the same bytes."""

from collections.abc import Callable
from zlib import crc32

import numpy as np

from streaming.simulator.fleet import TICK_S, Fleet
from streaming.simulator.players import Player
from streaming.simulator.reporting import Reporter
from streaming.simulator.score import Counter
from streaming.simulator.setup import Setup

ROUND_TICKS = 6
START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: a fleet that does not exist begins on a day that is easy to read."""


def generators(name: str, seed: int, count: int) -> list[np.random.Generator]:
    """Independent sources of randomness for a scenario and a seed."""
    root = np.random.SeedSequence([seed, crc32(name.encode())])
    return [np.random.default_rng(each) for each in root.spawn(count)]


def run(
    name: str,
    seed: int,
    build: Callable[[np.random.Generator], Setup],
    player: Player,
    *,
    with_topics: bool,
    are_published: bool = False,
) -> Counter:
    """Play a scenario to its end; the brokers publish their load (``are_published``), or report it."""
    built, traffic, moves, reports = generators(name, seed, 4)
    setup = build(built)
    fleet = Fleet(setup, traffic=traffic, moves=moves)
    reporter = Reporter(
        fleet, reports, start_ms=START_MS, with_topics=with_topics, are_published=are_published
    )
    counter = Counter(fleet, setup.machines.names, disturbed_s=setup.disturbed_s)
    rows = {each: row for row, each in enumerate(setup.machines.names)}
    for tick in range(1, int(setup.hours * 3600 / TICK_S) + 1):
        moved = fleet.tick()
        for each in moved:
            counter.note_moved(each)
        if tick % ROUND_TICKS == 0:
            counter.end_round()
        wishes, cuts = player.play(reporter.take(moved), fleet)
        for wish in wishes:
            counter.note_decision(wish.bundle)
            destination = None if wish.destination is None else rows[wish.destination]
            fleet.order(wish.bundle, destination, wish.id)
        for cut in cuts:
            succeeded = fleet.split(cut.bundle, cut.boundaries)
            counter.splits += succeeded
            reporter.answer(cut.id, succeeded=succeeded)
    return counter
