"""Balancers side by side on a real Pulsar: ``python -m tests.compare`` runs what has no row yet, ``--page`` writes docs/understand/comparison.md.

``--only hot-broker/trimtab-fleet-planner/1`` runs one cell (any part may be left out: ``hot-broker``). A row is added to
``tests/compare/results.ndjson`` after each run, so a series can be ended and goes on later; ``--again`` runs a cell anew and replaces its
row. ``--at-once 2`` runs that many at a time, each in a network of its own, and every row says so; at most one of them has a trimtab,
because the programs of two take so much of two cores that publishes get slower. A run takes fourteen minutes; it needs Linux, root,
Java 17 and a machine that does nothing else.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from deploy.local.pulsar import NEWEST_PULSAR_LOCK
from streaming.process.stop_signals import stopped_by_signals
from streaming.spark.jars import ensure
from tests.compare import page
from tests.compare.balancers import BALANCERS
from tests.compare.running import CALM_S, WINDOW_S, Length, run
from tests.compare.scenarios import SCENARIOS, SEEDS

RESULTS = Path(__file__).with_name("results.ndjson")
Cell = tuple[str, str, int]
"""Scenario, balancer and seed."""
Row = dict[str, Any]
_APART = (
    *("unshare", "--net", "--mount", "sh", "-c"),
    'ip link set lo up && mkdir -p /run/netns && mount -t tmpfs none /run/netns && mount -t sysfs none /sys && exec "$@"',
    "apart",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 when a run failed."""
    asked = _arguments(arguments)
    rows = (
        [json.loads(line) for line in asked.results.read_text().splitlines()]
        if asked.results.exists()
        else []
    )
    if asked.page:
        page.write(rows)
        return 0
    done = {page.cell_of(row) for row in rows}
    cells = [
        (scenario, balancer, seed)
        for seed in SEEDS
        for scenario in SCENARIOS
        for balancer in BALANCERS
        if _is_asked(asked.only, (scenario, balancer, seed))
        and (asked.again or (scenario, balancer, seed) not in done)
    ]
    ensure(NEWEST_PULSAR_LOCK)  # a run apart sees no network from which it could fetch them
    run_one: Callable[[Cell], Row | None] = partial(_run_apart if asked.at_once > 1 else _run_here, asked)
    stopped: list[object] = []
    failed_count = 0
    with stopped_by_signals(stopped.append), ThreadPoolExecutor(asked.at_once) as pool:
        while cells and not stopped:
            # all of a batch start together, so that no start falls into what is judged of another
            batch = _batch(cells, asked.at_once)
            cells = [cell for cell in cells if cell not in batch]
            for cell, row in zip(batch, list(pool.map(run_one, batch)), strict=True):
                if row is None:
                    failed_count += 1
                    continue
                rows = [each for each in rows if page.cell_of(each) != cell]
                rows.append({**row, "at_once": asked.at_once})
                rows.sort(key=page.cell_of)
                asked.results.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return 1 if failed_count else 0


def _batch(cells: Sequence[Cell], most: int) -> list[Cell]:
    """The next cells to run together."""
    batch: list[Cell] = []
    for cell in cells:
        if len(batch) < most and not (_has_trimtab(cell) and any(map(_has_trimtab, batch))):
            batch.append(cell)
    return batch


def _has_trimtab(cell: Cell) -> bool:
    return BALANCERS[cell[1]].policy is not None


def _run_here(asked: argparse.Namespace, cell: Cell) -> Row | None:
    """The row of a run; None, and the error on stderr, where it failed: the next one gets a cluster of its own."""
    scenario, balancer, seed = cell
    _say("/".join(map(str, cell)))
    directory = Path(tempfile.mkdtemp(prefix=f"{scenario}-{balancer}-{seed}-", dir=asked.directory))
    length = Length(calm_s=asked.calm_s, window_s=asked.window_s)
    try:
        row = run(BALANCERS[balancer], SCENARIOS[scenario], seed, length, directory)
    except Exception:  # noqa: BLE001
        traceback.print_exc()
        return None
    if not asked.keep:
        shutil.rmtree(directory)
    _say("  " + ", ".join(f"{key} {value}" for key, value in row.items() if key != "series"))
    return row


def _run_apart(asked: argparse.Namespace, cell: Cell) -> Row | None:
    """The same, in a process that sees no network but its own."""
    with tempfile.NamedTemporaryFile(suffix=".ndjson") as results:
        Path(results.name).write_text("")
        its = ["--only", "/".join(map(str, cell)), "--results", results.name]
        for name in ("directory", "calm_s", "window_s"):
            if (value := getattr(asked, name)) is not None:
                its += [f"--{name.replace('_', '-')}", str(value)]
        its += ["--keep"] if asked.keep else []
        command = (*_APART, sys.executable, "-m", "tests.compare", *its)
        subprocess.run(command, check=False)
        lines = Path(results.name).read_text().splitlines()
    return json.loads(lines[0]) if lines else None


def _is_asked(only: Sequence[str], cell: Cell) -> bool:
    return not only or any(
        all(part in ("", name) for part, name in zip(pattern.split("/"), map(str, cell), strict=False))
        for pattern in only
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.compare", description="Compare balancers.")
    parser.add_argument(
        "--only", action="append", default=[], metavar="SCENARIO/BALANCER/SEED", help="run these cells"
    )
    parser.add_argument(
        "--page", action="store_true", help="run nothing, write docs/understand/comparison.md from the rows"
    )
    parser.add_argument("--again", action="store_true", help="also cells that have a row")
    parser.add_argument(
        "--directory", type=Path, help="where runs write their logs and data (default: the temporary one)"
    )
    parser.add_argument("--at-once", type=int, default=1, metavar="COUNT", help="runs at a time (default: 1)")
    parser.add_argument("--keep", action="store_true", help="keep them after a run that did not fail, too")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where rows are kept")
    parser.add_argument("--calm-s", type=float, default=CALM_S, help=f"(default: {CALM_S:g})")
    parser.add_argument("--window-s", type=float, default=WINDOW_S, help=f"(default: {WINDOW_S:g})")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
