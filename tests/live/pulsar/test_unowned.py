"""A bundle that no broker owns, made so by an unload that no client follows: who notices, and what is said."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.collector.metrics import CollectorMetrics
from streaming.collector.pulsar import PulsarCollector
from streaming.contract.messages import LoadReportMessage, TickMessage
from streaming.settings import Settings
from tests.live.driving import ROOT, TRIMTAB, until
from tests.live.pulsar.hearing import Heard
from tests.live.pulsar.lab import CLUSTER, Lab

pytestmark = pytest.mark.live


def test_a_used_bundle_that_nobody_owns_becomes_a_finding_and_a_lookup_ends_it(
    pulsar: LocalPulsar, tmp_path: Path
) -> None:
    lab, heard, ahead_s = Lab(pulsar), Heard(), [0.0]
    bundle, name = lab.bundles()[1], str(lab.bundles()[1])
    collecting = PulsarCollector(
        Settings(),
        CollectorMetrics(CLUSTER),
        cluster=CLUSTER,
        target=lab.target,
        sink=heard,
        clock_s=lambda: time.time() + ahead_s[0],
    )

    def listed() -> bool:
        assert collecting.sweep()
        return any(name in each["lastStats"] for each in heard.of(LoadReportMessage).values())

    def unowned() -> object:
        ahead_s[0] += 35.0
        assert collecting.sweep()
        return heard.of(TickMessage)["tick"].get("unowned")

    topic = lab.topic_in(bundle)
    with lab.traffic([topic]):
        until(listed, what=f"{name} in a report", running=[pulsar])
    lab.admin.unload(bundle, destination=None)
    until(lambda: lab.owner(bundle) is None, what=f"no owner of {name}", running=[pulsar])
    found = until(unowned, what=f"a tick that names {name}", running=[pulsar])
    assert isinstance(found, dict)
    assert list(found) == [name]
    assert lab.owner(bundle) is None, "to look for owners assigns nothing"
    assert [("unowned", name)] == _findings(heard, tmp_path)

    lab.admin.lookup(topic)
    until(lambda: lab.owner(bundle), what=f"an owner of {name}", running=[pulsar])
    until(lambda: not unowned(), what="a tick that names none", running=[pulsar])
    collecting.close()


def _findings(heard: Heard, folder: Path) -> list[tuple[str, str]]:
    """Those of the last round of a controller that gets these events."""
    config = folder / "trimtab.toml"
    config.write_text("[pulsar.rounds]\nmax_ahead_s = 86400\n")
    replayed = subprocess.run(
        [*TRIMTAB, "replay", "--config", str(config), "--only", "rounds"],
        cwd=ROOT,
        input=b"\n".join(heard.values),
        capture_output=True,
        check=False,
    )
    assert replayed.returncode == 0, replayed.stderr.decode()
    last = json.loads(replayed.stdout.splitlines()[-1])
    return [(each["kind"], each["subject"]) for each in last["data"]["findings"]["heaviest"]]
