"""The live application and `trimtab replay` decide alike, byte for byte, however the input is cut, mixed and spread."""

from dataclasses import dataclass

import pytest

from tests.live.driving import Warm
from tests.live.loads import (
    RECORDED_LATENESS_S,
    RECORDED_SETTINGS,
    recorded_control,
    recording,
    renamed,
    shuffled,
    time_of,
)
from tests.live.stage import Stage, replayed

pytestmark = pytest.mark.live

CLUSTERS = ("lab", "lab-b", "lab-c")
SPLITTING_SETTINGS = f"""{RECORDED_SETTINGS}
[pulsar.split]
enabled = true
hit_count = 1
max_messages_per_s = 300
"""
"""The recorded cluster carries little: with this limit its heaviest bundle is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way for the same events to reach the operator."""

    input_partitions: int = 1
    shuffle_partitions: int = 2
    records_per_trigger: int = 2000
    seed: int | None = None
    has_control: bool = False


def fleet_events(seed: int | None) -> list[bytes]:
    """The recording as that of three clusters, their events interleaved."""
    events = [value for cluster in CLUSTERS for value in renamed(recording(), cluster)]
    if seed is None:
        return sorted(events, key=time_of)
    return shuffled(events, within_s=RECORDED_LATENESS_S * 0.99, seed=seed)


def control_events() -> list[bytes]:
    """One cluster is paused for a while and goes on with another setting; another one is paused again and again.

    So many that they would come too late if they shared the limit of a batch with the reports.
    """
    first_s = time_of(recording()[0])
    often = [
        value
        for turn in range(15)
        for value in recorded_control("lab-c", paused_s=4 * turn, resumed_s=4 * turn + 2, first_s=first_s)
    ]
    return [*often, *recorded_control("lab-b", paused_s=100, resumed_s=200, first_s=first_s)]


def check_equal(variant: Variant, stage: Stage, warm: Warm) -> None:
    """Run a variant live and compare with the plain replay."""
    config = stage.settings(
        base=SPLITTING_SETTINGS,
        spark__shuffle_partitions=variant.shuffle_partitions,
        spark__max_records_per_trigger_count=variant.records_per_trigger,
    )
    control = control_events() if variant.has_control else []
    wanted = replayed(config, [*control, *fleet_events(None)])
    if variant.input_partitions > 1:
        stage.repartition(variant.input_partitions)
    stage.send(control, to=stage.topics.control)
    stage.send(fleet_events(variant.seed))
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        stage.wait_for_outputs(wanted, running=[run])
        assert run.terminate() == 0
    assert wanted.actions_count > 20
    assert all(
        any(b"trimtab.action.split.v1" in action for action in actions) for actions in wanted.actions.values()
    )
    assert stage.published() == wanted
    assert stage.rejected() == []


def test_the_recording_is_decided_as_in_replay_with_control_events_and_other_batches_partitions_and_order(
    stage: Stage, warm: Warm
) -> None:
    variant = Variant(
        input_partitions=3, shuffle_partitions=3, records_per_trigger=200, seed=1, has_control=True
    )
    check_equal(variant, stage, warm)


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        Variant(),
        Variant(has_control=True),
        Variant(input_partitions=4),
        Variant(shuffle_partitions=1),
        Variant(shuffle_partitions=5),
        Variant(records_per_trigger=17, has_control=True),
        Variant(seed=2),
        Variant(seed=3, input_partitions=2, records_per_trigger=50, has_control=True),
    ],
    ids=str,
)
def test_each_way_for_the_recording_to_arrive_is_decided_as_in_replay(
    variant: Variant, stage: Stage, warm: Warm
) -> None:
    check_equal(variant, stage, warm)
