"""What commands print for the same files, and the code they end with: every ``*.txt`` beside this file is a session.

A session is a list of commands (``$ trimtab …``) that run in ``inputs``. Below each stand its exit code, where it is not 0, and what it
prints to standard error and standard output. Ids are shown as ``#1``, ``#2`` … in the order in which they appear. Of a long line
only its beginning and its hash are kept. ``pytest tests/contract --rewrite`` writes what comes out into the files.
"""

import hashlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming.cli import main

HERE = Path(__file__).parent
SESSIONS = sorted(HERE.glob("*.txt"))
LONG_CHARACTERS = 400
ID = re.compile(r"\b[0-9a-f]{32}\b")


@pytest.mark.parametrize("path", SESSIONS, ids=[path.stem for path in SESSIONS])
def test_commands_print_and_end_as_written(
    path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE / "inputs")
    written = path.read_text(encoding="utf-8")
    session = "\n".join(play(written)) + "\n"
    if request.config.getoption("--rewrite"):
        path.write_text(session, encoding="utf-8")
        written = session
    assert session.splitlines() == written.splitlines()


def play(session: str) -> Iterator[str]:
    """The session with what its commands print now."""
    for line in session.splitlines():
        if line.startswith("  "):
            continue
        yield line
        if line.startswith("$ trimtab "):
            yield from (f"  {shown}" for shown in run(shlex.split(line)[2:]))


def run(arguments: list[str]) -> Iterator[str]:
    """What a command prints."""
    done = CliRunner().invoke(main, arguments)
    if done.exit_code:
        yield f"exit code {done.exit_code}"
    numbers: dict[str, str] = {}
    printed = ID.sub(
        lambda found: numbers.setdefault(found[0], f"#{len(numbers) + 1}"), done.stderr + done.stdout
    )
    for line in printed.splitlines():
        if len(line) <= LONG_CHARACTERS:
            yield line.rstrip()
        else:
            digest = hashlib.sha256(line.encode()).hexdigest()
            yield f"{line[:LONG_CHARACTERS]}… {len(line)} characters, SHA-256 {digest[:16]}"
