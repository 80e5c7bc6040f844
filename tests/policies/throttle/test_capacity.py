"""What planned copies' partitions replicate already, so that it is not taken for traffic of others."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from policies.throttle.capacity import replicated_now
from policies.throttle.rates import BrokerRole
from tests.policies.throttle.moving import Partition, copies_of

FIRST = Partition("t-0", [1, 2, 3], [1, 2, 4], 10, 1000, leader=1, isr=[1, 2, 3])
SECOND = Partition("t-1", [1, 2], [1, 4], 7, 1000, leader=1, isr=[1, 2])
OF_2 = Partition("t-2", [1, 2], [2, 4], 5, 1000, leader=2, isr=[1, 2])


@pytest.mark.parametrize(
    ("partitions", "sent"),
    [
        ([FIRST], {1: 20}),
        ([FIRST, SECOND, OF_2], {1: 27, 2: 5}),
        ([replace(FIRST, isr=[1])], {1: 0}),
        ([replace(FIRST, isr=())], {1: 0}),
        ([replace(FIRST, writes=None), SECOND], {1: 7}),
        ([replace(FIRST, leader=-1)], {}),
    ],
    ids=["two followers", "two leaders", "no follower in sync", "not known", "no rate", "no leader"],
)
def test_leaders_send_what_is_written_to_each_follower_that_is_in_sync(
    partitions: Sequence[Partition], sent: dict[int, int]
) -> None:
    """10, 7 and 5 bytes/s are written."""
    found = replicated_now(copies_of(*partitions))
    assert found == {BrokerRole("leader", broker): rate for broker, rate in sent.items()}
