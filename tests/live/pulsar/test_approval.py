"""Proposals of a real cluster, with all topics on it: one is approved and carried out, one rejected; commands and a replay agree on it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deploy.local.pulsar import LocalPulsar
from policies.splitting.ranges import Bundle
from tests.live.driving import Warm, command, until
from tests.live.operating import output_of
from tests.live.pulsar.balancing import all_at_first, controller, trio, unbalanced
from tests.live.pulsar.lab import CLUSTER, Lab
from tests.live.pulsar.stage import PulsarStage

pytestmark = [pytest.mark.live, pytest.mark.slow]

ASKED = ("--who", "maria", "--why=a test")


def pending(config: Path) -> list[dict[str, Any]]:
    """What `trimtab actions list --pending` says."""
    return list(json.loads(output_of(config, "actions", "list", "--pending", "-o", "json")))


def test_proposals_are_approved_and_rejected_by_commands_and_every_command_reads_what_became_of_them(
    pulsar: LocalPulsar, warm: Warm, tmp_path: Path
) -> None:
    stage = PulsarStage.of(Lab(pulsar, bundles_count=1), tmp_path)
    config, topics = tmp_path / "trimtab.toml", stage.topics
    asking = {"controller__approval": "required"}
    with (
        controller(pulsar, stage, warm, **asking) as running,
        unbalanced(pulsar) as lab,
    ):
        until(lambda: all_at_first(lab), what="traffic", running=[pulsar])
        with trio(lab, stage, running, tmp_path) as three:
            until(lambda: stage.values(topics.actions_dry_run), what="proposals", running=three.alive)
            waiting = until(lambda: pending(config), what="a summary with them", running=three.alive)
            approved = waiting[0]
            assert {each["cluster"] for each in waiting} == {CLUSTER}
            proposed = {
                event["id"]: event["data"] for event in map(json.loads, stage.values(topics.actions_dry_run))
            }
            assert proposed.keys() >= {each["id"] for each in waiting}
            assert all(each["dry_run"] and each["proposal"] for each in proposed.values())
            assert stage.values(topics.actions) == []
            assert {lab.owner(bundle) for bundle in lab.bundles()} == {pulsar.broker_ids[0]}

            said = output_of(config, "approve", approved["id"][:8], *ASKED, "--wait")
            found = re.search(r"acted in round \d+, action (\w+)", said)
            assert found is not None, said
            until(lambda: dict(three.results()), what="a result", running=three.alive)
            others = until(
                lambda: [each for each in pending(config) if each["id"] != approved["id"]],
                what="another proposal",
                running=three.alive,
            )
            rejected = others[0]
            said = output_of(config, "reject", rejected["id"][:8], *ASKED, "--wait")
            assert "rejected in round" in said
            (done,) = three.results()
            assert done[0] == found[1]
            assert done[1]["outcome"] == "succeeded", done
            assert lab.owner(Bundle.parse(approved["bundle"])) == done[1]["broker"]
            assert lab.owner(Bundle.parse(rejected["bundle"])) == pulsar.broker_ids[0]
            ((id_, action),) = three.actions().items()
            assert (id_, action["proposal_id"]) == (found[1], approved["id"])
            assert (action["dry_run"], action["bundle"]) == (False, approved["bundle"])
            assert not {approved["id"], rejected["id"]} & {each["id"] for each in pending(config)}

    record = tmp_path / "record.ndjson.gz"
    command("record", "--config", str(config), "--until-now", str(record))
    replayed = command("replay", "--config", str(config), "--keep-open", str(record)).stdout_bytes
    values = [
        value
        for topic in (topics.actions, topics.actions_dry_run, topics.audit)
        for value in stage.values(topic)
    ]
    assert sorted(replayed.splitlines()) == sorted(values)
    shown = output_of(config, "rounds", "show", "--cluster", CLUSTER, "--bundle", approved["bundle"])
    assert f"{approved['bundle']}  at {approved['source']}" in shown
    compared = output_of(config, "backtest", "--policy", "avg-shedder", pulsar.service_url)
    assert "closed loop" in compared
    stage.close()
