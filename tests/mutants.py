"""`make mutate`: how many of a random sample of mutants of ``state`` survive its fast tests.

mutmut makes the mutants, chooses the tests of each by the code that they run, and keeps both in ``mutants/``. A seed names
the sample, so that anyone can repeat it.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from mutmut.stats import status_by_exit_code

FOLDER = Path("mutants")
MUTMUT = (sys.executable, "-m", "mutmut", "run")
SURVIVORS_RATIO_MAX = 0.1
"""6 of 60 mutants."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="Size of the sample; 60 unless given.")
    parser.add_argument("--seed", type=int, default=1, help="Which sample; 1 unless given.")
    args = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)  # a test that was deleted since would still be in it
    subprocess.run([*MUTMUT, "none"], check=False, capture_output=True)  # makes the mutants, and runs none
    names = sorted(name for name, _ in _mutants())
    if not names:
        sys.exit("mutmut made no mutants: run `python -m mutmut run none` to see why")
    sample = Random(args.seed).sample(names, args.count)  # noqa: S311  the sample has to be the same for everybody
    subprocess.run([*MUTMUT, *sample], check=False)
    statuses = {name: status for name, status in _mutants() if name in sample}
    if "not run" in statuses.values():
        sys.exit("mutmut ran no test of some mutants; what it printed above says why")
    survivors = [name for name, status in statuses.items() if status not in {"killed", "timeout"}]
    for name in survivors:
        subprocess.run([sys.executable, "-m", "mutmut", "show", name], check=False)
    found = f"{len(survivors)} of {len(sample)} mutants of state survive (seed {args.seed} of {len(names)})"
    sys.stdout.write(found + "\n")
    return int(len(survivors) > SURVIVORS_RATIO_MAX * len(sample))


def _mutants() -> Iterator[tuple[str, str]]:
    """Name and status of each mutant."""
    for path in sorted(FOLDER.glob("state/**/*.py.meta")):
        for name, code in json.loads(path.read_text())["exit_code_by_key"].items():
            yield name, "not run" if code is None else status_by_exit_code[code]


if __name__ == "__main__":
    sys.exit(main())
