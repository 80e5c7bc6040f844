"""The bench of a policy: some kinds of trouble, many seeds, one table.

``python -m tests.bench.simulations --policy fleet-planner --kinds scale-out surge --seeds 1-10``

Seeds 1 to 99 are for tuning. Seeds from 1000 on are for judging: whoever has looked at the runs of one of them has used it up. The page
``docs/understand/simulations.md`` has seeds of its own.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from policies.shedding.registry import POLICIES
from streaming.settings import ClusterSettingsSource, load
from streaming.simulator.runs import NOBODY, PERFECT, Candidate, jobs_of, play_all
from streaming.simulator.scenarios import SCENARIOS
from streaming.simulator.score import Run, Score
from streaming.simulator.setup import SESSIONS_COUNT

HARD = (
    "one-hot-broker", "heavy-topic", "scale-out", "scale-in", "rolling-restart", "noise-alone", "three-regions",
    "surge", "unlike-machines", "every-broker-hot", "large-fleet",
)  # fmt: skip
"""Eleven kinds like those on which planners were measured from outside."""
ROOTS = (
    "small-bundles", "tiny-bundles", "mixed-networks", "big-messages", "idle-clients", "flapping-bundles", "kept-apart",
    "wrong-limit",
)  # fmt: skip
"""Where a bound, a rule, something unknown or a gap was taken for something else."""
DEFAULTS = Path(os.devnull)
"""A settings file in which everything is as it is by default."""
FIGURES: tuple[tuple[str, Callable[[Score], float]], ...] = (
    ("unbalanced %", lambda score: 100.0 * score.unbalanced_rounds / score.rounds),
    ("unloads", lambda score: score.unloads),
    ("needless", lambda score: score.needless),
    ("sent back", lambda score: score.sent_back),
    ("twice", lambda score: score.moved_twice),
    ("uphill", lambda score: score.wrong_sign),
    ("moved %", lambda score: 100.0 * score.moved_messages_ratio),
    ("splits", lambda score: score.splits),
    ("spread", lambda score: score.spread_points),
)


def candidate(policy: str, settings: Path, *, with_splits: bool) -> Candidate:
    """A policy as it is by default, or with the settings of a file."""
    flags = {
        "pulsar.shedding_policy": policy,
        "pulsar.split.enabled": with_splits,
        "pulsar.capacity.sessions_count": SESSIONS_COUNT,
    }
    found = load(file=settings, flags=flags, environ={}).settings
    return Candidate(name=policy, settings=ClusterSettingsSource(found))


def seeds_of(text: str) -> list[int]:
    """``7`` or ``1000-1009``."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def table(runs: Sequence[Run]) -> str:
    """A line for each kind and candidate, with means over the seeds; the first lines are over all kinds."""
    lines = [f"{'':18}{'':20}" + "".join(f"{title:>13}" for title, _ in FIGURES)]
    names = sorted({run.candidate for run in runs})
    for kind in ("all", *dict.fromkeys(run.scenario for run in sorted(runs, key=_place))):
        for name in names:
            scores = [
                each.score for each in runs if each.candidate == name and kind in {"all", each.scenario}
            ]
            figures = "".join(f"{fmean(map(value, scores)):13.2f}" for _, value in FIGURES)
            lines.append(f"{kind:18}{name:20}{figures}")
    return "\n".join(lines)


def _place(run: Run) -> int:
    return [each.name for each in SCENARIOS].index(run.scenario)


def main() -> None:
    """Play and print."""
    kinds = [each.name for each in SCENARIOS]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulations", description=__doc__)
    parser.add_argument(
        "--policy", nargs="+", default=["fleet-planner"], choices=[each.name for each in POLICIES]
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        default=["hard"],
        choices=["every", "hard", "roots", *kinds],
        help="default: hard",
    )
    parser.add_argument("--seeds", default="1-5", help="default: 1-5")
    parser.add_argument("--settings", type=Path, default=DEFAULTS, help="a settings file")
    parser.add_argument("--splits", action="store_true", help="with splits")
    parser.add_argument("--bounds", action="store_true", help="beside nobody and perfect information")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--runs", action="store_true", help="every run by itself as well")
    given = parser.parse_args()
    groups = {"every": kinds, "hard": HARD, "roots": ROOTS}
    wanted = {name for kind in given.kinds for name in groups.get(kind, [kind])}
    chosen = [each for each in SCENARIOS if each.name in wanted]
    candidates = [candidate(name, given.settings, with_splits=given.splits) for name in given.policy]
    candidates += [NOBODY, PERFECT] if given.bounds else []
    jobs = jobs_of([(each.name, each.build) for each in chosen], seeds_of(given.seeds), candidates)
    begun = time.perf_counter()
    runs = play_all(jobs, given.processes)
    if given.runs:
        for each in sorted(runs, key=lambda run: (_place(run), run.candidate, run.seed)):
            figures = "".join(f"{value(each.score):13.2f}" for _, value in FIGURES)
            sys.stdout.write(f"{each.scenario:18}{f'{each.candidate} {each.seed}':20}{figures}\n")
    each_s = (time.perf_counter() - begun) / len(jobs)
    sys.stdout.write(f"{table(runs)}\n{len(jobs)} runs, {each_s:.2f} s each\n")


if __name__ == "__main__":
    main()
