"""Run the parts, print their rows as they come, and write ``docs/understand/benchmarks.md`` after a whole run, or with ``--write``.

Exit code 1 when a limit is missed, so that it is seen (not with ``--quick``); the page is written all the same.
"""

import argparse
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Protocol

from tests.bench.copies_live import measure_copies_live
from tests.bench.end_to_end import measure_burst, measure_end_to_end, measure_failover, measure_idle
from tests.bench.ingest import measure_ingest, measure_recording, measure_replay
from tests.bench.kafka_looks import measure_kafka_looks
from tests.bench.policies import measure_policies, measure_round
from tests.bench.pulsar_path import measure_pulsar
from tests.bench.report import Section, page, section_lines, with_sections
from tests.bench.splits import measure_splits
from tests.bench.throttle_live import measure_throttle_live
from tests.bench.throttles import measure_kafka_rounds, measure_throttles

PAGE = Path(__file__).parents[2] / "docs" / "understand" / "benchmarks.md"


class Part(Protocol):
    """One thing to measure; ``quick`` is for trying it out, its numbers mean little."""

    def __call__(self, *, quick: bool) -> Section: ...


PARTS: Mapping[str, Part] = {
    "policies": measure_policies,
    "splits": measure_splits,
    "throttles": measure_throttles,
    "kafka-rounds": measure_kafka_rounds,
    "kafka-looks": measure_kafka_looks,
    "round": measure_round,
    "ingest": measure_ingest,
    "replay": measure_replay,
    "recording": measure_recording,
    "end-to-end": measure_end_to_end,
    "burst": measure_burst,
    "pulsar": measure_pulsar,
    "throttle-live": measure_throttle_live,
    "copies-live": measure_copies_live,
    "idle": measure_idle,
    "failover": measure_failover,
}


def main() -> int:
    """The exit code."""
    asked = _arguments()
    # The started programs keep what they compiled, as an installed trimtab does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    signal.signal(signal.SIGTERM, _end)
    names = asked.only or list(PARTS)
    found: dict[str, Section] = {}
    for name in names:
        found[name] = PARTS[name](quick=asked.quick)
        _say("\n".join(section_lines(name, found[name])))
    if not asked.only and not asked.quick:
        PAGE.write_text(page(found), encoding="utf-8")
        _say(f"\nwritten to {PAGE}")
    elif asked.write:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_sections(text, found, tuple(PARTS)), encoding="utf-8")
        _say(f"\nwritten into {PAGE}")
    missed = [row.name for section in found.values() for row in section.rows if row.is_missed]
    for name in missed:
        _say(f"missed: {name}")
    return 1 if missed and not asked.quick else 0


def _end(number: int, _frame: FrameType | None) -> None:
    """Leave as if by an exception, so that brokers and controllers are stopped."""
    sys.exit(128 + number)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Measure trimtab against its limits."
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(PARTS), metavar="NAME", help=f"parts to run: {', '.join(PARTS)}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few repetitions, to see whether it works, not how quick it is"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="with --only: put these sections into docs/understand/benchmarks.md",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
