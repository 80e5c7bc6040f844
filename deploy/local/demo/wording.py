"""How the story is put into words, for the screen and for plain lines alike."""

from deploy.local.demo.story import Decision, Story
from state.outputs import RoundSummary


def short(broker: str) -> str:
    """A broker without its port, which is the same for all."""
    return broker.partition(":")[0]


def move(decision: Decision) -> str:
    """From where to where."""
    unload = decision.unload
    destination = "Pulsar's choice" if unload.destination_broker is None else short(unload.destination_broker)
    return f"{short(unload.source_broker)} → {destination}"


def reason(decision: Decision) -> str:
    """The reason without what stands beside it: the brokers and the move."""
    unload = decision.unload
    sentence = unload.reason.partition(": moving ")[0].removeprefix(f"{unload.source_broker} is at ")
    return sentence.replace(f"{unload.destination_broker} at ", "")


def outcome(summary: RoundSummary) -> str:
    """What a round came to, with what was held back and why."""
    if summary.outcome != "decided":
        return f"{summary.outcome}: {summary.reason}"
    pairs = ", ".join(
        f"{count} {name}" for name, count in sorted(summary.examined.outcomes.items()) if name != "fired"
    )
    held = [
        f"{summary.candidates.outcomes[name]} held: {name}"
        for name in ("budget", "paused", "cooldown", "in-flight")
        if summary.candidates.outcomes.get(name)
    ]
    unloads = f"{summary.actions_count} unload{'' if summary.actions_count == 1 else 's'}"
    fired = summary.examined.outcomes.get("fired", 0)
    parts = [f"{unloads} from {fired} of {summary.examined.count} pairs", *held]
    return "; ".join([*parts, pairs] if pairs else parts)


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
    facts = f"{story.moved_count} bundles moved, {story.rounds_count} rounds, lag {lag(story)}"
    if story.is_balanced:
        return [f"balanced, first after {story.balanced_after_s or 0:.0f} s: {spread}, {facts}"]
    return [f"not balanced: {spread}, {facts}", *(f"  {problem}" for problem in story.problems())]
