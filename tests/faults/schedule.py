"""What happens to a controller and its brokers, drawn from a seed. Pure: the same system and seed, the same schedule.

A seed fixes which faults come in which order, how long each lasts and how long to wait before it, not what the machine makes
of them. A schedule is for one controller that is started again (``drawn``), or for a leader and a standby (``drawn_failovers``).
Adding a kind changes the schedules of all seeds: results name the commit for that reason.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

System = Literal["kafka", "pulsar"]

FAULTS_MIN, FAULTS_MAX = 2, 4
WAIT_S_MIN, WAIT_S_MAX = 2.0, 8.0
"""Seconds from the end of one fault to the next; short enough for the next one to begin before the recovery from it is over."""
_LEADS_S_MAX = 4.0
"""How long one leads, at most, until it is ended: anywhere in a batch, or before its first."""
_ENDINGS_PER_DISTURBANCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that happens."""

    kind: str
    wait_s: float
    """Seconds before it begins."""
    for_s: float = 0.0
    """How long it lasts; 0 for what happens at once."""
    choice: str = ""
    """Which variant of the kind."""
    broker: int = 1
    """Which broker, from 1, where it is about one."""

    def __str__(self) -> str:
        parts = [self.kind, self.choice, f"{self.for_s:.1f}s" if self.for_s else ""]
        return "/".join(filter(None, parts))


Draw = Callable[[random.Random], Mapping[str, object]]


def _lasting(low_s: float, high_s: float, *choices: str) -> Draw:
    def draw(chance: random.Random) -> Mapping[str, object]:
        picked = {"choice": chance.choice(choices)} if choices else {}
        return {"for_s": round(chance.uniform(low_s, high_s), 1), **picked}

    return draw


def _at_once(*choices: str) -> Draw:
    return lambda chance: {"choice": chance.choice(choices)} if choices else {}


_BOTH: Mapping[str, Draw] = {
    "kill-controller": _at_once("all", "driver", "jvm", "worker"),
    "stop-controller": _at_once(),
    "freeze-controller": _lasting(1, 15, "all", "driver", "jvm"),
    "second-controller": _at_once("beside", "frozen"),
    "restored-checkpoint": _at_once(),
    "stop-broker": _lasting(1, 10, "orderly", "kill"),
    "freeze-broker": _lasting(1, 10),
    "disk-full": _lasting(2, 8),
    "clock-jump": _lasting(2, 8, "ahead", "far-ahead", "behind"),
    "garbage": _at_once(),
    "pause": _lasting(3, 8),
    "kill-executor": _at_once(),
    "freeze-executor": _lasting(1, 20),
    "second-executor": _at_once(),
    "kill-collector": _at_once(),
    "freeze-collector": _lasting(1, 20),
}
KINDS: Mapping[System, Mapping[str, Draw]] = {
    "kafka": {
        **_BOTH,
        "cut-network": _lasting(1, 12, "cut", "hold"),
        "slow-network": _lasting(3, 10),
        "move-leaders": _at_once(),
        "recover": _lasting(6, 15, "orderly", "kill"),
    },
    "pulsar": {
        **_BOTH,
        "unload-topics": _at_once(),
        "stop-bookie": _lasting(1, 8),
    },
}

ENDINGS: Mapping[str, Draw] = {
    "kill-leader": _at_once("all", "driver", "jvm"),
    "kill-both": _lasting(0, 4),
    "stop-leader": _at_once(),
    "freeze-leader": _lasting(0, 6, "all", "driver"),
}
"""How a leader that has a standby is ended."""
_DISTURBED: Mapping[str, Draw] = {
    "slow-batch": _lasting(6, 12),
    "stop-broker": _lasting(1, 10, "orderly", "kill"),
    "freeze-broker": _lasting(1, 10),
}
DISTURBANCES: Mapping[System, Mapping[str, Draw]] = {
    "kafka": {**_DISTURBED, "cut-network": _lasting(1, 12, "cut", "hold")},
    "pulsar": {**_DISTURBED, "stop-bookie": _lasting(1, 8)},
}
"""What a leader lives through; each one moves leadership once at most."""


def drawn(system: System, seed: int, *, brokers: int, only: Sequence[str] = ()) -> list[Fault]:
    """The schedule of a seed; ``only`` these kinds, where some are named."""
    chance = random.Random(f"{system}/{seed}")  # noqa: S311  the same schedule every time is the point
    kinds = [kind for kind in KINDS[system] if not only or kind in only]
    return [
        _fault(chance, kind, KINDS[system][kind], brokers)
        for kind in (chance.choice(kinds) for _ in range(chance.randint(FAULTS_MIN, FAULTS_MAX)))
    ]


def drawn_failovers(system: System, seed: int, *, brokers: int, count: int) -> list[Fault]:
    """A schedule in which the leader is ended ``count`` times, and disturbed now and then."""
    chance = random.Random(f"{system}/failovers/{seed}")  # noqa: S311  as above
    kinds = [(kind, ENDINGS[kind]) for kind in chance.choices(sorted(ENDINGS), k=count)]
    disturbances = DISTURBANCES[system]
    for kind in chance.choices(sorted(disturbances), k=count // _ENDINGS_PER_DISTURBANCE):
        kinds.insert(chance.randint(0, len(kinds)), (kind, disturbances[kind]))
    return [_fault(chance, kind, draw, brokers, between_s=(0.0, _LEADS_S_MAX)) for kind, draw in kinds]


def _fault(
    chance: random.Random,
    kind: str,
    draw: Draw,
    brokers: int,
    *,
    between_s: tuple[float, float] = (WAIT_S_MIN, WAIT_S_MAX),
) -> Fault:
    wait_s = round(chance.uniform(*between_s), 1)
    return Fault(kind=kind, wait_s=wait_s, broker=chance.randint(1, brokers), **draw(chance))  # type: ignore[arg-type]
