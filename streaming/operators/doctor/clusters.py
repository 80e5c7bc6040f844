"""The clusters that are balanced: whether reports come, what their newest rounds say, and who else balances them. Pure."""

from collections.abc import Iterator
from datetime import datetime

from state.outputs import INFORMATION
from streaming.operators.doctor.facts import Facts, ObservedCluster
from streaming.operators.doctor.findings import Finding, Missed, good, not_checked, problem, warning
from streaming.operators.text import counts_text

_LATE_AFTER_ROUNDS = 3
_SHOWN_IN_SECONDS_S = 120


def reports(facts: Facts) -> Iterator[Finding]:
    """Whether anything comes on the input topic."""
    seen, topic = facts.input, facts.settings.topics.input
    if isinstance(seen, Missed):
        yield not_checked("reports", seen.why)
    elif seen.youngest_age_s is None:
        yield problem(
            "reports", f"no record came on {topic} in the last day", "Start a collector: trimtab collect"
        )
    elif seen.youngest_age_s > facts.settings.pulsar.rounds.max_report_age_s:
        yield problem(
            "reports",
            f"the newest record on {topic} came {_age(seen.youngest_age_s)}",
            "See the collector's log and its /readyz: trimtab collect",
        )
    else:
        yield good("reports", f"records come on {topic}, the newest one {_age(seen.youngest_age_s)}")


def rounds(facts: Facts) -> Iterator[Finding]:
    """What each cluster's newest summary says."""
    if isinstance(facts.clusters, Missed):
        yield not_checked("rounds", facts.clusters.why)
        return
    known = {observed.data.cluster for observed in facts.clusters}
    for name in sorted(set(facts.settings.clusters) - known):
        yield problem("rounds", "no round in the last day", "See whether its collector runs", about=name)
    if not facts.clusters and not facts.settings.clusters:
        yield problem(
            "rounds",
            f"no round of any cluster on {facts.settings.topics.audit} in the last day",
            "See the checks leader and reports",
        )
    for observed in facts.clusters:
        found = list(_round(observed, facts.now_ms / 1000))
        yield from found
        if all(each.outcome == "ok" for each in found):
            data = observed.data
            doing = "acts" if data.mode == "act" else "dry-run"
            yield good(
                "rounds", f"{doing}, round {data.round}: {data.reason or data.outcome}", about=data.cluster
            )


def _round(observed: ObservedCluster, now_s: float) -> Iterator[Finding]:
    data, name = observed.data, observed.data.cluster
    start_s, end_s = (datetime.fromisoformat(each).timestamp() for each in (data.start, data.end))
    if now_s - end_s > _LATE_AFTER_ROUNDS * (end_s - start_s):
        yield problem(
            "rounds",
            f"its newest round ended {_age(now_s - end_s)}; the rest is as of that round",
            "See the checks leader and reports, and docs/runbooks/not-deciding.md",
            about=name,
        )
    if data.outcome == "internal-error":
        yield problem(
            "rounds", f"its round failed: {data.reason}", "Please report it with a recording", about=name
        )
    elif data.outcome == "no-quorum":
        yield warning("rounds", data.reason, "See why the others do not report: trimtab status", about=name)
    for since, what in ((data.failing_since, "unloads"), (data.splits_failing_since, "splits")):
        if since is not None:
            yield problem(
                "rounds",
                f"all {what} are held since {since}, because too many failed",
                f"Mend the cause (docs/runbooks/failing.md), then: trimtab resume --cluster {name} --why …",
                about=name,
            )
    yield from _judge_control(observed)
    yield from _silent_brokers(observed)
    yield from _found(observed)


def _judge_control(observed: ObservedCluster) -> Iterator[Finding]:
    data, name = observed.data, observed.data.cluster
    control = data.control
    if data.paused:
        why = (
            "" if control is None else f" by {control.who or 'somebody'}: {control.why or 'no reason given'}"
        )
        yield warning(
            "rounds", f"it is paused{why}", f"Run: trimtab resume --cluster {name} --why …", about=name
        )
    if control is not None and control.problem is not None:
        yield warning(
            "rounds",
            f"the settings of its control event are not in force: {control.problem}",
            f"Run: trimtab policy show --cluster {name}",
            about=name,
        )


def _silent_brokers(observed: ObservedCluster) -> Iterator[Finding]:
    data, name = observed.data, observed.data.cluster
    if data.brokers_missing_count:
        yield warning(
            "rounds",
            f"live brokers did not report: {', '.join(data.brokers_missing)}",
            "Check whether they run, and what the collector's log says about them",
            about=name,
        )
    for broker, why in data.brokers_failed.items():
        yield warning(
            "rounds",
            f"the collector cannot ask {broker}: {why}",
            "See docs/runbooks/no-reports.md",
            about=name,
        )


def _found(observed: ObservedCluster) -> Iterator[Finding]:
    """The findings of the round: of each kind the first, and how many more there are."""
    data, name = observed.data, observed.data.cluster
    for kind, count in data.findings.outcomes.items():
        first = next((each for each in data.findings.heaviest if each.kind == kind), None)
        text = f"{kind}: {count} of them" if first is None else f"{kind} {first.subject}: {first.advice}"
        text += f" (and {count - 1} more)" if first is not None and count > 1 else ""
        if kind in INFORMATION:
            yield good("rounds", text, about=name)
        elif kind == "nobody-obeys":
            yield problem("rounds", text, "See docs/runbooks/nobody-obeys.md", about=name)
        else:
            yield warning("rounds", text, "See docs/decisions.md, Findings, and: trimtab status", about=name)


def balancers(facts: Facts) -> Iterator[Finding]:
    """Other balancers of the clusters, as their collectors report them."""
    if isinstance(facts.clusters, Missed):
        yield not_checked("balancers", facts.clusters.why)
        return
    for observed in facts.clusters:
        yield from (
            _kafka_throttles(observed) if observed.data.system == "kafka" else _pulsar_balancers(observed)
        )


def _pulsar_balancers(observed: ObservedCluster) -> Iterator[Finding]:
    data, name, found = observed.data, observed.data.cluster, observed.data.other_balancers
    if found is None:
        yield not_checked(
            "balancers",
            "no collector has reported whether Pulsar balances by itself",
            "Run: trimtab collect pulsar",
            about=name,
        )
        return
    say = problem if data.mode == "act" else warning
    on = (
        ("shedding", "loadBalancerSheddingEnabled", found.shedding_brokers),
        ("splitting of bundles", "loadBalancerAutoBundleSplitEnabled", found.splitting_brokers),
    )
    for what, key, brokers in on:
        if brokers:
            yield say(
                "balancers",
                f"Pulsar's own {what} is on at {', '.join(brokers)}",
                f"Run at one broker: pulsar-admin brokers update-dynamic-config --config {key} --value false",
                about=name,
            )
    if found.unknown_brokers:
        yield not_checked(
            "balancers",
            f"it is not known whether Pulsar balances at {', '.join(found.unknown_brokers)}: they cannot be asked",
            about=name,
        )
    elif not any(brokers for _, _, brokers in on):
        yield good("balancers", "no broker of Pulsar balances by itself", about=name)


def _kafka_throttles(observed: ObservedCluster) -> Iterator[Finding]:
    found = observed.data.throttle
    if found is not None and found.others_rates_bytes_per_s:
        yield warning(
            "balancers",
            f"another program has set throttles: {', '.join(found.others_rates_bytes_per_s)}",
            "Find out which one, e.g. Cruise Control or kafka-reassign-partitions.sh --throttle (docs/throttling.md)",
            about=observed.data.cluster,
        )
    else:
        yield good("balancers", "no other program has set a throttle", about=observed.data.cluster)


def rejected(facts: Facts) -> Iterator[Finding]:
    """What could not be used in the last hour."""
    seen, topic = facts.rejected, facts.settings.topics.dead_letter
    if isinstance(seen, Missed):
        yield not_checked("rejected", seen.why)
    elif seen.counts:
        many = "" if seen.is_complete else "at least "
        yield warning(
            "rejected",
            f"{many}{sum(seen.counts.values())} records went to {topic} in the last hour: {counts_text(seen.counts)}",
            "Run: trimtab rejected tail --from earliest --no-follow",
        )
    else:
        yield good("rejected", f"no record went to {topic} in the last hour")


def _age(age_s: float) -> str:
    return f"{max(0.0, age_s):.0f} s ago" if age_s < _SHOWN_IN_SECONDS_S else f"{age_s / 60:.0f} min ago"
