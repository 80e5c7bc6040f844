"""How the story is put into words, for the screen and for plain lines alike."""

from deploy.local.demo.story import Decision, Story
from state.outputs import RoundSummary, Split
from streaming.planner.split import draw


def short_name_of(broker: str) -> str:
    """The part that tells a broker from the others: its host, or on 127.0.0.1, which all of them share, its port."""
    host, _, port = broker.partition(":")
    return f":{port}" if host == "127.0.0.1" else host


def describe_change(decision: Decision) -> str:
    """What is to happen: from where to where, or into how many."""
    action = decision.action
    if isinstance(action, Split):
        return f"into {len(action.children)} on {short_name_of(action.broker)}"
    destination = (
        "Pulsar's choice" if action.destination_broker is None else short_name_of(action.destination_broker)
    )
    return f"{short_name_of(action.source_broker)} → {destination}"


def describe_decision(decision: Decision) -> str:
    """The bundle and what is to happen to it."""
    action = decision.action
    if isinstance(action, Split):
        boundaries = ", ".join(f"0x{at:08x}" for at in action.boundaries)
        return f"{action.bundle} into {len(action.children)} at {boundaries}"
    return f"{action.bundle} {describe_change(decision)}"


def reason(decision: Decision) -> str:
    """The reason without what is shown beside it: the brokers and the move, or the bundle and the boundaries."""
    action = decision.action
    if isinstance(action, Split):
        return action.reason.partition(": cut at ")[0].removeprefix(f"{action.bundle} has ")
    sentence = action.reason.partition(": moving ")[0].removeprefix(f"{action.source_broker} is at ")
    return sentence.replace(f"{action.destination_broker} at ", "")


def picture(decision: Decision) -> list[str]:
    """The lines of the picture of a cut; none for an unload."""
    return [] if decision.plan is None else draw(decision.plan).splitlines()


def outcome(summary: RoundSummary) -> str:
    """The outcome of a round, with what was held back and why."""
    if summary.outcome != "decided":
        return f"{summary.outcome}: {summary.reason}"
    others = ", ".join(
        f"{count} {name}" for name, count in sorted(summary.examined.outcomes.items()) if name != "fired"
    )
    held = [
        f"{summary.candidates.outcomes[name]} held: {name}"
        for name in ("budget", "paused", "cooldown", "in-flight")
        if summary.candidates.outcomes.get(name)
    ]
    fired = summary.examined.outcomes.get("fired", 0)
    splits_count = summary.splits.outcomes.get("acted", 0)
    unloads = _count_text(summary.actions_count - splits_count, "unload")
    parts = [f"{unloads} from {fired} of {summary.examined.count} brokers", *held, *_splits(summary)]
    return "; ".join([*parts, others] if others else parts)


def _splits(summary: RoundSummary) -> list[str]:
    """What became of the bundles that stand out for a split."""
    outcomes = summary.splits.outcomes
    decided = [_count_text(outcomes["acted"], "split")] if "acted" in outcomes else []
    waiting = [f"{count} not split: {name}" for name, count in sorted(outcomes.items()) if name != "acted"]
    return [*decided, *waiting]


def _count_text(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def state(summary: RoundSummary | None) -> str:
    """Whether decisions are carried out."""
    if summary is None:
        return "waiting for the first round"
    if summary.paused:
        return "paused"
    return "acting" if summary.mode == "act" else "dry-run: nothing is moved"


def lag(story: Story) -> str:
    """Time from a round's end to its decision."""
    return "unknown yet" if story.lag_s is None else f"{story.lag_s:.1f} s"


def ending(story: Story) -> list[str]:
    """The last lines of a run: what came of it."""
    if not story.first:
        return ["stopped before the fleet reported"]
    spread = f"spread {story.first_spread_points:.1f} → {story.spreads_points[-1]:.1f} points"
    split = f"{_count_text(story.split_count, 'bundle')} split"
    facts = f"{split}, {story.moved_count} moved, {story.rounds_count} rounds, lag {lag(story)}"
    if story.is_balanced:
        return [f"balanced, first after {story.balanced_after_s or 0:.0f} s: {spread}, {facts}"]
    return [f"not balanced: {spread}, {facts}", *(f"  {problem}" for problem in story.problems())]
