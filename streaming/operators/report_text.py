"""A report for a person: what was done, what it gained, and what was held back."""

from collections import Counter
from collections.abc import Iterator

from streaming.operators.report import ClusterReport
from streaming.operators.text import counts_text, table_lines, value_text

_SHOWN_REASONS = 12


def report_text(found: ClusterReport) -> str:
    """The report of a cluster, in some lines."""
    return "\n".join([*_lines(found), ""])


def _lines(found: ClusterReport) -> Iterator[str]:
    yield f"{found.cluster}, {found.first} to {found.last}"
    yield from table_lines(facts_of(found))
    if found.held:
        yield from ("", "Held back, in bundles and rounds:")
        yield from table_lines(held_rows(found))
    if found.without_effect:
        yield from ("", "Actions without effect, the newest first:")
        yield from table_lines(tried_rows(found))


def facts_of(found: ClusterReport) -> list[tuple[str, str]]:
    """The facts that are shown for every cluster."""
    modes = counts_text(dict(found.modes)) + (f", {found.paused_count} paused" if found.paused_count else "")
    facts = [
        ("rounds", counts_text(dict(found.rounds))),
        ("mode", modes),
        ("actions", value_text(found.actions_count)),
        ("judged", _judged_text(found.judged)),
        ("gain", _gain_text(found)),
        ("unbalanced", _unbalanced_text(found)),
    ]
    if found.findings:
        facts.append(("findings, in rounds", counts_text(dict(found.findings.most_common()))))
    return facts


def held_rows(found: ClusterReport) -> list[tuple[str, ...]]:
    """The most frequent reasons."""
    return [(reason, value_text(count)) for reason, count in found.held.most_common(_SHOWN_REASONS)]


def tried_rows(found: ClusterReport) -> list[tuple[str, ...]]:
    """Actions that did not help."""
    return [
        (
            each.judged_at,
            f"{each.kind} {each.bundle}",
            f"{each.source or ''} to {each.destination or 'where Pulsar chose'}"
            if each.kind == "unload"
            else "",
            each.outcome,
            each.id,
        )
        for each in reversed(found.without_effect)
    ]


def _judged_text(judged: Counter[tuple[str, str]]) -> str:
    if not judged:
        return "none yet: an action is judged once its executor has answered, or once it has expired"
    return ", ".join(f"{count} {kind}s {outcome}" for (kind, outcome), count in sorted(judged.items()))


def _gain_text(found: ClusterReport) -> str:
    tree = found.tree()["promises"]
    if tree["gain_points"] is None:
        return "not known: no unload has settled"
    return (
        f"{value_text(tree['gain_points'])} points an unload, {value_text(tree['expected_gain_points'])} expected; "
        f"{tree['kept_count']} promises kept, {tree['failed_count']} failed"
    )


def _unbalanced_text(found: ClusterReport) -> str:
    tree = found.tree()
    if not tree["observed_hours"]:
        return "not known: no round says how loaded brokers are"
    share = 100 * tree["unbalanced_hours"] / tree["observed_hours"]
    return f"{value_text(round(tree['unbalanced_hours'], 1))} of {value_text(round(tree['observed_hours'], 1))} hours ({share:.0f} %)"
