"""What the summary says about maintenance and drains, and the finding about bundles that came back."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from state.engine.memory import DrainRecord
from state.engine.summary import MAX_REMARK_CHARACTERS, SHOWN_ROWS, empty_section
from state.outputs import DrainRow, Finding, LeftRow, Section, SpellRow, UpkeepSummary, rfc3339
from state.pulsar.drain import Drained, PutBack
from state.pulsar.fleet import Advanced
from state.pulsar.memory import WaitingReport
from state.upkeep import Spell, Upkeep


def section(
    upkeep: Upkeep,
    drained: Drained | None,
    advanced: Advanced,
    begun: Mapping[str, DrainRecord],
    reports: Mapping[str, WaitingReport],
) -> UpkeepSummary | None:
    """The section of a round; None where nothing is taken out of balancing. ``drained`` is None where nothing was decided."""
    if not upkeep:
        return None
    return UpkeepSummary(
        brokers=_spells(upkeep.brokers),
        namespaces=_spells(upkeep.namespaces),
        drains=[
            _drain_row(name, each, advanced, begun.get(name), reports.get(name))
            for name, each in _first(upkeep.drains)
        ],
        left=empty_section() if drained is None else _left(drained),
    )


def _first(spells: Mapping[str, Spell]) -> Sequence[tuple[str, Spell]]:
    return list(spells.items())[:SHOWN_ROWS]


def _spells(spells: Mapping[str, Spell]) -> list[SpellRow]:
    return [
        SpellRow(
            name=name,
            since=rfc3339(each.since_ms),
            until=None if each.until_ms is None else rfc3339(each.until_ms),
            who=each.who[:MAX_REMARK_CHARACTERS],
            why=each.why[:MAX_REMARK_CHARACTERS],
        )
        for name, each in _first(spells)
    ]


def _drain_row(
    name: str, spell: Spell, advanced: Advanced, begun: DrainRecord | None, report: WaitingReport | None
) -> DrainRow:
    rows = advanced.rows_of(name)
    left = None if rows is None else len(rows)
    own = [] if report is None else report.report.cluster_bundles
    return DrainRow(
        name=name,
        since=rfc3339(spell.since_ms),
        until=None if spell.until_ms is None else rfc3339(spell.until_ms),
        who=spell.who[:MAX_REMARK_CHARACTERS],
        why=spell.why[:MAX_REMARK_CHARACTERS],
        state="silent" if left is None else "draining" if left else "only-pulsars-own" if own else "empty",
        bundles_at_start_count=None if begun is None else begun.bundles_count,
        bundles_left_count=left,
        pulsars_own_count=None if report is None else len(own),
        pulsars_own=own[:SHOWN_ROWS],
    )


def _left(drained: Drained) -> Section[LeftRow]:
    """Bundles at drained brokers; those that stay are named before those that leave."""
    order = sorted(drained.left, key=lambda each: each.outcome == "acted")
    outcomes = Counter(each.outcome for each in drained.left)
    return Section(
        count=len(drained.left), outcomes=dict(sorted(outcomes.items())), heaviest=order[:SHOWN_ROWS]
    )


def of_put_back(found: Sequence[PutBack]) -> list[Finding]:
    """Bundles that Pulsar placed at a drained broker again, while they are there."""
    return [
        Finding(
            kind="put-back",
            subject=each.bundle,
            broker=each.broker,
            bytes_per_s=None,
            advice="it came to the broker after its drain began, because Pulsar placed it there or somebody moved it: it is "
            "moved off again in the next rounds",
        )
        for each in found
    ]


def missing(live: Sequence[str], reporting: Collection[str], upkeep: Upkeep) -> list[str]:
    """Live brokers, less those that are under maintenance or drained and silent: these do not count as missing."""
    apart = upkeep.apart
    return [name for name in live if name not in apart or name in reporting]
