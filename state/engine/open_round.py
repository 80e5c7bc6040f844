"""What an open round keeps of events that are no reports: the newest tick and facts, and the results of actions."""

from state.engine.memory import OpenRound, ResultRecord, TickRecord
from state.events import ActionResult, ClusterFacts, Tick
from state.facts import FactsRecord


def take_tick(event: Tick, open_round: OpenRound) -> bool:
    """Keep a tick; False where a newer one is known."""
    known = open_round.tick
    if known is not None and (known.time_ms, known.id) >= event.age_key:
        return False
    open_round.tick = TickRecord(
        event.time_ms, event.id, event.asked, event.failed, event.unowned, event.unowned_count
    )
    return True


def take_facts(event: ClusterFacts, open_round: OpenRound) -> bool:
    """Keep facts; False where newer ones are known."""
    known = open_round.facts
    if known is not None and known.age_key >= event.age_key:
        return False
    open_round.facts = FactsRecord(event.time_ms, event.id, event.facts)
    return True


def result_of(event: ActionResult) -> ResultRecord:
    """What is kept of a result until its round closes."""
    return ResultRecord(event.time_ms, event.id, event.action_id, event.outcome, event.is_held)
