"""The demo without Kafka and Spark: the fleet, the shipped settings and the real controller, sweep by sweep."""

from collections.abc import Mapping
from typing import Any

import msgspec

from deploy.local.demo.bundles import HOT_BUNDLE
from deploy.local.demo.fleet import CLUSTER, SEED, Fleet, Sweep
from deploy.local.demo.story import Decision, Story
from deploy.local.demo.topics import Closed, Decided, action_of, reports_of, results_of
from deploy.local.demo.worlds import FLEET_SETTINGS
from policies.shedding import fleet_planner
from state.closing import Identity
from state.controller import Controller
from state.outputs import Output, RoundSummary, Split, Unload
from state.store import DictStore
from streaming.contract.decode import decode
from streaming.settings import ClusterSettingsSource, load

START_MS = 1_800_000_001_000
SWEEP_MS = 2_000
COMMAND = ".venv/bin/trimtab status --input kafka://127.0.0.1:29092"


def unload_of(
    fleet: Fleet, bundle: str, *, to: str | None, expires_at: str = "2999-01-01T00:00:00.000Z"
) -> Unload:
    owner = owner_of(fleet, bundle)
    return Unload(
        **_decided(bundle, owner, expires_at),
        policy="avg-shedder",
        trigger="low-threshold",
        source_broker=owner,
        destination_broker=to,
    )


def split_of(
    fleet: Fleet,
    boundaries: list[int],
    *,
    bundle: str = HOT_BUNDLE,
    expires_at: str = "2999-01-01T00:00:00.000Z",
) -> Split:
    owner = owner_of(fleet, bundle)
    return Split(
        **_decided(bundle, owner, expires_at),
        policy="bundle-split",
        trigger="messages",
        broker=owner,
        algorithm="balanced_flow_divide",
        boundaries=boundaries,
        children=[],
    )


def owner_of(fleet: Fleet, bundle: str) -> str:
    owner = fleet.owner(bundle)
    assert owner is not None
    return owner


def _decided(bundle: str, owner: str, expires_at: str) -> dict[str, Any]:
    """What every action about a bundle has."""
    return {
        "cluster": CLUSTER,
        "round": 1,
        "reason": "a test",
        "evidence": {"bundle_messages_per_s": 1.0},
        "expected": {},
        "precondition": {"owner": owner, "range": bundle.rpartition("/")[2]},
        "expires_at": expires_at,
        "dry_run": False,
        "bundle": bundle,
    }


def assert_skipped(fleet: Fleet, cases: Mapping[str, Unload | Split]) -> None:
    """Each action is skipped, with the reason that is its key."""
    for reason, action in cases.items():
        result = fleet.follow("a", action, now_ms=START_MS)
        assert result is not None
        assert result.outcome == "skipped"
        assert reason in result.reason


def topics_of(sweep: Sweep, bundle: str) -> dict[str, float]:
    """Message rates by topic, over all brokers that list the bundle."""
    rates: dict[str, float] = {}
    for now in sweep.brokers:
        for topic, traffic in now.topics.get(bundle, {}).items():
            rates[topic] = rates.get(topic, 0.0) + (traffic.msgRateIn or 0.0) + (traffic.msgRateOut or 0.0)
    return rates


def splits_in(story: Story) -> list[Decision]:
    return [decision for decision in story.decisions if isinstance(decision.action, Split)]


def listed_by(sweep: Sweep, bundle: str) -> set[str]:
    return {broker.broker for broker in sweep.brokers if bundle in (broker.report.bundles or [])}


def bundle_of(sweep: Sweep, broker: str) -> str:
    return next(
        name
        for now in sweep.brokers
        if now.broker == broker
        for name in now.report.bundles or []
        if not name.startswith("pulsar/")
    )


def play(
    sweeps_count: int, *, seed: int = SEED, flags: Mapping[str, object] | None = None
) -> tuple[Story, list[Sweep]]:
    """The demo without Kafka and Spark: decisions arrive one sweep after the one that closed their round.

    ``flags`` are settings that differ from the demo's.
    """
    settings = load(file=FLEET_SETTINGS, flags=dict(flags or {}), environ={}).settings
    identity = Identity(mode=settings.controller.mode, action_ttl_s=settings.controller.action_ttl_s)
    controller = Controller(CLUSTER, DictStore(), identity=identity, settings=ClusterSettingsSource(settings))
    fleet, waiting, sweeps = Fleet(seed=seed), list[Output](), list[Sweep]()
    story = Story(
        acceptable_points=settings.pulsar.section_of(fleet_planner.POLICY).acceptable_spread_points,
        limits=settings.pulsar.split.limits(),
        metrics_url="http://127.0.0.1:9464/metrics",
        command=COMMAND,
        settings_file="deploy/local/demo/demo.toml",
        clock=lambda: sweeps[-1].time_ms / 1000 if sweeps else 0.0,
    )
    for number in range(sweeps_count):
        now_ms = START_MS + number * SWEEP_MS
        for output in waiting:
            hear(story, fleet, output, now_ms)
        sweeps.append(fleet.sweep(now_ms))
        story.observe(sweeps[-1])
        message = [*reports_of(sweeps[-1]), *results_of(sweeps[-1].finished, now_ms=now_ms)]
        events = [decode(msgspec.json.encode(message))[1] for message in message]
        waiting = [output for event in events for output in controller.step(event).outputs]  # type: ignore[arg-type]
    return story, sweeps


def hear(story: Story, fleet: Fleet, output: Output, now_ms: int) -> None:
    if output.kind == "round":
        story.observe(Closed(summary=msgspec.json.decode(output.data, type=RoundSummary), lag_s=1.5))
        return
    action = action_of(output.type, output.data)
    story.observe(Decided(action_id=output.id, action=action))
    assert fleet.follow(output.id, action, now_ms=now_ms) is None
