"""All checks, and their result. Pure."""

from collections.abc import Callable, Iterable, Sequence

from streaming.operators.doctor import brokers, clocks, clusters, standing
from streaming.operators.doctor.facts import Facts
from streaming.operators.doctor.findings import OUTCOMES, Finding, not_checked
from streaming.operators.text import table_lines
from streaming.process.exits import OK, REFUSED, UNREACHABLE

CHECKS: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    brokers.addresses,
    brokers.permissions,
    brokers.topics,
    brokers.partitions,
    clocks.clocks,
    standing.checkpoint,
    standing.marker,
    standing.epoch,
    standing.leader,
    standing.versions,
    clusters.reports,
    clusters.rounds,
    clusters.balancers,
    clusters.rejected,
)
"""In such an order that a fault in one check explains faults in the next ones."""


def judge(facts: Facts) -> list[Finding]:
    """Every finding, in the order of the checks; one that fails does not end the others."""
    return [finding for check in CHECKS for finding in _run_check(check, facts)]


def _run_check(check: Callable[[Facts], Iterable[Finding]], facts: Facts) -> list[Finding]:
    try:
        return list(check(facts))
    except Exception as error:  # noqa: BLE001  reported in its place; the other checks go on
        return [
            not_checked(
                check.__name__,
                f"an error in trimtab itself, please report it: {type(error).__name__}: {error}",
            )
        ]


def exit_code_of(findings: Iterable[Finding]) -> int:
    """0 without a problem; 6 where brokers do not answer and nothing else is wrong; else 5."""
    problems = [each for each in findings if each.outcome == "problem"]
    if not problems:
        return OK
    return UNREACHABLE if all(each.is_unreachable for each in problems) else REFUSED


def report_text(findings: Sequence[Finding]) -> str:
    """A page for a person, the worst first; below each finding what to do."""
    counts = [(sum(each.outcome == outcome for each in findings), outcome) for outcome in OUTCOMES]
    head = ", ".join(f"{count} {outcome}{_plural(count, outcome)}" for count, outcome in counts if count)
    rows: list[tuple[str, ...]] = []
    for outcome in OUTCOMES:
        for each in (finding for finding in findings if finding.outcome == outcome):
            about = f"{each.about}: " if each.about else ""
            rows.append((outcome, each.check, f"{about}{each.finding}"))
            if each.remedy is not None:
                rows.append(("", "", f"→ {each.remedy}"))
    return "".join(f"{line}\n" for line in [head, *table_lines(rows)])


def _plural(count: int, outcome: str) -> str:
    return "s" if count != 1 and outcome in {"problem", "warning"} else ""
