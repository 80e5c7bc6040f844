"""Builders of CloudEvents as bytes: what a collector, an operator or an executor would send.

Times are seconds since the epoch, so that a round's number is easy to see in them. Everything may be overridden, also
with wrong values; an attribute or field that is ``ABSENT`` is left out.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from state.outputs import rfc3339

LOAD_REPORT = "trimtab.pulsar.load-report.v1"
TOPIC_STATS = "trimtab.pulsar.topic-stats.v1"
KAFKA_LOAD_REPORT = "trimtab.kafka.load-report.v1"
REASSIGNMENT = "trimtab.kafka.reassignment.v1"
TICK = "trimtab.tick.v1"
ACTION_RESULT = "trimtab.action-result.v1"
CLUSTER_FACTS = "trimtab.pulsar.cluster.v1"
CONTROL = "trimtab.control.v1"

CLUSTER = "east-1"
ABSENT = object()
"""Stands for an attribute or field that is not there."""


def at(time_s: float) -> str:
    """RFC 3339 text of a time in seconds since the epoch."""
    return rfc3339(round(time_s * 1000))


def event(type_: str, *, time_s: float = 0.0, data: object, **attributes: object) -> bytes:
    """Any event; ``attributes`` override the usual ones."""
    usual = {
        "specversion": "1.0",
        "id": f"{attributes.get('subject')}/{time_s:g}",
        "source": "/tests",
        "type": type_,
        "subject": "b1",
        "time": at(time_s),
        "cluster": CLUSTER,
        "data": data,
    }
    merged = {name: value for name, value in (usual | attributes).items() if value is not ABSENT}
    return json.dumps(merged).encode()


def report(
    broker: str = "b1",
    *,
    time_s: float = 0.0,
    cpu: tuple[float, float] | None = None,
    rate: float | None = None,
    volume: float | None = None,
    bundles: Mapping[str, Mapping[str, object] | None] | None = None,
    data: Mapping[str, object] | None = None,
    **attributes: object,
) -> bytes:
    """A load report; ``rate`` and ``volume`` are inbound only. A bundle that is None is listed without statistics.

    Without anything else it says that no message comes in.
    """
    found: dict[str, Any] = {}
    if data is None and not bundles and (cpu, rate, volume) == (None, None, None):
        found["msgRateIn"] = 0.0
    if cpu is not None:
        found["cpu"] = {"usage": cpu[0], "limit": cpu[1]}
    if rate is not None:
        found |= {"msgRateIn": rate, "msgRateOut": 0.0}
    if volume is not None:
        found |= {"msgThroughputIn": volume, "msgThroughputOut": 0.0}
    if bundles is not None:
        found["bundles"] = list(bundles)
        found["lastStats"] = {name: stats for name, stats in bundles.items() if stats is not None}
    return event(
        LOAD_REPORT, time_s=time_s, data=found | dict(data or {}), **({"subject": broker} | attributes)
    )


def traffic(rate: float, volume: float = 0.0) -> dict[str, object]:
    """Statistics of a bundle, all of it inbound."""
    return {"msgRateIn": rate, "msgRateOut": 0.0, "msgThroughputIn": volume, "msgThroughputOut": 0.0}


def pair(time_s: float) -> list[bytes]:
    """A hot broker beside a cold one."""
    hot = {"t/n/0x0_0x1": traffic(3000), "t/n/0x1_0x2": traffic(5000)}
    cold = {"t/n/0x2_0x3": traffic(1000), "t/n/0x3_0x4": traffic(1000)}
    return [
        report("b1", time_s=time_s, cpu=(80, 100), rate=8000, bundles=hot),
        report("b2", time_s=time_s, cpu=(20, 100), rate=2000, bundles=cold),
    ]


def tick(
    *,
    time_s: float,
    asked: list[str] | None = None,
    failed: Mapping[str, str] | None = None,
    **attributes: object,
) -> bytes:
    """A collector's tick: its sweep is complete."""
    data = {"asked": asked or [], "failed": dict(failed or {})}
    return event(TICK, time_s=time_s, data=data, **({"subject": "tick"} | attributes))


def facts(
    *,
    time_s: float,
    shedding: Sequence[str] = (),
    splitting: Sequence[str] = (),
    calm: Sequence[str] = (),
    unknown: Sequence[str] = (),
    restricted: Sequence[str] = (),
    trimtab_topics: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
    isolation: Mapping[str, Sequence[Sequence[str]]] | None = None,
    anti_affinity: Mapping[str, Sequence[str]] | None = None,
    **attributes: object,
) -> bytes:
    """What a collector found out about a cluster.

    ``shedding`` and ``splitting`` are brokers with Pulsar's own shedding or splitting on, ``calm`` have neither, ``unknown``
    gave no answer, ``restricted`` allow no split at given positions. ``isolation`` has each policy's namespaces and primary brokers.
    """
    brokers = {
        name: {"shedding_enabled": name in shedding, "auto_split_enabled": name in splitting}
        for name in (*shedding, *splitting, *calm)
    }
    brokers |= {
        name: {**brokers.get(name, {}), "split_algorithms": ["range_equally_divide"]} for name in restricted
    }
    data = {
        "pulsar_cluster": "east",
        "brokers": brokers | {name: {} for name in unknown},
        "isolation_policies": {
            name: {"namespaces": list(namespaces), "primary": list(primary), "secondary": []}
            for name, (namespaces, primary) in (isolation or {}).items()
        },
        "anti_affinity_groups": {name: list(names) for name, names in (anti_affinity or {}).items()},
        "trimtab_topics": {
            bundle: {topic: traffic(*rates) for topic, rates in topics.items()}
            for bundle, topics in (trimtab_topics or {}).items()
        },
    }
    return event(CLUSTER_FACTS, time_s=time_s, data=data, **({"subject": "cluster"} | attributes))


def control(*, time_s: float, data: Mapping[str, object], **attributes: object) -> bytes:
    """An operator's overlay."""
    return event(CONTROL, time_s=time_s, data=dict(data), **({"subject": "control"} | attributes))


def approval(proposal_id: str, verdict: str, *, time_s: float, **attributes: object) -> bytes:
    """A person's verdict on a proposal."""
    data = {"verdict": verdict, "who": "maria", "why": "looks right"}
    return event("trimtab.approval.v1", time_s=time_s, subject=proposal_id, data=data, **attributes)


def result(action_id: str, outcome: str, *, time_s: float, **attributes: object) -> bytes:
    """The result of an action."""
    return event(ACTION_RESULT, time_s=time_s, subject=action_id, data={"outcome": outcome}, **attributes)
