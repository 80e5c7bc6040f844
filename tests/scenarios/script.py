"""The language of the scenarios: a line an event, as a person would tell it.

    t=61 report b1 cpu=80/100 rate=8000 bundles: t/n/0x0_0x4=3000 t/n/0x4_0x8=200/5e6 t/n/0x8_0xc=-
    t=70 tick asked=b1,b2 failed=b3:timeout
    t=70 stats b1 bundles: t/n/0x0_0x4: 1=100 7=20/1e6   (topics by number, a bundle's after its name and a colon)
    t=70 result 1 failed                 (of the scenario's first action; or any text as an action's id)
    t=70 approve 1                       (or reject; of the scenario's first action, which is a proposal, or any text as an id)
    t=70 control {"paused": true}
    t=70 cluster {"shedding": ["b1"], …}     (what the cluster is besides its load: see ``facts``)
    restart [controller.mode=act …]      (commit, then a new controller on the stored bytes, with settings changed)
    t=5 logs 101 t0-0=12e9!              (a Kafka broker; with ``moves`` see ``kafka_script``)
    again                                (the same event once more)
    later 60                             (the reports since the last empty line again, so many seconds later)
    close                                (the end of the input closes the open rounds)

``t`` is seconds since the epoch. Every event takes ``id=``, ``cluster=`` and ``recorded=`` (when a log took it, in
seconds). Resources: ``cpu= in= out= memory=`` as usage/limit. ``rate=`` messages/s and ``volume=`` bytes/s of the
broker; absent, they are the sums over its bundles. A bundle has messages/s, or messages/s ``/`` bytes/s, or ``-`` for
one that is listed without statistics, or messages/s ``/`` bytes/s ``/`` topics ``/`` sessions. Topics of statistics
are numbers: the numberth name of the namespace (``persistent://t/n/topic-0``, ``-1``, …) that hashes into the bundle.
"""

import json
import re
import shlex
from itertools import count, islice

from policies.splitting.ranges import Bundle, position_of
from tests.scenarios import kafka_script
from tests.streaming.events import (
    TOPIC_STATS,
    approval,
    at,
    control,
    event,
    facts,
    report,
    result,
    tick,
    traffic,
)

_RESOURCES = {"cpu": "cpu", "in": "bandwidthIn", "out": "bandwidthOut", "memory": "directMemory"}
_COMMON = {"id", "cluster", "recorded"}


def event_of(line: str, action_ids: list[str]) -> bytes:
    """The event a line tells of; ``action_ids`` are those of the scenario's actions so far."""
    found = re.fullmatch(r"t=(\S+) (\w+)(?: (.*))?", line)
    if found is None:
        raise ValueError(f"not an event: {line!r}")
    time_s, kind, rest = float(found[1]), found[2], found[3] or ""
    if kind in {"control", "cluster"}:
        words, _, text = rest.partition("{")
        data, attributes = json.loads("{" + text), _attributes(_options(words.split()))
        message = {"data": data} if kind == "control" else data
        return (control if kind == "control" else facts)(time_s=time_s, **message, **attributes)
    words_of, _, bundles = rest.partition("bundles:")
    words = shlex.split(words_of)
    plain = [word for word in words if "=" not in word]
    options = _options([word for word in words if "=" in word])
    attributes = _attributes(options)
    match kind:
        case "report":
            return _report(plain[0], time_s, options, bundles.split(), attributes)
        case "tick":
            failed = dict(each.split(":", 1) for each in _list(options.get("failed")))
            return tick(time_s=time_s, asked=_list(options.get("asked")), failed=failed, **attributes)
        case "stats":
            return event(
                TOPIC_STATS,
                time_s=time_s,
                data=_topics(bundles.split()),
                **({"subject": plain[0]} | attributes),
            )
        case "logs" | "moves":
            return kafka_script.event_of(kind, _own(rest), time_s=time_s, attributes=attributes)
        case "result" | "approve" | "reject":
            action = action_ids[int(plain[0]) - 1] if plain[0].isdigit() else plain[0]
            said = {"approve": "approved", "reject": "rejected"}.get(kind) or plain[1]
            return (result if kind == "result" else approval)(action, said, time_s=time_s, **attributes)
    raise ValueError(f"unknown event {kind!r}: {line!r}")


def _own(rest: str) -> list[str]:
    """Words without the attributes that every event takes."""
    return [word for word in rest.split() if word.partition("=")[0] not in _COMMON]


def _options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def _list(text: str | None) -> list[str]:
    return [] if text is None else text.split(",")


def _attributes(options: dict[str, str]) -> dict[str, object]:
    found: dict[str, object] = {name: options[name] for name in ("id", "cluster") if name in options}
    if "recorded" in options:
        found["recordedtime"] = at(float(options["recorded"]))
    return found


def _report(
    broker: str, time_s: float, options: dict[str, str], bundles: list[str], attributes: dict[str, object]
) -> bytes:
    unknown = options.keys() - _RESOURCES.keys() - _COMMON - {"rate", "volume"}
    if unknown:
        raise ValueError(f"a report knows no {', '.join(sorted(unknown))}")
    data = {
        _RESOURCES[name]: dict(zip(("usage", "limit"), map(float, options[name].split("/")), strict=True))
        for name in options.keys() & _RESOURCES.keys()
    }
    return report(
        broker,
        time_s=time_s,
        rate=_number(options.get("rate")),
        volume=_number(options.get("volume")),
        bundles=dict(map(_bundle, bundles)),
        data=data,
        **attributes,
    )


def _topics(words: list[str]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for word in words:
        if word.endswith(":"):
            bundle = word.removesuffix(":")
            found[bundle] = {}
            continue
        number, _, numbers = word.partition("=")
        found[bundle][topic_in(bundle, int(number))] = traffic(*map(float, numbers.split("/")))
    return found


def topic_in(bundle: str, number: int) -> str:
    """The numberth topic of a bundle's namespace that hashes into the bundle."""
    parsed = Bundle.parse(bundle)
    names = (f"persistent://{parsed.namespace}/topic-{at}" for at in count())
    inside = (name for name in names if parsed.range.contains(position_of(name)))
    return next(islice(inside, number, None))


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _bundle(word: str) -> tuple[str, dict[str, object] | None]:
    name, _, numbers = word.partition("=")
    if numbers == "-":
        return name, None
    rate, *rest = map(float, numbers.split("/"))
    counts = dict(zip(("topics", "producerCount"), map(int, rest[1:]), strict=False))
    return name, traffic(rate, *rest[:1]) | counts
