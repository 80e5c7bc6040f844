"""What pip does, in a few plain lines, for `make`: `pip install … | python -m deploy.local.packages LOCK`.

It runs in an environment that is still empty, so it needs nothing but Python.
"""

import re
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_STEP = 20
"""A line for so many packages."""
_LARGE_MB = 50.0
"""A download from this size on has a line of its own."""
_DOWNLOAD = re.compile(r"\s*Downloading (\S+) \(([\d.]+) ([kMG]B)\)")
_LISTED = re.compile(r"(Building wheels for|Installing) collected packages: (.+)")


def told(lines: Iterable[str], *, most: int) -> Iterator[str]:
    """What of pip's output a person who waits wants to know; ``most`` packages are listed, and some are for other systems."""
    count = 0
    for line in lines:
        if line.startswith("Collecting "):
            count += 1
            if count % _STEP == 0:
                yield f"  {count} of at most {most} packages"
        elif download := _DOWNLOAD.match(line):
            file, size, unit = download.groups()
            if unit == "GB" or (unit == "MB" and float(size) >= _LARGE_MB):
                yield f"  downloading {file}, {size} {unit}"
        elif listed := _LISTED.match(line):
            names = listed[2].split(", ")
            yield f"  building {listed[2]}" if line.startswith("B") else f"  installing {len(names)} packages"


def main() -> None:
    """Print what is told of standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # pip ends on Ctrl-C, and so does its output
    most = len(re.findall(r"^[\w.-]+==", Path(sys.argv[1]).read_text(encoding="utf-8"), re.MULTILINE))
    for line in told(sys.stdin, most=most):
        print(line, flush=True)


if __name__ == "__main__":
    main()
