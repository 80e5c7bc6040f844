"""What would have to change for a bundle to move, for each reason that keeps it where it is; docs/decisions.md explains the reasons.

Here are the reasons of guards and of single bundles. Those of a policy are declared with the policy.
"""

from policies.shedding.registry import find_policy

REMEDIES = {
    "absent": "its owner's report has to list it again",
    "anti-affinity": "its destination has to own no more of its anti-affinity group than its source does",
    "budget": "the hour or the round has to be over, or the limit that it names (max_unloads_…, max_moved_…) has to be higher",
    "bundle-limit": "fewer other bundles have to move in the round, or max_unload_bundles_count has to be higher",
    "calm-after-change": "no broker may come or go for calm_after_change_rounds",
    "cooldown": "bundle_cooldown_s has to be over since the last action on it",
    "drained": "the drain has to end: `trimtab maintenance end`",
    "excluded-namespace": "its namespace has to be removed from excluded_namespaces",
    "failing": "fix the cause of the failed actions, then run: `trimtab resume`",
    "in-flight": "the result of the action on it has to come, or the action has to expire",
    "ineffective": "ineffective_rest_s has to be over: its last action had no effect, see the finding",
    "maintenance": "the maintenance of its broker or namespace has to end: `trimtab maintenance end`",
    "need-met": "more load has to leave its broker: other bundles already cover the need",
    "no-destination": "a broker that is less loaded than its own has to be able to receive it",
    "no-samples": "its traffic has to be reported once",
    "no-traffic": "it has to have traffic",
    "other-group": "Pulsar has to move it back to a broker of its own isolation group",
    "overlapping": "the reports have to list no other range that overlaps its own, see the finding",
    "own-topics": "trimtab's own topics have to carry less than half of its traffic",
    "paused": "the pause has to end: `trimtab resume`",
    "quiet-hours": "the quiet hours have to be over",
    "proposed": "the proposal of its broker has to be approved: `trimtab actions list --pending`",
    "rejected": "its proposal was rejected; it may be proposed again after that proposal would have expired",
    "sole-bundle": "its broker has to have another bundle, or keep_sole_bundle has to be off, or splits on",
    "split-instead": "it is split; its parts may move later",
    "too-big": "its broker has to give away more load than this bundle carries, or splits have to be on: [pulsar.split]",
    "too-little-benefit": "its move has to help its broker more, or min_unload_benefit_points has to be lower",
    "two-balancers": "Pulsar's own shedding and splitting have to be off",
    "unsettled-broker": "the reports have to show the last unload of its broker",
}


def remedy_of(outcome: str) -> str:
    """What would have to change for a bundle, as a sentence; empty for an outcome that keeps nothing where it is."""
    return REMEDIES.get(outcome, "")


def examined_remedy_of(outcome: str, policy: str) -> str:
    """The same for what a policy says of a pair or broker; empty for a policy or an outcome of another version."""
    found = find_policy(policy)
    return found.text_of(outcome).remedy if found is not None and outcome in found.outcomes else ""
