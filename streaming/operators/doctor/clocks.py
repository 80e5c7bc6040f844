"""Clocks: the brokers', this machine's, the controllers', and those of the programs that write to the input. Pure."""

from collections.abc import Iterator

from streaming.operators.doctor.facts import Facts
from streaming.operators.doctor.findings import Finding, Missed, good, not_checked, problem, warning

_FAR_S = 2.0
"""Clocks that are kept by NTP agree within milliseconds; the rest is the time that a record takes to its broker."""
_BEHIND_S = 60.0
"""Events further behind may come from a queue or a recording."""
_REMEDY = "Keep the clocks of all machines by NTP: timedatectl status"


def clocks(facts: Facts) -> Iterator[Finding]:
    """Which clock is wrong, as far as the time of each is known."""
    found = [*_brokers(facts), *_controllers(facts), *_senders(facts)]
    yield from found
    if not found and _is_unknown(facts):
        yield not_checked("clocks", "no clock can be compared: there is no recent beat or event")
    elif not found:
        yield good("clocks", "the known clocks agree with the brokers'")


def _is_unknown(facts: Facts) -> bool:
    told = any(
        not isinstance(each.brokers, Missed) and each.brokers.ahead_s is not None for each in facts.sides
    )
    sent = not isinstance(facts.input, Missed) and facts.input.ahead_s
    return not (told or sent or facts.processes)


def _brokers(facts: Facts) -> Iterator[Finding]:
    """Pulsar reports its time; on Kafka a beat that was appended in the future shows that this machine's clock is behind."""
    known = False
    for side in facts.sides:
        ahead_s = None if isinstance(side.brokers, Missed) else side.brokers.ahead_s
        if ahead_s is not None:
            known = True
            yield from _judge_own_clock(-ahead_s, side.name)
    if not known and not isinstance(facts.processes, Missed):
        ages = [each.age_s for each in facts.processes]
        if ages and min(ages) < 0:
            yield from _judge_own_clock(min(ages), "the brokers")


def _judge_own_clock(ahead_s: float, name: str) -> Iterator[Finding]:
    if abs(ahead_s) > _FAR_S:
        yield warning(
            "clocks",
            f"this machine's clock is {_describe_offset(ahead_s)} that of {name}",
            _REMEDY,
            about=name,
        )


def _controllers(facts: Facts) -> Iterator[Finding]:
    if isinstance(facts.processes, Missed):
        yield not_checked("clocks", f"the beats of controllers: {facts.processes.why}")
        return
    for process in facts.processes:
        if process.runs and abs(process.ahead_s) > _FAR_S:
            yield warning(
                "clocks",
                f"its clock is {_describe_offset(process.ahead_s)} the brokers'",
                _REMEDY,
                about=process.instance,
            )


def _senders(facts: Facts) -> Iterator[Finding]:
    if isinstance(facts.input, Missed):
        yield not_checked("clocks", f"the events of the input: {facts.input.why}")
        return
    settings = facts.settings
    most_s = min(settings.pulsar.rounds.max_ahead_s, settings.kafka.rounds.max_ahead_s)
    for sender, ahead_s in facts.input.ahead_s.items():
        text = f"its events are {_describe_offset(ahead_s)} the brokers' clock"
        if ahead_s > most_s:
            yield problem(
                "clocks",
                f"{text}: they are refused as ahead-of-log from {most_s:g} s on",
                _REMEDY,
                about=sender,
            )
        elif ahead_s > _FAR_S:
            yield warning("clocks", text, _REMEDY, about=sender)
        elif ahead_s < -_BEHIND_S:
            yield warning(
                "clocks",
                f"{text}: they are late, or a recording is played",
                f"{_REMEDY}; see whether the sender keeps up",
                about=sender,
            )


def _describe_offset(ahead_s: float) -> str:
    return f"{abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'}"
