"""``trimtab status --brokers``: who carries what now, and why a broker gives or receives no bundle, from the newest summary of a cluster."""

from collections.abc import Iterator
from typing import Any

import msgspec

from policies.throttle.roles import ROLES
from policies.wording import rate_text
from state.outputs import BrokerLoad, KafkaBrokerLoad, RoundSummary
from streaming.cli.output import table_lines

_UNKNOWN = "unknown"


def list_brokers(data: RoundSummary) -> dict[str, Any]:
    """For a program: the brokers of a round, heaviest first, how many more reported, and those that did not."""
    rows: list[dict[str, Any]] = [msgspec.structs.asdict(row) | _outward(row) for row in data.brokers] + [
        msgspec.structs.asdict(row) | {"throttle_bytes_per_s": _rates(data, row)}
        for row in data.kafka_brokers
    ]
    return {
        "brokers": rows,
        "brokers_more_count": data.brokers_reporting_count - len(rows),
        "silent": silent_brokers(data),
        "silent_more_count": data.brokers_missing_count - len(data.brokers_missing),
    }


def broker_lines(data: RoundSummary) -> list[str]:
    """For a person: a table with the brokers that did not report at its end, and how many more there are."""
    tree = list_brokers(data)
    heads, cells = (_KAFKA_HEADS, _kafka_cells) if data.system == "kafka" else (_HEADS, _cells)
    rows = [heads, *(cells(row, data) for row in tree["brokers"])]
    rows += [(name, "no report", *[""] * (len(heads) - 3), why) for name, why in tree["silent"].items()]
    return [*table_lines(rows), *_more(tree)]


def silent_brokers(data: RoundSummary) -> dict[str, str]:
    """By broker without a report, the reason as far as it is known; one that is taken out of balancing is not counted as missing."""
    unknown = "the reason is not known"
    found = {name: data.brokers_failed.get(name, unknown) for name in data.brokers_missing}
    if data.maintenance is not None and len(data.brokers_reporting) == data.brokers_reporting_count:
        apart = {row.name: "it is under maintenance" for row in data.maintenance.brokers}
        apart |= {row.name: "it is drained" for row in data.maintenance.drains}
        found |= {name: why for name, why in apart.items() if name not in data.brokers_reporting}
    return found


def standing_text(gives_none_reason: str | None, receives_none_reason: str | None) -> str:
    """Why a broker gives or receives no bundle; empty if it may do both."""
    if gives_none_reason is not None and gives_none_reason == receives_none_reason:
        return f"gives and receives none: {gives_none_reason}"
    parts = (("gives", gives_none_reason), ("receives", receives_none_reason))
    return "; ".join(f"{what} none: {why}" for what, why in parts if why is not None)


def _outward(row: BrokerLoad) -> dict[str, float | None]:
    """What goes out; sums are rounded, so that a little less than nothing may be left."""
    return {
        f"out_{name}": None if inward is None else max(0.0, total - inward)
        for name, total, inward in (
            ("messages_per_s", row.messages_per_s, row.in_messages_per_s),
            ("bytes_per_s", row.bytes_per_s, row.in_bytes_per_s),
        )
    }


def _rates(data: RoundSummary, row: KafkaBrokerLoad) -> dict[str, int]:
    """The throttle of a broker by role; in dry-run, what it would be."""
    rates = {} if data.throttle is None else data.throttle.rates_bytes_per_s
    return {role: rates[f"{role}:{row.broker}"] for role in ROLES if f"{role}:{row.broker}" in rates}


_HEADS = ("broker", "usage", "by resource", "bundles", "messages/s", "bytes/s", "")


def _cells(row: dict[str, Any], data: RoundSummary) -> tuple[str, ...]:  # noqa: ARG001  the same form as for Kafka
    measured = [(value, name) for name, value in row["resources"].items() if value != "not-measured"]
    measured.sort(reverse=True)
    rests = f", {row['resting_count']} rest" if row["resting_count"] else ""
    group = [] if row["group"] is None else [f"group {row['group']}"]
    standing = standing_text(row["gives_none_reason"], row["receives_none_reason"])
    return (
        row["broker"],
        f"{row['usage_points']:.1f} %" if measured else _UNKNOWN,
        ", ".join(f"{name} {value:.1f}" for value, name in measured) or "not measured",
        f"{row['bundles_count']}{rests}",
        _both(row, "messages_per_s"),
        _both(row, "bytes_per_s"),
        "; ".join([*group, *([standing] if standing else [])]),
    )


_KAFKA_HEADS = ("broker", "usage", "bytes/s", "partitions that move", "")


def _kafka_cells(row: dict[str, Any], data: RoundSummary) -> tuple[str, ...]:
    would_be = "would be " if data.mode == "dry-run" else ""
    moves = [f"{row[f'{verb}_count']} {verb}" for verb in ("leading", "gaining") if row[f"{verb}_count"]]
    is_known = row["leading_count"] is not None
    rates = row["throttle_bytes_per_s"].items()
    return (
        row["broker"],
        _UNKNOWN if row["usage_points"] is None else f"{row['usage_points']:.1f} %",
        _both(row, "bytes_per_s"),
        (", ".join(moves) or "none") if is_known else _UNKNOWN,
        ", ".join(f"{role} throttle {would_be}{rate_text(rate)}" for role, rate in rates),
    )


def _both(row: dict[str, Any], unit: str) -> str:
    """A rate in and out; where only the sum is known, that."""
    inward, outward = row[f"in_{unit}"], row[f"out_{unit}"]
    if inward is None and outward is None:
        return f"{row[unit]:,.0f} in + out" if row.get(unit) is not None else _UNKNOWN
    return ", ".join(
        f"{_UNKNOWN if value is None else format(value, ',.0f')} {way}"
        for value, way in ((inward, "in"), (outward, "out"))
    )


def _more(tree: dict[str, Any]) -> Iterator[str]:
    if tree["brokers_more_count"]:
        yield f"  and {tree['brokers_more_count']} more that carry less"
    if tree["silent_more_count"]:
        yield f"  and {tree['silent_more_count']} more without a report"
    if not tree["brokers"]:
        yield "  no broker reported in this round"
