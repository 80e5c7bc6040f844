"""Which unloads move a bundle that was unloaded before."""

from state.outputs import Unload
from streaming.controller.published import KEPT_COUNT, WINDOW_S, FollowUp, Published, Repeat

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


def repeats(*published: Published) -> list[Repeat]:
    return observe(FollowUp(), *published)


def observe(follow: FollowUp, *published: Published) -> list[Repeat]:
    return [found for event in published if (found := follow.observe(event)) is not None]


def test_a_bundle_unloaded_once_is_no_repeat() -> None:
    assert repeats(unload(0, "a"), unload(1, "b"), unload(2, "c")) == []


def test_a_bundle_passed_on_within_the_window_is_told_from_one_that_is_back_where_it_was() -> None:
    assert repeats(unload(0, source="b1"), unload(40, source="b2")) == [
        Repeat(cluster="east-1", source="other")
    ]
    assert repeats(unload(0, source="b1"), unload(40, source="b1")) == [
        Repeat(cluster="east-1", source="same")
    ]


def test_after_the_window_an_unload_is_the_first_again() -> None:
    rounds = WINDOW_S // ROUND_S
    assert len(repeats(unload(0), unload(rounds))) == 1
    assert repeats(unload(0), unload(rounds + 1)) == []


def test_clusters_with_bundles_of_the_same_name_are_kept_apart() -> None:
    assert repeats(unload(0), unload(40, cluster="west-1")) == []


def test_what_a_dry_run_decides_is_not_followed_for_nothing_moves() -> None:
    assert repeats(unload(0, dry_run=True), unload(40, dry_run=True)) == []


def test_what_is_remembered_is_bounded() -> None:
    follow = FollowUp()
    several = KEPT_COUNT + 500
    observe(follow, *(unload(0, f"bundle-{n}", source=f"b{n}") for n in range(several)))
    known = follow._unloaded["east-1"]
    assert len(known) == KEPT_COUNT
    assert f"bundle-{several - 1}" in known
    observe(follow, unload(10_000, "later"))
    assert list(known) == ["later"], "what is older than the window goes too"


def test_a_forgotten_cluster_is_followed_up_no_more() -> None:
    follow = FollowUp()
    assert observe(follow, unload(0)) == []
    follow.forget("east-1")
    follow.forget("never heard of")
    assert observe(follow, unload(40)) == []
