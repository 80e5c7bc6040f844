"""The demo's hot bundle: its topics lie where they hash to, it is cut, and everybody shows the cut."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from deploy.local.demo import wording
from deploy.local.demo.bundles import HOT_BUNDLE, HOT_MESSAGES_PER_S
from deploy.local.demo.fleet import BROKERS, Fleet
from deploy.local.demo.screen import render
from deploy.local.demo.worlds import FLEET_SETTINGS
from policies.splitting.ranges import Bundle, position_of
from state.outputs import Split
from streaming.settings import load
from tests.live.rehearsal import (
    START_MS,
    SWEEP_MS,
    assert_skipped,
    listed_by,
    play,
    split_of,
    splits_in,
    topics_of,
    unload_of,
)


def test_every_bundle_has_topics_that_hash_into_it_and_carry_its_traffic():
    for now in Fleet().sweep(START_MS).brokers:
        stats = now.report.lastStats or {}
        assert set(now.topics) == {name for name in stats if not name.startswith("pulsar/")}
        for name, topics in now.topics.items():
            bundle = Bundle.parse(name)
            assert all(bundle.holds_name(topic) for topic in topics)
            assert all(bundle.range.contains(position_of(topic)) for topic in topics)
            assert stats[name].topics == len(topics) >= 2
            assert sum(traffic.msgRateIn or 0.0 for traffic in topics.values()) == pytest.approx(
                stats[name].msgRateIn
            )


def test_one_bundle_runs_hot_on_the_busiest_broker_and_no_other_is_above_the_limit():
    sweep = Fleet().sweep(START_MS)
    busiest = max(sweep.brokers, key=lambda broker: broker.usage_points)
    rates = {name: sum(topics_of(sweep, name).values()) for broker in sweep.brokers for name in broker.topics}
    hot = rates.pop(HOT_BUNDLE)
    assert HOT_BUNDLE in busiest.topics
    assert hot == pytest.approx(HOT_MESSAGES_PER_S, rel=0.2)
    limit = load(file=FLEET_SETTINGS, flags={}, environ={}).settings.pulsar.split.max_messages_per_s
    assert hot > 1.3 * limit
    assert max(rates.values()) < limit / 1.2


def test_a_split_takes_effect_in_the_next_sweep_and_every_topic_is_where_it_hashes_to():
    fleet = Fleet()
    before = fleet.sweep(START_MS)
    owner = fleet.owner(HOT_BUNDLE)
    topics = topics_of(before, HOT_BUNDLE)
    ordered = sorted(topics, key=position_of)
    boundaries = [position_of(ordered[2]), position_of(ordered[5])]
    assert fleet.follow("a", split_of(fleet, boundaries), now_ms=START_MS) is None
    after = fleet.sweep(START_MS + SWEEP_MS)
    children = [
        f"shop/orders/0x{low:08x}_0x{high:08x}"
        for low, high in zip([0x78000000, *boundaries], [*boundaries, 0x80000000], strict=True)
    ]
    assert [result.outcome for result in after.finished] == ["succeeded"]
    assert [listed_by(after, child) for child in children] == [{owner}] * 3
    assert listed_by(after, HOT_BUNDLE) == set()
    assert fleet.owner(HOT_BUNDLE) is None
    assert after.bundles_count == before.bundles_count + 2
    assert (
        [sorted(topics_of(after, child), key=position_of) for child in children]
        == [
            ordered[:2],
            ordered[2:5],  # a topic at a boundary goes up
            ordered[5:],
        ]
    )
    total = sum(sum(topics_of(after, child).values()) for child in children)
    assert total == pytest.approx(sum(topics.values()), rel=0.15)


def test_a_split_that_no_longer_fits_is_skipped_with_the_reason():
    fleet = Fleet()
    good = split_of(fleet, [0x7C000000])
    cases = {
        "expired": split_of(fleet, [0x7C000000], expires_at="2027-01-15T08:00:00.000Z"),
        "belongs to": msgspec.structs.replace(good, precondition={**good.precondition, "owner": BROKERS[2]}),
        "another range": msgspec.structs.replace(
            good, precondition={**good.precondition, "range": "0x78000000_0x7c000000"}
        ),
        "no bundle": msgspec.structs.replace(good, bundle="shop/orders/0x00000001_0x00000002"),
        "strictly inside": split_of(fleet, [0x78000000]),
    }
    assert_skipped(fleet, cases)
    assert fleet.follow("a", good, now_ms=START_MS) is None
    for late in (good, unload_of(fleet, HOT_BUNDLE, to=BROKERS[4])):
        again = fleet.follow("b", late, now_ms=START_MS)
        assert again is not None
        assert "being split already" in again.reason
    fleet.sweep(START_MS)
    gone = fleet.follow("c", good, now_ms=START_MS)
    assert gone is not None
    assert "no bundle" in gone.reason


def test_the_shipped_settings_split_the_hot_bundle_and_move_its_children_like_any_other():
    story, _ = play(120)
    first = splits_in(story)[0]
    assert isinstance(first.action, Split)
    assert first.action.round == story.decisions[0].action.round
    assert first.action.bundle == HOT_BUNDLE
    assert first.fate == "split"
    assert first.plan is not None
    assert len(first.plan.question.topics) == 7
    children = [child.messages_per_s for child in first.plan.children]
    assert len(children) == 3
    assert max(children) < story.limits.messages_per_s
    assert sum(children) == pytest.approx(HOT_MESSAGES_PER_S, rel=0.2)
    names = {f"shop/orders/{child.range}" for child in first.action.children}
    assert "moved" in {decision.fate for decision in story.decisions if decision.action.bundle in names}
    assert story.split_count == len(splits_in(story))
    assert story.bundles_count == 64 + sum(
        len(split.action.boundaries) for split in splits_in(story) if isinstance(split.action, Split)
    )


@pytest.mark.parametrize(("height", "says_why"), [(24, False), (30, True)])
def test_the_screen_keeps_the_cut_of_the_heaviest_bundle_in_view(height: int, says_why: bool):  # noqa: FBT001
    story, _ = play(60)
    console = Console(width=100, height=height, file=StringIO(), force_terminal=True)
    console.print(render(story, width=100, height=height))
    assert isinstance(console.file, StringIO)
    drawn = console.file.getvalue()
    [heaviest] = [split for split in splits_in(story) if split.action.bundle == HOT_BUNDLE]
    assert HOT_BUNDLE in drawn
    assert isinstance(heaviest.action, Split)
    assert drawn.count("┼") == len(heaviest.action.boundaries)
    assert (wording.reason(heaviest)[:60] in drawn) is says_why
