"""Balancers side by side on a real Pulsar: ``python -m tests.compare`` runs what has no row yet, ``--page`` writes docs/understand/comparison.md.

``--only hot-broker/trimtab-fleet-planner/1`` runs one cell (any part may be left out: ``hot-broker``). A row is added to
``tests/compare/results.ndjson`` after each run, so a series can be ended and goes on later; ``--again`` runs a cell anew and replaces its
row. A run takes up to eight minutes; it needs Linux, root, Java 17 and a machine that does nothing else.
"""

import argparse
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from streaming.process.stop_signals import stopped_by_signals
from tests.compare import page
from tests.compare.balancers import BALANCERS
from tests.compare.running import CALM_S, WINDOW_S, Length, run
from tests.compare.scenarios import SCENARIOS

RESULTS = Path(__file__).with_name("results.ndjson")
SEEDS = (1, 2)


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
    done = {_cell(row) for row in rows}
    cells = [
        (scenario, balancer, seed)
        for seed in SEEDS
        for scenario in SCENARIOS
        for balancer in BALANCERS
        if _is_asked(asked.only, (scenario, balancer, str(seed)))
        and (asked.again or (scenario, balancer, seed) not in done)
    ]
    stopped: list[object] = []
    failed_count = 0
    length = Length(calm_s=asked.calm_s, window_s=asked.window_s)
    with stopped_by_signals(stopped.append):
        for scenario, balancer, seed in cells:
            if stopped:
                break
            _say(f"{scenario}/{balancer}/{seed}")
            try:
                directory = Path(
                    tempfile.mkdtemp(prefix=f"{scenario}-{balancer}-{seed}-", dir=asked.directory)
                )
                row = run(BALANCERS[balancer], SCENARIOS[scenario], seed, length, directory)
                if not asked.keep:
                    shutil.rmtree(directory)
            except Exception:  # noqa: BLE001  the next one gets a cluster of its own
                failed_count += 1
                traceback.print_exc()
                continue
            rows = [each for each in rows if _cell(each) != _cell(row)] + [row]
            rows.sort(key=lambda each: (each["scenario"], each["balancer"], each["seed"]))
            asked.results.write_text("".join(json.dumps(each) + "\n" for each in rows))
            _say("  " + ", ".join(f"{key} {value}" for key, value in row.items() if key != "series"))
    return 1 if failed_count else 0


def _cell(row: dict[str, object]) -> tuple[object, ...]:
    return row["scenario"], row["balancer"], row["seed"]


def _is_asked(only: Sequence[str], cell: tuple[str, str, str]) -> bool:
    return not only or any(
        all(part in ("", name) for part, name in zip(pattern.split("/"), cell, strict=False))
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
    parser.add_argument("--keep", action="store_true", help="keep them after a run that did not fail, too")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where rows are kept")
    parser.add_argument("--calm-s", type=float, default=CALM_S, help=f"(default: {CALM_S:g})")
    parser.add_argument("--window-s", type=float, default=WINDOW_S, help=f"(default: {WINDOW_S:g})")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
