"""Failure domains: an anti-affinity group is spread over them first, and over their brokers second."""

from collections.abc import Mapping

import pytest

from state.upkeep import Spell, Upkeep
from tests.state.traces import facts, load, overlay, run, settings_of, sweep

SETTINGS = settings_of(
    avg_shedder={"low_hit_count": 1, "high_hit_count": 1, "min_unload_messages_per_s": 1},
    bundle_average_samples=1,
)
GROUP = {"spread": ["t/a", "t/b", "t/c"]}
MOVED, FILLER = "t/a/0x0_0x1", "t/z/0x0_0x1"
CPU = {"b1": 90.0, "b2": 40.0, "b3": 40.0, "b4": 5.0}
"""The hot b1 gives to the idle b4, which it is paired with; b2 and b3 are in balance."""


def decided(
    bundles: Mapping[str, list[str]], domains: Mapping[str, list[str]] | None
) -> tuple[list[str], str | None]:
    """Bundles that are unloaded, and why the one that fits was held, if it was."""
    owned = {"b1": [MOVED, FILLER], **bundles}
    events = [
        facts(11, anti_affinity=GROUP, failure_domains=domains),
        *(
            load(
                broker,
                time_s,
                cpu=cpu,
                bundles={name: 10.0 if name == MOVED else 0.0 for name in owned.get(broker, [])},
                rate=100.0 if broker == "b1" else 0.0,
            )
            for time_s in (1, 12)
            for broker, cpu in CPU.items()
        ),
        sweep(26),
    ]
    found = run([events], SETTINGS)
    (row,) = (each for each in found.summaries[1]["candidates"]["heaviest"] if each["bundle"] == MOVED)
    unloaded = [each["bundle"] for each in found.actions]
    return unloaded, row["detail"] if row["outcome"] == "anti-affinity" else None


NEIGHBOUR = {"b3": ["t/b/0x0_0x1"]}
"""A namespace of the group at the broker beside the destination."""


@pytest.mark.parametrize(
    ("bundles", "domains", "why"),
    [
        pytest.param(NEIGHBOUR, None, None, id="without domains only the destination counts"),
        pytest.param(
            NEIGHBOUR,
            {"east": ["b1", "b2"], "west": ["b3", "b4"]},
            "brokers of failure domain west own bundles of 1 other namespaces of anti-affinity group spread, those of "
            "failure domain east of 0",
            id="the destination's domain has one already",
        ),
        pytest.param(
            NEIGHBOUR,
            {"east": ["b1", "b3"], "west": ["b2", "b4"]},
            None,
            id="the source's domain has it",
        ),
        pytest.param(
            NEIGHBOUR,
            {"east": ["b1", "b2"]},
            "brokers of no failure domain own bundles of 1 other namespaces of anti-affinity group spread, those of "
            "failure domain east of 0",
            id="brokers in no domain make one",
        ),
        pytest.param(
            {"b2": ["t/b/0x0_0x1", "t/c/0x0_0x1"], "b4": ["t/b/0x1_0x2"]},
            {"east": ["b1", "b2"], "west": ["b3", "b4"]},
            None,
            id="a better domain counts more than a better broker",
        ),
        pytest.param(
            {"b4": ["t/b/0x1_0x2"]},
            {"all": ["b1", "b2", "b3", "b4"]},
            "b4 owns bundles of 1 other namespaces of anti-affinity group spread, b1 of 0",
            id="within a domain the broker counts",
        ),
    ],
)
def test_a_group_is_not_gathered_in_a_domain(
    bundles: Mapping[str, list[str]], domains: Mapping[str, list[str]] | None, why: str | None
) -> None:
    assert decided(bundles, domains) == ([] if why else [MOVED], why)


@pytest.mark.parametrize(
    ("domains", "why"),
    [
        pytest.param(
            None, "b3 owns bundles of 1 other namespaces of anti-affinity group spread, b1 of 0", id="brokers"
        ),
        pytest.param(
            {"east": ["b1"], "west": ["b3"]},
            "brokers of failure domain west own bundles of 1 other namespaces of anti-affinity group spread, those of failure "
            "domain east of 0",
            id="domains",
        ),
    ],
)
def test_a_drain_gathers_no_group_and_says_where_it_would(
    domains: Mapping[str, list[str]] | None, why: str
) -> None:
    owned = {"b1": [MOVED], "b3": ["t/b/0x0_0x1"]}
    spell = Spell(since_ms=0, until_ms=None, who="ann", why="a test")
    events = [
        overlay(-30, upkeep=Upkeep(drains={"b1": spell})),
        facts(11, anti_affinity=GROUP, failure_domains=domains),
        *(
            load(broker, time_s, bundles=dict.fromkeys(owned[broker], 10.0), rate=10.0)
            for time_s in (1, 12)
            for broker in owned
        ),
        sweep(26),
    ]
    (left,) = run([events], SETTINGS).summaries[1]["upkeep"]["left"]["heaviest"]
    assert (left["bundle"], left["outcome"], left["detail"]) == (MOVED, "anti-affinity", why)
