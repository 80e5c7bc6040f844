"""The words of the scenarios for Kafka clusters; see ``script`` for the rest of the language.

    t=5 logs 101 t0-0=12e9! t1-0=30e9+6e6!/700 leader=31200000 in=5e6
    t=5 moves t0-0:101,102,103+103-101 t1-0:102,101+103@101~101,102 leader:t0=0:101,0:102 follower:t0=0:103 live:101,102

``logs`` is a broker's report: each replica with its size (``+`` its growth in bytes/s since t=0), ``!`` where the broker
leads it, ``/`` its end offset, ``?`` what it lacks, ``%`` what its copy on another disk lacks; ``leader=``, ``follower=`` and ``disk=``
the rates set on it, ``leader.default=`` and so on those of all brokers, ``in=`` and ``out=`` its network, ``threads=`` those for disks.
``moves`` is all that is copied: replicas now, ``+`` those added, ``-`` those removed, ``@`` the leader (else the first),
``~`` the in-sync ones (else all that are not added), ``*`` those that are behind, ``%`` those that move between disks, ``<`` its
``min.insync.replicas``; then the throttled lists on the cluster, by role and topic, and the brokers that are alive (else it is not said).
"""

import re

from tests.streaming.events import KAFKA_LOAD_REPORT, REASSIGNMENT, event

_MOVE = re.compile(
    r"(\S+?)-(\d+):([\d,]+)(?:\+([\d,]+))?(?:-([\d,]+))?(?:@(-?\d+))?(?:~([\d,]*))?"
    r"(?:\*([\d,]+))?(?:%([\d,]+))?(?:<(\d+))?"
)
_REPLICA = re.compile(r"(\S+?)-(\d+)=([\d.e]+)(?:\+([\d.e]+))?(!)?(?:/(\d+))?(?:\?([\d.e]+))?(?:%([\d.e]+))?")
_RATES = {
    "leader": "leader_bytes_per_s",
    "follower": "follower_bytes_per_s",
    "disk": "disk_bytes_per_s",
    "leader.default": "leader_default_bytes_per_s",
    "follower.default": "follower_default_bytes_per_s",
}
_LIST = re.compile(r"(leader|follower):([^=:]+)=(\S+)")


def event_of(kind: str, words: list[str], *, time_s: float, attributes: dict[str, object]) -> bytes:
    """The event of ``logs`` or ``moves``."""
    if kind == "moves":
        return _moves(words, time_s=time_s, attributes=attributes)
    broker, *rest = words
    return _logs(broker, rest, time_s=time_s, attributes=attributes)


def _logs(broker: str, words: list[str], *, time_s: float, attributes: dict[str, object]) -> bytes:
    numbers = dict(word.split("=", 1) for word in words if "-" not in word)
    unknown = numbers.keys() - {*_RATES, "in", "out", "threads"}
    if unknown:
        raise ValueError(f"logs know no {', '.join(sorted(unknown))}")
    data = {
        "broker": int(broker),
        "throttle": {key: _number(numbers[name]) for name, key in _RATES.items() if name in numbers},
        "network": {f"{name}_bytes_per_s": _number(numbers.get(name)) for name in ("in", "out")},
        "replicas": [_replica(word, time_s) for word in words if "-" in word],
        "disk_threads_count": _number(numbers.get("threads")),
    }
    return event(KAFKA_LOAD_REPORT, time_s=time_s, data=data, **({"subject": broker} | attributes))


def _moves(words: list[str], *, time_s: float, attributes: dict[str, object]) -> bytes:
    throttled: dict[str, dict[str, str]] = {"leader": {}, "follower": {}}
    rows, data = [], dict[str, object]()
    for word in words:
        if word.startswith("live:"):
            data["live_brokers"] = _brokers(word.removeprefix("live:"))
            continue
        found = _LIST.fullmatch(word)
        if found is None:
            rows.append(_move(word))
        else:
            throttled[found[1]][found[2]] = found[3]
    data |= {"moves": rows, "throttled": throttled}
    return event(REASSIGNMENT, time_s=time_s, data=data, **({"subject": "reassignments"} | attributes))


def _number(text: str | None) -> int | None:
    return None if text is None else int(float(text))


def _replica(word: str, time_s: float) -> dict[str, object]:
    found = _REPLICA.fullmatch(word)
    if found is None:
        raise ValueError(f"not a replica: {word!r}")
    growth = 0.0 if found[4] is None else float(found[4]) * time_s
    return {
        "topic": found[1],
        "partition": int(found[2]),
        "leader": found[5] is not None,
        "log_size_bytes": round(float(found[3]) + growth),
        "log_end_offset": _number(found[6]),
        "missing_bytes": _number(found[7]),
        "disk_missing_bytes": _number(found[8]),
    }


def _move(word: str) -> dict[str, object]:
    found = _MOVE.fullmatch(word)
    if found is None:
        raise ValueError(f"not a move: {word!r}")
    replicas, adding = _brokers(found[3]), _brokers(found[4])
    return {
        "topic": found[1],
        "partition": int(found[2]),
        "replicas": replicas,
        "adding": adding,
        "removing": _brokers(found[5]),
        "leader": replicas[0] if found[6] is None else int(found[6]),
        "recovering": _brokers(found[8]),
        "between_disks": _brokers(found[9]),
        "min_isr": _number(found[10]),
        "isr": [each for each in replicas if each not in adding] if found[7] is None else _brokers(found[7]),
    }


def _brokers(text: str | None) -> list[int]:
    return [int(each) for each in text.split(",")] if text else []
