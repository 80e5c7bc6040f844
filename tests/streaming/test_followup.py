"""What published decisions say about earlier ones: bundles passed around, and load that did or did not go away."""

import msgspec

from state.outputs import BrokerLoad, Unload
from streaming.controller import followup
from streaming.controller.followup import WINDOW_S, Effect, FollowUp, Repeat
from streaming.controller.published import Published
from tests.streaming.summaries import ROUND

ROUND_S = 60


def unload(
    number: int,
    bundle: str = "a",
    *,
    source: str = "b1",
    to: str | None = "b2",
    rate: float = 10.0,
    cluster: str = "east-1",
    dry_run: bool = False,
) -> Published:
    data = Unload(
        cluster=cluster,
        round=number,
        policy="avg-shedder",
        trigger="",
        reason="",
        evidence={"bundle_messages_per_s": rate, "bundle_bytes_per_s": 100 * rate},
        expected={},
        precondition={},
        expires_at="",
        dry_run=dry_run,
        bundle=bundle,
        source_broker=source,
        destination_broker=to,
    )
    return Published(id="", type="trimtab.action.unload.v1", time_s=float((number + 1) * ROUND_S), data=data)


def closed(number: int, **rates: float) -> Published:
    """A round's summary with the message rate of each broker."""
    brokers = [
        BrokerLoad(
            broker=name,
            usage_points=1.0,
            resources={},
            messages_per_s=rate,
            bytes_per_s=100 * rate,
            bundles_count=1,
            excluded=False,
            group=None,
        )
        for name, rate in rates.items()
    ]
    data = msgspec.structs.replace(ROUND, round=number, brokers=brokers)
    return Published(id="", type="trimtab.round.v1", time_s=float((number + 1) * ROUND_S), data=data)


def seen(*published: Published) -> list[Repeat | Effect]:
    return told(FollowUp(), *published)


def told(follow: FollowUp, *published: Published) -> list[Repeat | Effect]:
    return [found for event in published for found in follow.observe(event)]


def test_a_bundle_unloaded_once_is_no_repeat() -> None:
    assert seen(unload(0, "a"), unload(1, "b"), unload(2, "c")) == []


def test_a_bundle_passed_on_within_the_window_is_told_from_one_that_is_back_where_it_was() -> None:
    assert seen(unload(0, source="b1"), unload(40, source="b2")) == [Repeat(cluster="east-1", source="other")]
    assert seen(unload(0, source="b1"), unload(40, source="b1")) == [Repeat(cluster="east-1", source="same")]


def test_after_the_window_an_unload_is_the_first_again() -> None:
    rounds = WINDOW_S // ROUND_S
    assert len(seen(unload(0), unload(rounds))) == 1
    assert seen(unload(0), unload(rounds + 1)) == []


def test_clusters_with_bundles_of_the_same_name_are_kept_apart() -> None:
    assert seen(unload(0), unload(40, cluster="west-1")) == []


def test_what_a_dry_run_decides_is_not_followed_for_nothing_moves() -> None:
    assert seen(unload(0, dry_run=True), unload(40, dry_run=True)) == []


def test_what_is_remembered_is_bounded() -> None:
    follow = FollowUp()
    several = followup.KEPT_COUNT + 500
    told(follow, *(unload(0, f"bundle-{n}", source=f"b{n}") for n in range(several)))
    known = follow._clusters["east-1"]
    assert len(known.unloaded) == followup.KEPT_COUNT
    assert len(known.awaited) == followup.KEPT_COUNT
    assert f"bundle-{several - 1}" in known.unloaded
    told(follow, unload(10_000, "later"))
    assert list(known.unloaded) == ["later"], "what is older than the window goes too"


def test_three_rounds_after_an_unload_expectation_and_effect_are_compared() -> None:
    found = seen(
        unload(7, "a", rate=30.0),
        unload(7, "b", rate=10.0),
        closed(7, b1=100.0, b2=20.0),
        closed(8, b1=80.0, b2=40.0),
        closed(9, b1=65.0, b2=55.0),
        closed(10, b1=65.0, b2=55.0),
        closed(11, b1=10.0, b2=10.0),
    )
    assert found == [
        Effect(
            cluster="east-1",
            expected_messages_per_s=40.0,
            achieved_messages_per_s=35.0,
            expected_bytes_per_s=4000.0,
            achieved_bytes_per_s=3500.0,
        )
    ]


def test_what_comes_in_on_the_way_is_not_held_against_a_broker_that_sheds() -> None:
    found = seen(
        unload(7, "a", source="b1", to="b2", rate=40.0),
        closed(7, b1=100.0, b2=20.0, b3=90.0),
        unload(8, "c", source="b3", to="b1", rate=15.0),
        closed(8, b1=75.0, b2=60.0, b3=90.0),
        closed(10, b1=75.0, b2=60.0, b3=75.0),
    )
    (effect,) = found
    assert isinstance(effect, Effect)
    assert (effect.expected_messages_per_s, effect.achieved_messages_per_s) == (25.0, 25.0)


def test_an_unload_that_changed_nothing_shows_as_nothing_achieved() -> None:
    (effect,) = seen(unload(7, rate=40.0), closed(7, b1=100.0), closed(10, b1=100.0))
    assert isinstance(effect, Effect)
    assert (effect.expected_messages_per_s, effect.achieved_messages_per_s) == (40.0, 0.0)


def test_a_broker_that_is_gone_proves_nothing() -> None:
    assert seen(unload(7), closed(7, b1=100.0, b2=1.0), closed(10, b2=1.0), closed(11, b1=100.0)) == []


def test_a_forgotten_cluster_is_followed_up_no_more() -> None:
    follow = FollowUp()
    assert told(follow, unload(0)) == []
    follow.forget("east-1")
    follow.forget("never heard of")
    assert told(follow, unload(40)) == []
