"""What is remembered after two executors changed the same cluster."""

from policies.throttle.lists import ThrottledLists
from streaming.transport.executor import Rate, Remembered


def test_what_was_set_behind_the_back_of_the_owner_of_the_memory_is_remembered_beside_what_is_his() -> None:
    his = Remembered(
        added=ThrottledLists(leader={"t": "0:1"}), rates={"leader:1": Rate(7, None), "leader:3": Rate(9, 4)}
    )
    ours = Remembered(
        added=ThrottledLists(leader={"t": "0:2"}, follower={"u": "1:3"}),
        rates={"leader:1": Rate(5, None), "follower:2": Rate(6, 2)},
        is_planned=True,
    )
    assert his.with_(ours) == Remembered(
        added=ThrottledLists(leader={"t": "0:1,0:2"}, follower={"u": "1:3"}),
        rates={
            "leader:1": Rate(7, None, earlier=5),
            "leader:3": Rate(9, 4),
            "follower:2": Rate(6, 2),
        },
    )
    assert Remembered().with_(ours).rates == ours.rates
