"""Runs `trimtab` commands one after another in one process: `python -m tests.support.warm DIRECTORY NUMBER`.

Order n is the file `order-n.json` (the arguments); when it is over, `order-n.exit` holds its exit code. Spark's JVM
stays from one to the next; the Spark session does not. `-m MODULE` runs the ``main`` of a module of the tests instead.
"""

import json
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

import click

from streaming.cli import main
from streaming.process.exits import FAILED

_POLL_S = 0.1


def _run(arguments: list[str]) -> int:
    """Exit code of one command, as the shell would see it."""
    try:
        if arguments[0] == "-m":
            import_module(arguments[1]).main(arguments[2:])
        else:
            main.main(args=arguments, prog_name="trimtab", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception:  # noqa: BLE001  what the interpreter would print, for the next order still to be taken
        traceback.print_exc()
        return FAILED
    return 0


def serve(directory: Path, number: int) -> None:
    """Take orders until killed."""
    while True:
        order = directory / f"order-{number}.json"
        while not order.exists():
            time.sleep(_POLL_S)
        code = _run(json.loads(order.read_text()))
        new = order.with_suffix(".code")
        new.write_text(str(code))
        new.rename(order.with_suffix(".exit"))
        number += 1


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
