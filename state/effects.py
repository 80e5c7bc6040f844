"""What became of the actions: the judge of their effect, and the guard that holds what fails.

Judged is an action, no dry-run, whose result came in: a failed one at once; a succeeded one by the reports that came
after its result. An unload is good once its bundle's owner is another; a split once a child is listed and the parent is
not. A round counts against it only if the broker concerned reported in it: what is not known is not "no effect". An
action that was skipped, or that nobody could look after, has no verdict.

Source: ours; Pulsar's answer to an admin call does not say whether anything happened.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import get_args

from state import leaving
from state.bulkhead import HELD_AFTER_ROUNDS
from state.fleet import Advanced
from state.guards import Hold
from state.memory import Header, ResultRecord, WaitingReport
from state.outputs import rfc3339
from state.past import ActionKind, Ineffective, PastAction, Trial, Verdict, VerdictOutcome
from state.settings import JUDGED_ACTIONS_COUNT, GuardSettings, PulsarSettings


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """An unload that had an effect, but another than the one decided."""

    bundle: str
    owner: str
    destination: str


def apply_results(header: Header, results: Collection[ResultRecord]) -> None:
    """What the results of a round change, in the order of their times."""
    actions: dict[str, list[PastAction]] = {}
    for action in chain(header.actions.values(), header.splits.values()):
        actions.setdefault(action.action_id, []).append(action)
    leaving.stay(header, {result.action_id for result in results if result.outcome != "succeeded"})
    for result in sorted(results):
        _apply(header, actions.get(result.action_id, ()), result)


def _apply(header: Header, actions: Iterable[PastAction], result: ResultRecord) -> None:
    """A result ends the flight; a failed one the cooldown too. The first that says how it ended counts for the judge."""
    for action in actions:
        action.in_flight = False
        action.failed = action.failed or result.outcome == "failed"
    trial = header.trials.get(result.action_id)
    if trial is None or trial.succeeded_ms is not None:
        return
    if result.outcome == "succeeded":
        trial.succeeded_ms = result.time_ms
    elif result.outcome == "failed":
        _end(header, result.action_id, "failed", judged_ms=result.time_ms)


def resume(header: Header, resumed_ms: int) -> None:
    """A person says that the cause is mended: what was decided or judged up to then counts no more.

    The same moment again changes nothing, so that an event may be obeyed in every round it is in force.
    """
    header.trials = {name: trial for name, trial in header.trials.items() if trial.decided_ms > resumed_ms}
    header.verdicts = [verdict for verdict in header.verdicts if verdict.judged_ms > resumed_ms]
    header.ineffective = {
        name: found for name, found in header.ineffective.items() if found.judged_ms > resumed_ms
    }
    header.failing_since_ms = {
        kind: since_ms for kind, since_ms in header.failing_since_ms.items() if since_ms > resumed_ms
    }
    if header.error_held_since_ms is not None and header.error_held_since_ms <= resumed_ms:
        header.error_held_since_ms, header.error_place = None, ""


def judge(
    header: Header,
    advanced: Advanced,
    reports: Mapping[str, WaitingReport],
    pulsar: PulsarSettings,
    *,
    end_ms: int,
) -> list[Elsewhere]:
    """Look after the actions with the reports of a round; returns unloads that landed elsewhere."""
    patience_ms = pulsar.guards.ineffective_after_rounds_count * header.length_ms
    patience_ms += pulsar.rounds.max_report_age_ms
    header.trials = {
        name: trial for name, trial in header.trials.items() if end_ms < _until_ms(trial, patience_ms)
    }
    elsewhere = _judge_all(header, advanced, reports, pulsar.guards, end_ms=end_ms)
    for kind in _failing_kinds(header, pulsar.guards):
        header.failing_since_ms.setdefault(kind, end_ms)
    return elsewhere


def _until_ms(trial: Trial, patience_ms: int) -> int:
    return trial.until_ms if trial.succeeded_ms is None else trial.succeeded_ms + patience_ms


def _judge_all(
    header: Header,
    advanced: Advanced,
    reports: Mapping[str, WaitingReport],
    guards: GuardSettings,
    *,
    end_ms: int,
) -> list[Elsewhere]:
    tried = {name: trial for name, trial in header.trials.items() if trial.succeeded_ms is not None}
    if not tried:
        return []
    owners = advanced.owners_of(
        {bundle for trial in tried.values() for bundle in (trial.bundle, *trial.children)}
    )
    elsewhere = []
    for action_id, trial in tried.items():
        found = _has_effect(trial, owners, reports) if guards.ineffective_after_rounds_count else True
        if found:
            _end(header, action_id, "good", judged_ms=end_ms)
            elsewhere += _elsewhere(trial, owners.get(trial.bundle))
        elif found is False:
            trial.rounds_count += 1
            if trial.rounds_count >= guards.ineffective_after_rounds_count:
                header.ineffective[trial.bundle] = Ineffective(
                    trial.kind, owners[trial.bundle], end_ms, trial.rounds_count
                )
                _end(header, action_id, "ineffective", judged_ms=end_ms)
    return elsewhere


def _elsewhere(trial: Trial, owner: str | None) -> list[Elsewhere]:
    if owner is None or trial.destination is None or owner in (trial.source, trial.destination):
        return []
    return [Elsewhere(trial.bundle, owner, trial.destination)]


def _has_effect(trial: Trial, owners: Mapping[str, str], reports: Mapping[str, WaitingReport]) -> bool | None:
    """None where the round's reports do not tell."""
    owner = owners.get(trial.bundle)
    if trial.kind == "split":
        if owner is None:
            return True if any(child in owners for child in trial.children) else None
        return False if _reported_since(trial, reports, owner) else None
    if owner is not None and owner != trial.source:
        return True
    return owner is None if _reported_since(trial, reports, trial.source) else None


def _reported_since(trial: Trial, reports: Mapping[str, WaitingReport], broker: str) -> bool:
    """Whether a broker's report of the round is no older than the result: before it there was nothing to see."""
    report = reports.get(broker)
    return report is not None and trial.succeeded_ms is not None and report.time_ms >= trial.succeeded_ms


def _end(header: Header, action_id: str, outcome: VerdictOutcome, *, judged_ms: int) -> None:
    verdict = Verdict(action_id, header.trials.pop(action_id).kind, outcome, judged_ms)
    if outcome != "good":
        leaving.stay(header, {action_id})
    before = [each for each in header.verdicts if each.kind == verdict.kind]
    forgotten = before[0] if len(before) == JUDGED_ACTIONS_COUNT else None
    header.verdicts = [*(each for each in header.verdicts if each is not forgotten), verdict]


def counts(header: Header) -> dict[str, int]:
    """How the last actions that were judged ended, of whatever kind."""
    last = header.verdicts[-JUDGED_ACTIONS_COUNT:]
    return dict(sorted(Counter(verdict.outcome for verdict in last).items()))


def _failing_kinds(header: Header, guards: GuardSettings) -> list[ActionKind]:
    bad = Counter(verdict.kind for verdict in header.verdicts if verdict.outcome != "good")
    return [kind for kind, count in bad.items() if 0 < guards.failing_actions_count <= count]


def failing_since(header: Header, guards: GuardSettings) -> dict[ActionKind, str]:
    """By kind, since when no action of it is done until a person resumes, in words."""
    found = dict(header.failing_since_ms) if guards.failing_actions_count else {}
    held_ms = header.error_held_since_ms
    if held_ms is not None:
        found = {kind: min(found.get(kind, held_ms), held_ms) for kind in get_args(ActionKind)}
    return {kind: rfc3339(since_ms) for kind, since_ms in found.items()}


def error_hold(header: Header) -> Hold | None:
    """Why nothing is done after rounds that ended in an error, until a person resumes the cluster, if so."""
    if header.error_held_since_ms is None:
        return None
    return Hold(
        "failing",
        f"{HELD_AFTER_ROUNDS} rounds in a row ended in an internal error ({header.error_place}): report it, run a "
        "version that mends it, look at what is decided, then `trimtab resume`",
    )


def failing_hold(header: Header, guards: GuardSettings, kind: ActionKind) -> Hold | None:
    """Why no action of a kind is done until a person resumes the cluster, if so."""
    if header.error_held_since_ms is not None:
        return error_hold(header)
    if not guards.failing_actions_count or kind not in header.failing_since_ms:
        return None
    return Hold(
        "failing",
        f"{guards.failing_actions_count} of the last {JUDGED_ACTIONS_COUNT} actions failed or had no effect: look at their "
        "results, mend the cause, then `trimtab resume`",
    )
