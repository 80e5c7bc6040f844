"""Whatever comes on the log, trimtab goes on: every record is used, superseded, late or refused by name.

Each thing that this found has a test of its own, named after what went wrong, beside what was mended.
"""

from random import Random

import pytest

from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from tests.fuzz.desk import Desk
from tests.fuzz.traffic import EITHER, KAFKA, PULSAR, Traffic

EAGER = {
    "avg_shedder": {"high_hit_count": 1, "low_hit_count": 2, "min_unload_messages_per_s": 0.0},
    "split": {"enabled": True},
    "guards": {"bundle_cooldown_s": 60.0, "failing_actions_count": 0},
}
SETTINGS = ClusterSettingsSource(
    compose(
        {
            "pulsar": {"rounds": {"length_s": 10.0, "lateness_s": 5.0, "warmup_rounds": 0}},
            "kafka": {"rounds": {"length_s": 10.0, "lateness_s": 5.0}},
            "clusters": {"west": {"pulsar": EAGER}, "both": {"pulsar": EAGER}},
        }
    )
)


def fuzz(seed: int, count: int) -> Desk:
    """Records of a seed through the entry of the live operator, with a reload of every cluster after each batch."""
    desk = Desk(settings=SETTINGS, random=Random(seed))  # noqa: S311  tests, not secrets
    desk.run(Traffic(seed), count)
    return desk


def assert_fruitful(desk: Desk) -> None:
    """A fuzz whose records are all refused would find nothing."""
    assert set(desk.stores) == {*PULSAR, *KAFKA, *EITHER}
    assert desk.results["used"] > desk.taken_count / 3
    assert desk.outcomes["decided"] > desk.taken_count / 1000
    assert {"trimtab.action.unload.v1", "trimtab.action.throttle.v1"} <= set(desk.outputs_count)
    assert {"not-json", "bad-data", "bad-settings", "bad-time", "ahead-of-log"} <= set(desk.reasons)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thousands_of_damaged_records_are_each_used_superseded_late_or_refused_by_name(seed: int):
    assert_fruitful(fuzz(seed, 2000))


@pytest.mark.slow
@pytest.mark.timeout(10_800)
@pytest.mark.parametrize("seed", range(100, 110))
def test_a_million_damaged_records_are_each_used_superseded_late_or_refused_by_name(seed: int):
    assert_fruitful(fuzz(seed, 100_000))
