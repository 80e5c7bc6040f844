"""Why a round does what it does, in one line: how much happens, and how many bundles stay for which reason.

The counts are those of the summary's tables, so that the line, ``status`` and ``rounds show`` agree.
"""

from collections.abc import Collection, Mapping

from policies.shedding.registry import AnyPolicy
from policies.wording import counted
from state.outputs import ShadowSummary

_ACTED = "acted"
_STAY = {
    "absent": "are absent from the report of their owner",
    "anti-affinity": "are held by anti-affinity",
    "budget": "wait for a budget",
    "bundle-limit": "are above the limit of bundles in a round",
    "calm-after-change": "wait because brokers came or went",
    "excluded-namespace": "are in an excluded namespace",
    "failing": "are held until `trimtab resume`",
    "hit-count": "do not stand out for long enough yet",
    "in-flight": "have an action in flight",
    "ineffective": "rest after an action without effect",
    "last-published": "are the last that their broker publishes",
    "maintenance": "are under maintenance",
    "namespace-full": "are in a namespace that has enough bundles",
    "need-met": "stay because others are enough",
    "no-boundary": "have no boundary to split at",
    "no-destination": "have nowhere to go",
    "no-samples": "have no samples yet",
    "not-confirmed": "rest after an action that no executor confirmed",
    "no-topic-stats": "lack statistics of their topics",
    "no-traffic": "have no traffic",
    "dominant-topic": "are hot because of one topic",
    "other-group": "are at a broker of another group",
    "overlapping": "overlap others",
    "trimtab-topics": "have little but topics of trimtab",
    "paused": "wait for the end of the pause",
    "proposed": "wait for approval",
    "quiet-hours": "wait for the end of the quiet hours",
    "range-too-narrow": "have too narrow a range",
    "rejected": "rest after a rejected proposal",
    "restricted-split": "are held because a broker would refuse the split",
    "round-full": "wait for the next round, because this one moves no more",
    "sole-bundle": "would leave a broker empty",
    "sole-topic": "have a single topic",
    "split-first": "wait for the split of a heavier one",
    "split-instead": "are split instead",
    "starting": "wait for the end of the start",
    "to-be-unloaded": "are to move instead",
    "too-big": "are too big",
    "too-little-benefit": "would bring too little",
    "two-balancers": "are held because Pulsar balances, too",
    "unsettled-broker": "wait until the reports show the last move",
}
"""Why bundles stay, by outcome, in the plural; ``docs/understand/outcomes.md`` explains each."""
_SINGULARS = {"are": "is", "do": "does", "have": "has", "would": "would"}


def stay_text(outcomes: Mapping[str, int], *, action: str = "move", limits: Collection[str] = ()) -> str:
    """How many bundles stay for which reason, most first, such as ``11 bundles rest after a move, 2 are too big``; empty if none do.

    ``action`` is that which the bundles rest after, ``limits`` are the settings whose budgets are spent.
    """
    staying = [(name, count) for name, count in outcomes.items() if name != _ACTED and count]
    staying.sort(key=lambda reason: (-reason[1], reason[0]))
    parts = []
    for place, (name, count) in enumerate(staying):
        text = f"rest after a {action}" if name == "cooldown" else _STAY[name]
        verb, _, rest = text.partition(" ")
        said = f"{_SINGULARS.get(verb, f'{verb}s')} {rest.replace('their', 'its')}" if count == 1 else text
        named = f" ({', '.join(sorted(limits))})" if name == "budget" and limits else ""
        parts.append(f"{count if place else counted(count, 'bundle')} {said}{named}")
    return ", ".join(parts)


def shadow_note(shadow: ShadowSummary | None) -> str:
    """That loads count as if a dry-run had moved bundles; empty where they are as measured."""
    return "" if shadow is None else f" (as if the dry-run had moved {counted(shadow.count, 'bundle')})"


def calm_text(examined: Mapping[str, int], policy: AnyPolicy) -> str:
    """What became of the brokers, or pairs, that were looked at where no bundle was; empty if none was looked at."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in examined.items())
    if examined and examined.keys() <= set(policy.calm_outcomes):
        return f"no broker stands out ({counts})"
    return counts


def actions_text(count: int, noun: str, why: str, **of_them: int) -> str:
    """How many actions of a kind happen, how many of them for another reason than the policy, and what stays."""
    notes = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in of_them.items() if number)
    head = counted(count, noun) + (f" ({notes})" if notes else "")
    return f"{head}{', ' if count else ': '}{why}" if why else head
