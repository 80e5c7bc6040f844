"""A time limit for the call of a client that has no limit of its own."""

import threading
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def within(timeout_s: float, call: Callable[[], Value], *, what: str) -> Value:
    """What ``call`` returns or raises; ``TimeoutError`` where it takes longer.

    The thread left behind by a timeout must hold nothing but a client that is closed next.
    """
    values: list[Value] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            values.append(call())
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, name=what, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if failures:
        raise failures[0]
    if not values:
        raise TimeoutError(f"{what}: no answer within {timeout_s:g} s")
    return values[0]
