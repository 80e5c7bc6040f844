"""Bundles that were told to leave their broker: they are no company for the one that ``keep_sole_bundle`` keeps there.

A bundle leaves from the decision of its unload until the reports show it at another broker, or until it is known to
stay: the action failed, was skipped, or was judged without effect, or nothing was heard of it for so long that nothing
will be. What a dry-run decided leaves as long, so that it shows what would be done.
"""

from collections import defaultdict
from collections.abc import Collection

from state.fleet import Advanced
from state.memory import Header

Leaving = dict[str, set[str]]
"""Bundles on their way, by the broker that still lists them."""


def stay(header: Header, action_ids: Collection[str]) -> None:
    """The bundles of these unloads do not leave after all."""
    header.leaving = {name: each for name, each in header.leaving.items() if each.action_id not in action_ids}


def settle(header: Header, advanced: Advanced, *, end_ms: int) -> Leaving:
    """Forget who arrived and who was given up, after the round's judgement; returns who is still listed at the source."""
    found: Leaving = defaultdict(set)
    if not header.leaving:
        return found
    owners = advanced.owners_of(header.leaving)
    header.leaving = {
        name: each
        for name, each in header.leaving.items()
        if owners.get(name, each.source) == each.source
        and (end_ms < each.until_ms or each.action_id in header.trials)
    }
    for name, each in header.leaving.items():
        if name in owners:
            found[each.source].add(name)
    return found
