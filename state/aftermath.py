"""What the decided actions of a round leave behind in the cluster's memory."""

from state import splits
from state.closing import Closing, Decided
from state.memory import Header
from state.outputs import Output, Unload
from state.past import Departure, PastAction, PastUnloads, Trial
from state.splits import Splits


def remember(header: Header, closing: Closing, decided: Decided, actions: list[Output]) -> None:
    """Cooldown, flight, the hour's budget, the children's inheritance and the trial begin with the decision.

    ``actions`` are the outputs of the decided unloads, then those of the splits.
    """
    unloads = decided.admitted.unloads
    _remember_unloads(header, closing, unloads, actions[: len(unloads)])
    if decided.splits is not None:
        _remember_splits(header, closing, decided.splits, actions[len(unloads) :])


def _remember_unloads(header: Header, closing: Closing, unloads: list[Unload], actions: list[Output]) -> None:
    for action, unload in zip(actions, unloads, strict=True):
        header.actions[unload.bundle] = _past(action, closing)
        header.leaving[unload.bundle] = Departure(
            action.id, unload.source_broker, _until_ms(closing), action.dry_run
        )
        if not action.dry_run:
            header.trials[action.id] = Trial(
                "unload",
                unload.bundle,
                unload.source_broker,
                unload.destination_broker,
                [],
                closing.end_ms,
                _until_ms(closing),
            )
    if unloads:
        header.unloads.append(
            PastUnloads(ended_ms=closing.end_ms, count=len(unloads), dry_run=closing.mode == "dry-run")
        )


def _remember_splits(header: Header, closing: Closing, decided: Splits, actions: list[Output]) -> None:
    for action, decision in zip(actions, decided.admitted, strict=True):
        children = splits.children_of(decided, decision)
        header.splits[action.subject] = _past(action, closing)
        for child in children:
            header.splits[child] = _past(action, closing, in_flight=False)  # a child that is listed is there
        if not action.dry_run:
            header.trials[action.id] = Trial(
                "split",
                action.subject,
                decided.broker_of(decision.row),
                None,
                children,
                closing.end_ms,
                _until_ms(closing),
            )
        header.inheritances[action.subject] = splits.inheritance(decided, decision, _until_ms(closing))


def _past(action: Output, closing: Closing, *, in_flight: bool = True) -> PastAction:
    return PastAction(
        action_id=action.id,
        decided_ms=closing.end_ms,
        expires_ms=closing.expires_ms,
        dry_run=action.dry_run,
        in_flight=in_flight,
    )


def _until_ms(closing: Closing) -> int:
    """An action carried out just before it expires is reported, and seen in the next reports, by then."""
    return closing.expires_ms + closing.settings.pulsar.rounds.max_report_age_ms
