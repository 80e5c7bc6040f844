"""The part of requirements.lock that the application needs: `python runtime_lock.py requirements.lock`.

The lock says behind each package who asked for it (`# via`); what only the dev group asks for is left out. Nothing
is resolved, so the image cannot hold other versions than were tested. Standard library only: it runs before anything
is installed.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = "trimtab (pyproject.toml)"
"""Who asks for the application's own dependencies, as the lock writes it."""

_ENTRY = re.compile(r"^(?=[A-Za-z0-9])", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_ASKED_BY = re.compile(r"^    #(?: via|  )? +(\S.*)$", re.MULTILINE)


def runtime_part(lock: str) -> str:
    """The entries that `ROOT` or one of the entries kept asks for, as they are written, hashes included.

    Raises ValueError where nothing is: the lock was written without its `# via` comments.
    """
    asked_by = {entry: set(_asked_by(entry)) for entry in _ENTRY.split(lock)[1:]}
    kept: set[str] = set()
    wanted_by = {ROOT}
    while found := {entry for entry, names in asked_by.items() if names & wanted_by} - kept:
        kept |= found
        wanted_by |= {_name(entry) for entry in found}
    if not kept:
        raise ValueError(f"no package is there because of {ROOT!r}: write the lock with its `# via` comments")
    return "".join(entry for entry in asked_by if entry in kept)


def _name(entry: str) -> str:
    found = _NAME.match(entry)
    assert found is not None, "an entry begins with a name"
    return found[0]


def _asked_by(entry: str) -> Iterator[str]:
    for line in _ASKED_BY.findall(entry):
        yield line.strip()


if __name__ == "__main__":
    sys.stdout.write(runtime_part(Path(sys.argv[1]).read_text(encoding="utf-8")))
