"""Anti-affinity groups of a real cluster: what Pulsar keeps apart is collected, and no decision puts it together."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.collector.reports import read_report
from tests.live.driving import ROOT, TRIMTAB, until
from tests.live.pulsar.balancing import gather
from tests.live.pulsar.lab import CLUSTER, Lab

pytestmark = pytest.mark.live

SETTINGS = """
[pulsar]
bundle_average_samples = 1

[pulsar.rounds]
length_s = 3600
warmup_rounds = 0

[pulsar.usage]
cpu_weight = 0
bandwidth_in_weight = 0
bandwidth_out_weight = 0

[pulsar.capacity]
messages_per_s = 100

[pulsar.avg_shedder]
low_hit_count = 1
high_hit_count = 1
min_unload_messages_per_s = 5
"""
"""One sweep is one round, and decides."""


def rates(admin_of: Lab, owners: Mapping[str, str]) -> dict[str, float] | None:
    """Messages/s of each of the bundles, once it is in the report of its owner and of no other broker."""
    found: dict[str, list[tuple[str, float]]] = {bundle: [] for bundle in owners}
    for broker in admin_of.pulsar.broker_ids:
        for bundle, load in (read_report(admin_of.admin.load_report(broker)).lastStats or {}).items():
            if bundle in found:
                found[bundle].append((broker, load.messages_per_s))
    if any([broker for broker, _ in found[bundle]] != [owner] for bundle, owner in owners.items()):
        return None
    return {bundle: rate for bundle, ((_, rate),) in found.items()}


def decided(config: Path, swept: bytes) -> list[dict[str, object]]:
    """Outputs of the round that a sweep makes."""
    done = subprocess.run(
        [*TRIMTAB, "replay", "--config", str(config)], cwd=ROOT, input=swept, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def sweep(config: Path) -> bytes:
    done = subprocess.run(
        [*TRIMTAB, "collect", "pulsar", CLUSTER, "--config", str(config), "--once", "--stdout"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def outcome_of(bundle: object, outputs: list[dict[str, object]]) -> tuple[str, str]:
    """What a round said of a candidate, and why."""
    (summary,) = (each["data"] for each in outputs if each["type"] == "trimtab.round.v1")
    assert isinstance(summary, dict)
    (found,) = (each for each in summary["candidates"]["heaviest"] if each["bundle"] == str(bundle))
    return found["outcome"], found["detail"]


def unloads(outputs: list[dict[str, object]]) -> list[object]:
    return [each["data"] for each in outputs if each["type"] == "trimtab.action.unload.v1"]


def test_what_pulsar_keeps_apart_is_not_put_together_for_as_long_as_it_is_a_group(
    pulsar: LocalPulsar, tmp_path: Path
) -> None:
    """The only bundle that fits is in a group whose other namespace is at the idlest broker."""
    busy, fellow, big, other = (Lab(pulsar, bundles_count=1) for _ in range(4))
    (of_busy,), (of_fellow,), (of_big,), (of_other,) = (lab.bundles() for lab in (busy, fellow, big, other))
    crowded, idle, third = pulsar.broker_ids
    for lab, broker in ((busy, crowded), (fellow, idle), (big, crowded), (other, third)):
        gather(lab, broker)
    group = f"g-{busy.namespace.partition('/')[2]}"
    for lab in (busy, fellow):
        lab.post(f"namespaces/{lab.namespace}/antiAffinity", group)
    owners = {str(of_busy): crowded, str(of_fellow): idle, str(of_big): crowded, str(of_other): third}
    topics = [
        busy.topic_in(of_busy),
        *(big.topic_in(of_big, number=number) for number in range(3)),
        *(other.topic_in(of_other, number=number) for number in range(2)),
    ]
    config = tmp_path / "trimtab.toml"
    config.write_text(f'{SETTINGS}\n[targets."{CLUSTER}".pulsar]\nadmin_url = "{pulsar.admin_url}"\n')

    def reported() -> bool:
        found = rates(busy, owners)
        return found is not None and found[str(of_busy)] > 10 and found[str(of_other)] > 20

    with busy.traffic(topics):
        until(reported, what="the traffic in the reports", running=[pulsar])
        together = sweep(config)
        for lab in (busy, fellow):
            lab.delete(f"namespaces/{lab.namespace}/antiAffinity")
        apart = sweep(config)

    (facts,) = (
        each["data"] for each in map(json.loads, together.splitlines()) if each["type"].endswith("cluster.v1")
    )
    assert facts["anti_affinity_groups"][group] == sorted([busy.namespace, fellow.namespace])
    outputs = decided(config, together)
    assert outcome_of(of_busy, outputs) == (
        "anti-affinity",
        f"{idle} owns bundles of 1 other namespaces of anti-affinity group {group}, {crowded} of 0",
    )
    assert unloads(outputs) == []

    (moved,) = unloads(decided(config, apart))
    assert isinstance(moved, dict)
    assert (moved["bundle"], moved["source_broker"], moved["destination_broker"]) == (
        str(of_busy),
        crowded,
        idle,
    )
