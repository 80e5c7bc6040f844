"""Maintenance and drains: what an operator's command changes in those that are set, and how far a drain is. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from policies.wording import counted
from state.outputs import DrainRow, RoundSummary, UpkeepSummary, rfc3339
from streaming.contract.decode import to_ms
from streaming.contract.messages import ControlData, SpellData
from streaming.operators.edits import BadChange, Edit
from streaming.operators.overlay import Asker, Standing, upkeep_of
from streaming.operators.text import counts_text

WILL_NOT_PASS = ("excluded-namespace", "maintenance", "no-destination", "anti-affinity")
"""Reasons why a bundle stays at a drained broker that no later round changes by itself."""


def begin_maintenance(
    brokers: Collection[str],
    namespaces: Collection[str],
    *,
    asker: Asker,
    at: datetime,
    until: datetime | None,
) -> Edit:
    """Leave brokers and namespaces alone, until then or until a person ends it; a drain of such a broker ends."""
    spell = SpellData(since=at, until=until, who=asker.who, why=asker.why)
    return lambda data: msgspec.structs.replace(
        data,
        maintenance_brokers=data.maintenance_brokers | dict.fromkeys(brokers, spell),
        maintenance_namespaces=data.maintenance_namespaces | dict.fromkeys(namespaces, spell),
        drained_brokers=_drop_spells(data.drained_brokers, brokers),
    )


def end_maintenance(brokers: Collection[str], namespaces: Collection[str]) -> Edit:
    """Let brokers and namespaces take part again, drained ones too. The edit raises ``BadChange`` for a name that is neither."""

    def edit(data: ControlData) -> ControlData:
        for what, names, known in (
            ("broker", brokers, {*data.maintenance_brokers, *data.drained_brokers}),
            ("namespace", namespaces, {*data.maintenance_namespaces}),
        ):
            strangers = sorted(set(names) - known)
            if strangers:
                raise BadChange(
                    f"{what} {', '.join(strangers)} is neither under maintenance nor drained; `trimtab maintenance list` "
                    "shows what is"
                )
        return msgspec.structs.replace(
            data,
            maintenance_brokers=_drop_spells(data.maintenance_brokers, brokers),
            maintenance_namespaces=_drop_spells(data.maintenance_namespaces, namespaces),
            drained_brokers=_drop_spells(data.drained_brokers, brokers),
        )

    return edit


def begin_drain(brokers: Collection[str], *, asker: Asker, at: datetime) -> Edit:
    """Empty brokers. One that is drained already goes on as it began; a drain replaces a maintenance."""
    spell = SpellData(since=at, who=asker.who, why=asker.why)
    return lambda data: msgspec.structs.replace(
        data,
        maintenance_brokers=_drop_spells(data.maintenance_brokers, brokers),
        drained_brokers=dict.fromkeys(brokers, spell) | data.drained_brokers,
    )


def _drop_spells(spells: Mapping[str, SpellData], names: Collection[str]) -> dict[str, SpellData]:
    return {name: each for name, each in spells.items() if name not in names}


def change_lines(before: ControlData, after: ControlData) -> Iterable[str]:
    """What begins and what ends with a change."""
    old, new = dict(upkeep_of(before)), dict(upkeep_of(after))
    for key in sorted({*old, *new}):
        if key not in new:
            yield f"  {' '.join(key)}: ends"
        elif old.get(key) != new[key]:
            yield f"  {' '.join(key)}: {_describe_end(new[key])}"


def standing_lines(data: ControlData) -> Iterable[str]:
    """What is under maintenance or drained, with who asked for it and why."""
    for key, each in upkeep_of(data):
        asked = f"by {each.who or 'somebody'}: {each.why or 'no reason given'}"
        yield f"  {' '.join(key)}: since {rfc3339(to_ms(each.since))} {_describe_end(each)}, {asked}"


def _describe_end(spell: SpellData) -> str:
    return "until it is ended" if spell.until is None else f"until {rfc3339(to_ms(spell.until))}"


def upkeep_tree(cluster: str, stands: Standing) -> list[dict[str, object]]:
    """What is under maintenance or drained, for a program: an object for each."""
    return [
        {"cluster": cluster, "what": what, "name": name, **msgspec.to_builtins(each)}
        for (what, name), each in upkeep_of(stands.overlay)
    ]


def drain_rows(data: RoundSummary, brokers: Collection[str]) -> Sequence[DrainRow]:
    """How far the drains of these brokers are in a round."""
    return [] if data.upkeep is None else [each for each in data.upkeep.drains if each.name in brokers]


def drain_line(row: DrainRow) -> str:
    """A drain in words."""
    if row.state == "silent":
        return f"drain of {row.name}: no report of it"
    if row.state == "empty":
        return f"drain of {row.name}: empty, under maintenance until it is ended"
    if row.state == "only-pulsars-own":
        bundles = f"{counted(row.pulsars_own_count or 0, 'bundle')} of Pulsar's own"
        return f"drain of {row.name}: empty but for {bundles}, under maintenance until it is ended"
    return f"drain of {row.name}: {row.bundles_left_count} bundles left of {row.bundles_at_start_count}"


def own_lines(row: DrainRow) -> Iterable[str]:
    """Which bundles of Pulsar's own are still at a broker whose other bundles have left."""
    if row.state != "only-pulsars-own":
        return
    yield "  they serve the whole cluster, such as transaction coordinators: when the broker stops, their clients wait for others"
    yield from (f"  {each} is Pulsar's own" for each in row.pulsars_own)
    if (more := (row.pulsars_own_count or 0) - len(row.pulsars_own)) > 0:
        yield f"  and {more} more"


def left_lines(found: UpkeepSummary | None) -> Iterable[str]:
    """Which bundles are still at drained brokers, and why."""
    if found is None or not found.left.count:
        return
    yield f"bundles left: {counts_text(found.left.outcomes)}"
    for each in found.left.heaviest:
        if each.outcome != "acted":
            yield f"  {each.bundle} at {each.broker}: {each.detail}"


def is_over(row: DrainRow) -> bool:
    """Whether nothing that is moved is left at a drained broker."""
    return row.state in {"empty", "only-pulsars-own"}


def is_stuck(data: RoundSummary) -> bool:
    """Whether every bundle that is left stays for a reason that no later round changes by itself."""
    left = None if data.upkeep is None else data.upkeep.left
    return left is not None and left.count > 0 and set(left.outcomes) <= set(WILL_NOT_PASS)


def upkeep_lines(found: UpkeepSummary | None) -> Iterable[str]:
    """Maintenance and drains as a round has them, for ``status`` and ``rounds``."""
    if found is None:
        return
    for what, rows in (("broker", found.brokers), ("namespace", found.namespaces)):
        for each in rows:
            until = "until it is ended" if each.until is None else f"until {each.until}"
            yield f"{what} {each.name} under maintenance {until}, by {each.who or 'somebody'}: {each.why or 'no reason given'}"
    for row in found.drains:
        yield f"{drain_line(row)}, by {row.who or 'somebody'}: {row.why or 'no reason given'}"
        yield from own_lines(row)
    yield from left_lines(found)
