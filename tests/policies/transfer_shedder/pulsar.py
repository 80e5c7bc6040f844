"""Pulsar's own TransferShedder, asked in a JVM of its own; and its answers that are checked in.

    python -m tests.policies.transfer_shedder.pulsar

asks it anew, with the broker's jar of ``deploy/local/locks/pulsar-4.2.lock``, and writes ``answers.ndjson.xz``.
"""

import json
import lzma
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deploy.local.pulsar import NEWEST_PULSAR_LOCK
from streaming.spark.jars import ensure, find_java
from tests.policies.transfer_shedder.cases import Case, random_case

HARNESS = Path(__file__).with_name("Harness.java")
ANSWERS = Path(__file__).with_name("answers.ndjson.xz")
LOCK = NEWEST_PULSAR_LOCK
CASES_COUNT = 600
_TIMEOUT_S = 300.0

Answers = list[dict[str, Any]]
"""For each round of a case: the unloads, each as ``bundle source destination reason``, and the hit count after it."""


def ask(cases: Sequence[Case]) -> list[Answers]:
    """Answers of Pulsar's class. Raises ``JarError`` and ``JavaError`` where it cannot be had."""
    java, jars = find_java(), ensure(LOCK)
    command = [str(java), "-cp", ":".join(map(str, jars)), "-Dlog4j2.level=OFF", str(HARNESS)]
    lines = "".join(f"{json.dumps(case)}\n" for case in cases)
    done = subprocess.run(
        command, input=lines, capture_output=True, encoding="utf-8", check=False, timeout=_TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def recorded() -> Iterator[tuple[Case, Answers]]:
    """The cases that are checked in, with Pulsar's answers."""
    with lzma.open(ANSWERS, "rt", encoding="utf-8") as lines:
        for line in lines:
            found = json.loads(line)
            yield found["case"], found["answers"]


def _record() -> None:
    cases = [random_case(seed) for seed in range(CASES_COUNT)]
    with lzma.open(ANSWERS, "wt", encoding="utf-8", preset=9) as out:
        for case, answers in zip(cases, ask(cases), strict=True):
            out.write(json.dumps({"case": case, "answers": answers}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    _record()
