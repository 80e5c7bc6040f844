"""What the results of schedules amount to."""

import threading
from pathlib import Path

from tests.faults.results import TIMES_PASSED, Row, append, read, tally


def row(schedule: str, *, passed: bool = True, seed: int = 1, system: str = "kafka") -> Row:
    return Row(seed=seed, commit="abc1234", system=system, passed=passed, seconds=60, schedule=schedule)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = [row("pause/3.0s garbage"), row("garbage", passed=False)]
    for each in rows:
        append(each, tmp_path / "results.tsv")
    assert read(tmp_path / "results.tsv") == rows


def test_runs_that_share_the_file_lose_no_result(tmp_path: Path) -> None:
    file = tmp_path / "results.tsv"
    threads = [threading.Thread(target=append, args=(row("garbage", seed=seed), file)) for seed in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.seed for each in read(file)) == list(range(50))


def test_the_same_schedule_counts_once_and_other_systems_do_not() -> None:
    rows = [row("garbage"), row("garbage", seed=2), row("pause/3.0s"), row("pause/4.0s", system="pulsar")]
    first, kinds = tally(rows, "kafka")
    assert first == "kafka: 2 different schedules passed, in 3 runs"
    assert kinds.strip() == "garbage 1, pause 1"


def test_a_schedule_that_failed_owes_ten_passes_after_its_last_failure() -> None:
    once = [row("garbage", passed=False), *[row("garbage")] * (TIMES_PASSED - 1)]
    assert "passed 9 of 10 times since: garbage" in "\n".join(tally(once, "kafka"))
    assert "times since" not in "\n".join(tally([*once, row("garbage")], "kafka"))
    assert "passed 0 of 10" in "\n".join(tally([*once, row("garbage"), once[0]], "kafka"))
