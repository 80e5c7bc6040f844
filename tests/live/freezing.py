"""`trimtab execute` that stops itself with SIGSTOP, once, at a point: `python -m tests.live.freezing POINT execute …`.

Points: `before-gate` (the cluster has been looked at, the next thing is the last gate before the call) and `before-commit`
(results written, the position not committed). Its consumers' sessions are as short as a broker allows, so that the group does
not wait for it through a freeze of some seconds.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

from kafka import KafkaConsumer

from streaming.cli import main
from streaming.executor import kafka_carry_out
from streaming.kafka.executor import ActionsTopic

SESSION_MS = 6_000
"""`group.min.session.timeout.ms` of a broker that is not told otherwise."""


def frozen_once(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Freeze before the first call."""
    todo = [signal.SIGSTOP]

    def call(*arguments: Any, **named: Any) -> Any:
        if todo:
            os.kill(os.getpid(), todo.pop())
        return plain(*arguments, **named)

    return call


def arm(point: str) -> None:
    """Put the point in."""
    if point == "before-gate":
        kafka_carry_out.changes_of = frozen_once(kafka_carry_out.changes_of)
    elif point == "before-commit":
        ActionsTopic.commit = frozen_once(ActionsTopic.commit)  # type: ignore[method-assign]
    else:
        raise AssertionError(f"{point!r} is no point")


def run(arguments: Iterable[str]) -> None:
    """Run the command, with these short sessions."""
    KafkaConsumer.DEFAULT_CONFIG["session_timeout_ms"] = SESSION_MS
    KafkaConsumer.DEFAULT_CONFIG["heartbeat_interval_ms"] = SESSION_MS // 4
    main(args=list(arguments), prog_name="trimtab")


if __name__ == "__main__":
    arm(sys.argv[1])
    run(sys.argv[2:])
