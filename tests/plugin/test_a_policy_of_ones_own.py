"""A policy that is registered with one line has its settings, memory, words and metrics without anything else changed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.streaming.events import report, traffic

ROOT = Path(__file__).parents[2]
REGISTER = "from policies.shedding import registry; from tests.plugin.turn_taker import POLICY; registry.POLICIES += (POLICY,)\n"
"""The one line; in the repository it would be an entry of ``registry.POLICIES``."""
REPLAY = "from streaming.cli import main; main()"
SETTINGS = """\
[pulsar]
shedding_policy = "turn-taker"
shadow = false
[pulsar.rounds]
warmup_rounds = 0
[pulsar.turn_taker]
rounds_count = 3
[pulsar.guards]
bundle_cooldown_s = 0
keep_sole_bundle = false
"""
INSIDE = """
import json, sys
from pathlib import Path
from deploy.docs.__main__ import render_outcomes
from policies.shedding.registry import find_policy
from state.systems import decode_memory
from state.closing import Identity
from state.controller import Controller
from state.store import DictStore
from streaming.contract import families
from streaming.controller.metrics import KNOWN_LABELS
from streaming.controller.metrics import Metrics
from streaming.contract.encode import encode
from streaming.controller.published import decode as decode_published
from streaming.cli.rounds import examined_remedy_of
from streaming.settings import ClusterSettingsSource, load
from streaming.settings.reference import render_reference
from streaming.contract.decode import decode

settings = ClusterSettingsSource(load(file=Path(sys.argv[1]), flags={}, environ={}).settings)
store, metrics = DictStore(), Metrics(KNOWN_LABELS, version="0", pyspark_version="0")
for line in Path(sys.argv[2]).read_bytes().splitlines():
    controller = Controller("east-1", store, identity=Identity(), settings=settings)
    result = controller.step(decode(line)[1])
    controller.commit()
    for output in result.outputs:
        if output.kind == "round":
            metrics.observe_round(decode_published(encode(output, "/trimtab/x")), published_s=0.0)
value = metrics.registry.get_sample_value
print(json.dumps({
    "policies": decode_memory("pulsar", store.fleet()).policies,
    "fired": value("trimtab_examined_total", {"cluster": "east-1", "policy": "turn-taker", "outcome": "fired"}),
    "waits": value("trimtab_examined_total", {"cluster": "east-1", "policy": "turn-taker", "outcome": "waits"}),
    "difference": value("trimtab_difference_points", {"cluster": "east-1"}),
    "family": families.DIFFERENCE.text,
    "reference": "## `[pulsar.turn_taker]`" in render_reference(),
    "page": "| `waits` | its turn has not come |" in render_outcomes(Path("docs/understand/outcomes.md").read_text()),
    "remedy": examined_remedy_of("waits", "turn-taker"),
}))
"""


def python(program: str, *arguments: str) -> str:
    """A fresh process, as the list of policies is read when the modules are imported."""
    done = subprocess.run(
        [sys.executable, "-c", REGISTER + program, *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Settings, and seven rounds of a busy broker beside an idle one."""
    directory = tmp_path_factory.mktemp("plugin")
    settings, events = directory / "trimtab.toml", directory / "events.ndjson"
    settings.write_text(SETTINGS, encoding="utf-8")
    hot = {"t/n/0x0_0x1": traffic(3000), "t/n/0x1_0x2": traffic(5000)}
    cold = {"t/n/0x2_0x3": traffic(1000), "t/n/0x3_0x4": traffic(1000)}
    events.write_bytes(
        b"".join(
            line + b"\n"
            for number in range(7)
            for line in (
                report("b1", time_s=60 * number + 10, cpu=(80, 100), rate=8000, bundles=hot),
                report("b2", time_s=60 * number + 10, cpu=(20, 100), rate=2000, bundles=cold),
            )
        )
    )
    return str(settings), str(events)


def test_replay_shows_its_decisions_in_its_own_words(files: tuple[str, str]) -> None:
    message = [json.loads(line) for line in python(REPLAY, "replay", "--config", *files).splitlines()]
    actions = [event["data"] for event in message if event["type"] == "trimtab.action.unload.v1"]
    rounds = [event["data"] for event in message if event["type"] == "trimtab.round.v1"]
    assert [
        (each["round"], each["bundle"], each["source_broker"], each["destination_broker"]) for each in actions
    ] == [
        (2, "t/n/0x1_0x2", "b1", "b2"),
        (5, "t/n/0x1_0x2", "b1", "b2"),
    ]
    assert actions[0]["policy"] == "turn-taker"
    assert actions[0]["reason"].startswith(
        "it is the turn of b1 after 3 rounds, compared with None: moving t/n/0x1_0x2"
    )
    examined: list[dict[str, Any]] = [each["examined"]["heaviest"][0] for each in rounds]
    assert [(row["high_broker"], row["low_broker"], row["outcome"]) for row in examined[:3]] == [
        ("", None, "waits"),
        ("", None, "waits"),
        ("", None, "fired"),
    ]


def test_its_memory_metrics_pages_and_remedies_are_there(files: tuple[str, str]) -> None:
    found = json.loads(python(INSIDE, *files))
    assert found["policies"] == {"turn-taker": {"given": {"b1": 2}, "waited": {"": 0}}}
    assert (found["fired"], found["waits"], found["difference"]) == (2, 4, 3)
    assert "the rounds since the last unload (turn-taker)" in found["family"]
    assert (found["reference"], found["page"]) == (True, True)
    assert found["remedy"] == "its turn has to come"
