"""Run fault schedules one after another on warm brokers: `python -m tests.faults --system kafka --seeds 1-20`.

Each run is a line of ``results.tsv``. Seeds that have a line for this commit are left out, so that a series goes on where it was
ended; `--again` runs them all the same. What a failing run wrote stays in its directory. Exit code 1 when a schedule failed.
`--failovers 10` runs a leader and a standby instead, and ends the leader that often in each schedule. `--tally` says what the lines
amount to, `--tally --since COMMIT` only those from that commit on.
"""

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from streaming.process.stop_signals import stopped_by_signals
from tests.faults import results
from tests.faults.running import Outcome, run_schedule
from tests.faults.schedule import KINDS, Fault, System, drawn, drawn_failovers
from tests.faults.world import KafkaWorld, PulsarWorld, World


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    asked = _arguments(arguments)
    commit = results.newest_commit()
    if asked.tally:
        counted = results.since(asked.since or commit)
        rows = [row for row in results.read() if row.commit in counted]
        for system in KINDS:
            _say("\n".join(results.tally(rows, system)))
        return 0
    return _run_series(asked, commit)


def _run_series(asked: argparse.Namespace, commit: str) -> int:
    """Run seed after seed; after one that breaks its brokers, the next one gets new ones."""
    system: System = asked.system
    done = {
        row.seed
        for row in results.read()
        if (row.commit, row.system, row.failovers > 0) == (commit, system, asked.failovers > 0)
    }
    seeds = [seed for seed in _seeds(asked.seeds) if asked.again or seed not in done]
    asked.directory.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"{system}-", dir=asked.directory))
    stopped: list[object] = []
    failed_count = 0
    with stopped_by_signals(stopped.append), ExitStack() as stack:
        world: World | None = None
        for number, seed in enumerate(seeds):
            if stopped or (asked.until and time.strftime("%H:%M") >= asked.until):
                break
            directory = place / f"{number}-seed-{seed}"
            directory.mkdir()
            if world is None:
                world = stack.enter_context(_world(system, directory / "brokers"))
            faults = _drawn(asked, seed, brokers=world.brokers)
            _say(f"{system} {seed}: {' '.join(map(str, faults))}")
            began_s = time.monotonic()
            try:
                outcome = run_schedule(world, faults, directory, seed=seed, is_pair=asked.failovers > 0)
            except Exception as error:  # noqa: BLE001  the next one gets brokers of its own
                traceback.print_exc()
                outcome = Outcome(problems=[f"the harness failed: {error!r}"])
                stack.close()
                world = None
            seconds = time.monotonic() - began_s
            failed_count += bool(outcome.problems)
            _tell(outcome, directory, seconds)
            if not asked.only:
                results.append(
                    results.Row(
                        seed=seed,
                        commit=commit,
                        system=system,
                        passed=not outcome.problems,
                        seconds=round(seconds),
                        failovers=outcome.failovers_count,
                        schedule=" ".join(map(str, faults)),
                        found="; ".join(outcome.problems),
                    )
                )
    return 1 if failed_count else 0


def _drawn(asked: argparse.Namespace, seed: int, *, brokers: int) -> list[Fault]:
    if asked.failovers:
        return drawn_failovers(asked.system, seed, brokers=brokers, count=asked.failovers)
    return drawn(asked.system, seed, brokers=brokers, only=asked.only)


def _tell(outcome: Outcome, directory: Path, seconds: float) -> None:
    for line in (*outcome.notes, *outcome.problems):
        _say(f"  {line}")
    result = "FAILED" if outcome.problems else "passed"
    wanted = outcome.wanted.outputs
    _say(
        f"  {result} in {seconds:.0f} s; {wanted.actions_count} actions, {wanted.rounds_count} rounds, "
        f"{outcome.failovers_count} fail-overs, recovered in {outcome.recovery_s:.0f} s; {directory}"
    )
    if not outcome.problems:
        for each in directory.iterdir():
            if each.name != "brokers":
                shutil.rmtree(each) if each.is_dir() else each.unlink()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _world(system: System, directory: Path) -> World:
    return KafkaWorld(directory) if system == "kafka" else PulsarWorld(directory)


def _seeds(text: str) -> list[int]:
    """``1-3,7``."""
    found = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Run fault schedules.")
    parser.add_argument("--system", choices=list(KINDS), default="kafka", help="(default: kafka)")
    parser.add_argument("--seeds", default="1-20", help="e.g. 1-20 or 3,5,8-9 (default: 1-20)")
    parser.add_argument(
        "--only", action="append", default=[], help="use only faults of this kind; no result is recorded then"
    )
    parser.add_argument(
        "--failovers",
        type=int,
        default=0,
        metavar="N",
        help="run a leader and a standby, and end the leader N times",
    )
    parser.add_argument("--again", action="store_true", help="also seeds that have a result for this commit")
    parser.add_argument("--tally", action="store_true", help="run nothing, count what has passed")
    parser.add_argument(
        "--since",
        metavar="COMMIT",
        help="the first commit that counts (default: the newest that changed the product)",
    )
    parser.add_argument("--until", metavar="HH:MM", help="begin no schedule after this time of day")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()) / "trimtab-faults")
    return cast("argparse.Namespace", parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
