"""What schedules showed, a line each in ``results.tsv``: seed, commit, system, result, seconds, fail-overs, checkpoint, schedule and what was found."""

import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("results.tsv")
TIMES_PASSED = 10
"""How often a schedule that failed has to pass afterwards."""
_COLUMNS = "seed\tcommit\tsystem\tresult\tseconds\tfailovers\tschedule\tfound\n"
_ROOT = Path(__file__).parents[2]
_PRODUCT = ("policies", "state", "streaming")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run of a schedule."""

    seed: int
    commit: str
    """The newest commit that changed the product."""
    system: str
    passed: bool
    seconds: int
    schedule: str
    failovers: int = 0
    """How often another controller came to lead; 0 where there was no standby."""
    found: str = ""

    def __str__(self) -> str:
        found = self.found.replace("\t", " ").replace("\n", " ")[:600]
        result = "passed" if self.passed else "failed"
        return (
            f"{self.seed}\t{self.commit}\t{self.system}\t{result}\t{self.seconds}\t{self.failovers}\t"
            f"{self.schedule}\t{found}\n"
        )


def read(file: Path = FILE) -> list[Row]:
    """All rows, in the order they were written."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [_row(line) for line in lines if line != _COLUMNS]


def append(row: Row, file: Path = FILE) -> None:
    """One write, so that several runs may share the file."""
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        if not os.fstat(handle).st_size:
            os.write(handle, _COLUMNS.encode())
        os.write(handle, str(row).encode())
    finally:
        os.close(handle)


def newest_commit() -> str:
    """The newest commit that changed the product."""
    return _git("log", "-1", "--format=%h", "--", *_PRODUCT)


def since(commit: str) -> frozenset[str]:
    """That commit and all after it, abbreviated as rows name them."""
    after = _git("log", "--format=%h", f"{commit}..HEAD").split()
    return frozenset({*after, _git("log", "-1", "--format=%h", commit)})


def tally(rows: Sequence[Row], system: str) -> Iterator[str]:
    """What the rows of one system amount to, in lines of text."""
    ours = [row for row in rows if row.system == system]
    passed = {row.schedule for row in ours if row.passed}
    yield f"{system}: {len(passed)} different schedules passed, in {sum(row.passed for row in ours)} runs"
    failovers_count = sum(row.failovers for row in ours if row.passed)
    if failovers_count:
        yield f"  {failovers_count} fail-overs"
    drawn = Counter(kind for schedule in passed for kind in _kinds(schedule))
    yield "  " + ", ".join(f"{kind} {count}" for kind, count in sorted(drawn.items()))
    for schedule, count in _owed(ours).items():
        yield f"  failed, and passed {count} of {TIMES_PASSED} times since: {schedule}"


def _owed(rows: Sequence[Row]) -> dict[str, int]:
    """How often each schedule that failed has passed since, for those that have not passed often enough."""
    passed: dict[str, int] = {}
    for row in rows:
        if not row.passed:
            passed[row.schedule] = 0
        elif row.schedule in passed:
            passed[row.schedule] += 1
    return {schedule: count for schedule, count in passed.items() if count < TIMES_PASSED}


def _kinds(schedule: str) -> list[str]:
    return [fault.partition("/")[0] for fault in schedule.split()]


def _row(line: str) -> Row:
    cells = dict(zip(_COLUMNS.split(), line.rstrip("\n").split("\t"), strict=True))
    numbers = {name: int(cells[name]) for name in ("seed", "seconds", "failovers")}
    is_passed = cells.pop("result") == "passed"
    return Row(**cells | numbers, passed=is_passed)


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout.strip()
