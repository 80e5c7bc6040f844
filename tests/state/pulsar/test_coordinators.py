"""All transaction coordinators at one broker: named after an hour, and not before it is known."""

from state.events import Event
from tests.state.traces import load, run, settings_of

SYSTEM = [f"pulsar/system/0x{at:x}0000000_0x{at + 1:x}0000000" for at in range(4)]
ROUNDS = {"length_s": 60.0, "lateness_s": 5.0, "max_report_age_s": 180.0, "warmup_rounds": 0}


def findings(*moments: tuple[int, dict[str, list[str]]]) -> list[tuple[int, str, str]]:
    """Minute, subject and broker of each such finding; each moment has its minute and the bundles of pulsar/system by broker."""
    events: list[Event] = [
        load(
            broker,
            60 * minute + 5,
            cpu=40.0,
            bundles={f"t/{broker}/0x0_0x8": 10.0},
            pulsars_own=[f"pulsar/{broker}:8080/0x0_0xf", *own],
        )
        for minute, brokers in moments
        for broker, own in brokers.items()
    ]
    found = run([events], settings_of(rounds=ROUNDS)).summaries
    return [
        (summary["round"], each["subject"], each["broker"])
        for summary in found
        for each in summary["findings"]["heaviest"]
        if each["kind"] == "coordinators-at-one-broker"
    ]


GATHERED: dict[str, list[str]] = {"b1": [], "b2": SYSTEM, "b3": []}


def test_they_are_named_when_all_were_at_one_of_three_brokers_for_an_hour() -> None:
    found = findings(*((minute, GATHERED) for minute in range(64)))
    assert found == [(minute, "pulsar/system", "b2") for minute in range(60, 64)]


def test_a_missing_report_proves_nothing_and_another_broker_with_one_of_them_ends_it() -> None:
    silent = {"b1": [], "b3": []}
    assert findings(*((minute, silent if minute == 30 else GATHERED) for minute in range(62)))[0][0] == 60
    spread = {"b1": SYSTEM[:1], "b2": SYSTEM[1:], "b3": []}
    assert findings(*((minute, spread if minute == 30 else GATHERED) for minute in range(62))) == []


def test_two_brokers_or_a_single_bundle_are_no_finding() -> None:
    assert findings(*((minute, {"b1": [], "b2": SYSTEM}) for minute in range(62))) == []
    assert findings(*((minute, {"b1": [], "b2": SYSTEM[:1], "b3": []}) for minute in range(62))) == []
    assert findings(*((minute, {"b1": [], "b2": [], "b3": []}) for minute in range(62))) == []
