"""What would have to change for a bundle to move, for each reason that keeps it where it is; docs/decisions.md explains the reasons."""

__all__ = ["REMEDIES", "remedy_of"]

REMEDIES = {
    "already-recovered": "its history is high and the present is not: nothing has to move",
    "anti-affinity": "its destination has to own no more of its anti-affinity group than its source does",
    "below-target": "the usage of the brokers has to spread more than target_std_ratio",
    "below-min-traffic": "more traffic has to need a move, or min_unload_messages_per_s and min_unload_bytes_per_s have to be lower",
    "below-threshold": "its broker has to be further above the others than the threshold of the policy",
    "broker-joined": "no other broker may join for three rounds",
    "budget": "the hour or the round has to be over, or the limit max_unloads_… has to be higher",
    "bundle-limit": "fewer other bundles have to move in the round, or max_unload_bundles_count has to be higher",
    "calm-after-change": "no broker may come or go for calm_after_change_rounds",
    "cluster-idle": "the cluster has to have load",
    "cooldown": "bundle_cooldown_s has to be over since the last action on it",
    "drained": "the drain has to end: `trimtab maintenance end`",
    "every-broker-hot": "the coldest broker has to be at 85 % or below: add brokers",
    "excluded-namespace": "its namespace has to be removed from excluded_namespaces",
    "failing": "fix the cause of the failed actions, then run: `trimtab resume`",
    "hit-count": "its broker has to stand out for more rounds in a row",
    "in-flight": "the result of the action on it has to come, or the action has to expire",
    "ineffective": "ineffective_rest_s has to be over: its last action had no effect, see the finding",
    "maintenance": "the maintenance of its broker or namespace has to end: `trimtab maintenance end`",
    "need-met": "more load has to leave its broker: other bundles already cover the need",
    "no-better-place": "another bundle of its broker has to help, or splits have to be on: [pulsar.split]",
    "no-destination": "a broker that is less loaded than its own has to be able to receive it",
    "no-load-data": "every broker has to publish its load: the extensible load manager has to run at each of them",
    "no-samples": "its traffic has to be reported once",
    "no-top-bundles": "its broker has to publish its heaviest bundles",
    "no-traffic": "it has to have traffic",
    "not-busiest": "its broker has to have the most traffic",
    "not-sure": "its broker has to stand out more, or for longer, or noise_multiple has to be lower",
    "nothing-fits": "its broker has to have a bundle that fits, alone or in exchange for another",
    "other-group": "Pulsar has to move it back to a broker of its own isolation group",
    "outdated": "its broker has to publish its load again, or load_data_ttl_s has to be higher",
    "own-topics": "trimtab's own topics have to carry less than half of its traffic",
    "paused": "the pause has to end: `trimtab resume`",
    "promises-failed": "unloads have to help again, see the finding failed-promises, or: `trimtab resume`",
    "quiet-hours": "the quiet hours have to be over",
    "proposed": "the proposal of its broker has to be approved: `trimtab actions list --pending`",
    "receives": "its broker takes bundles of hotter brokers in this round",
    "rejected": "its proposal was rejected; it may be proposed again after that proposal would have expired",
    "sole-broker": "another broker has to report",
    "sole-bundle": "its broker has to have another bundle, or keep_sole_bundle has to be off, or splits on",
    "split-instead": "it is split; its parts may move later",
    "too-big": "its broker has to give away more load than this bundle carries, or splits have to be on: [pulsar.split]",
    "too-little-benefit": "its move has to help its broker more, or min_unload_benefit_points has to be lower",
    "two-balancers": "Pulsar's own shedding and splitting have to be off",
    "unsettled-broker": "the reports have to show the last unload of its broker",
    "within-spread": "its broker has to be further above the least used one than the acceptable spread",
}


def remedy_of(outcome: str) -> str:
    """What would have to change, as a sentence; empty for an outcome that keeps nothing where it is."""
    return REMEDIES.get(outcome, "")
