"""A bundle with the program's own topics stays only while they carry at least half of its traffic."""

import numpy as np
import pytest

from state.facts import Facts
from state.pulsar.masks import carries_own_topics
from state.pulsar.memory import Fleet


def bundle(messages_per_s: float, bytes_per_s: float) -> Fleet:
    fleet = Fleet()
    fleet.bundles = ["t/a/0x0_0x1", "t/n/0x0_0x1"]
    fleet.averages = np.array(
        [[1.0] * 4, [messages_per_s / 2, messages_per_s / 2, bytes_per_s / 4, bytes_per_s * 3 / 4]]
    )
    return fleet


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ((50.0, 500.0), [False, True]),
        ((49.9, 500.0), [False, False]),
        ((50.0, 499.0), [False, False]),
        ((200.0, 2000.0), [False, True]),
        ((0.0, 0.0), [False, False]),
    ],
)
def test_half_of_its_messages_and_of_its_bytes_are_needed(
    own: tuple[float, float], expected: list[bool]
) -> None:
    facts = Facts([], [], [], [], {}, own_topics={"t/n/0x0_0x1": own, "t/gone/0x0_0x1": (1.0, 1.0)})
    assert carries_own_topics(bundle(100.0, 1000.0), 2, facts).tolist() == expected


def test_an_idle_bundle_and_a_cluster_nobody_looked_at_are_not_its_own() -> None:
    facts = Facts([], [], [], [], {}, own_topics={"t/n/0x0_0x1": (0.0, 0.0)})
    assert not carries_own_topics(bundle(0.0, 0.0), 2, facts).any()
    assert not carries_own_topics(bundle(0.0, 0.0), 2, None).any()
