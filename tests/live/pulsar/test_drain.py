"""A broker of a real cluster is drained: it ends empty, what Pulsar puts back is moved off, and it takes part again when it is released."""

from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from tests.live.driving import Warm, until
from tests.live.operating import output_of
from tests.live.pulsar.balancing import Trio, all_at_first, controller, rates, trio, unbalanced
from tests.live.pulsar.lab import CLUSTER
from tests.live.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.slow]

BUDGET = 300
"""``max_drain_unloads_per_hour_count``."""


def drain_of(three: Trio, broker: str) -> list[tuple[int, dict[str, object]]]:
    """Number of each round with a drain of the broker, and its row."""
    found = []
    for each in three.rounds():
        upkeep = each.get("upkeep")
        drains = upkeep["drains"] if isinstance(upkeep, dict) else []
        found += [(int(str(each["round"])), row) for row in drains if row["name"] == broker]
    return found


def put_back(three: Trio) -> set[str]:
    """Bundles that a finding names as put back at a drained broker."""
    return {
        str(row["subject"])
        for each in three.rounds()
        for row in each["findings"]["heaviest"]  # type: ignore[index]
        if row["kind"] == "put-back"
    }


def test_a_drained_broker_ends_empty_what_is_put_back_leaves_within_three_rounds_and_it_takes_part_again(
    pulsar: LocalPulsar, stage: Stage, warm: Warm, tmp_path: Path
) -> None:
    drained = pulsar.broker_ids[0]
    config = stage.directory / "trimtab.toml"
    asked = ("--cluster", CLUSTER, "--broker", drained, "--who", "maria", "--why=a test")
    with controller(pulsar, stage, warm) as running, unbalanced(pulsar) as lab:
        until(lambda: all_at_first(lab), what="traffic", running=[pulsar])
        with trio(lab, stage, running, tmp_path) as three:
            until(three.rounds, what="a round", running=three.alive)
            told = output_of(config, "drain", *asked, "--wait")
            assert f"drain of {drained}: empty" in told
            moves = [each for each in three.actions().values() if each["policy"] == "drain"]
            assert 0 < len(moves) <= BUDGET
            assert drained not in {each["destination_broker"] for each in moves}

            back = lab.bundles()[0]
            before = drain_of(three, drained)[-1][0]
            lab.admin.unload(back, destination=drained)
            until(
                lambda: lab.assigned(back) == drained or str(back) in put_back(three),
                what=f"{back} put back",
                running=three.alive,
            )

            def gone_again() -> list[int]:
                """Rounds that saw a bundle there, once a later one saw none."""
                seen = [
                    (number, row["bundles_left_count"])
                    for number, row in drain_of(three, drained)
                    if number > before
                ]
                full = [number for number, left in seen if left]
                return full if full and any(number > full[-1] and left == 0 for number, left in seen) else []

            full = until(gone_again, what="what was put back to leave", running=three.alive)
            assert full[-1] - full[0] < 3, full
            assert str(back) in put_back(three)

            released = ("--cluster", CLUSTER, "--who", "maria", "--why=what was drained may move again")
            output_of(config, "policy", "set", *released, "pulsar.guards.bundle_cooldown_s=1")
            output_of(config, "maintenance", "end", *asked)

            def takes_part() -> bool:
                found = rates(lab, pulsar.broker_ids)
                return bool(found) and found[0] > 0

            until(takes_part, what="traffic at the released broker", running=three.alive)
            three.wait_for_all_results()
