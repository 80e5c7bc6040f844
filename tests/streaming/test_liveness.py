"""A controller is alive while the driver's loop turns, Spark answers, and a batch in progress moves on."""

import math

from streaming.controller.health import BATCH_S, START_S, TURN_S, Health


class Time:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def dead(health: Health) -> list[str]:
    return [check.name for check in health.liveness() if not check.ok]


def test_a_loop_that_turns_is_alive_and_one_that_spark_keeps_waiting_is_not() -> None:
    time = Time()
    health = Health(trigger_interval_s=1, clock_s=time)
    for _ in range(1000):
        time.now_s += 1
        health.note_turn(None)
        assert dead(health) == []
    time.now_s += TURN_S + 1
    assert dead(health) == ["driver"]
    health.note_turn(None)
    assert dead(health) == [], "it came back"


def test_a_batch_that_moves_on_is_alive_however_long_it_takes_and_one_that_stands_still_is_not() -> None:
    time = Time()
    health = Health(trigger_interval_s=1, clock_s=time)
    for done in range(5):
        for _ in range(int(BATCH_S) - 1):
            time.now_s += 1
            health.note_turn(("getting batch", done))
            assert dead(health) == []
    for _ in range(3):
        time.now_s += 1
        health.note_turn(("getting batch", 4))
    assert dead(health) == ["batch"]
    health.note_turn(None)
    assert dead(health) == []


def test_without_input_waiting_for_brokers_and_staying_are_alive() -> None:
    time = Time()
    health = Health(trigger_interval_s=1, clock_s=time)
    for _ in range(100):
        time.now_s += TURN_S - 1
        health.note_turn(None)
        assert dead(health) == []
    for _ in range(100):
        health.begin("waiting for the brokers", START_S)
        time.now_s += START_S - 1
        assert dead(health) == []
    health.begin("staying after a refusal", math.inf)
    time.now_s += 10_000_000
    assert dead(health) == []


def test_a_start_that_hangs_is_noticed_and_named() -> None:
    time = Time()
    health = Health(trigger_interval_s=1, clock_s=time)
    time.now_s = START_S + 1
    (driver, _) = health.liveness()
    assert not driver.ok
    assert driver.detail == "starting for 601 s, 600 s are allowed"
