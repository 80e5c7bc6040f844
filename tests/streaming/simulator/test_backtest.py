"""``trimtab backtest`` as a user meets it, on the recording of three real brokers."""

import gzip
import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deploy.screenshots import browser, shown_text
from streaming.cli import main
from streaming.simulator.backtest import AS_RECORDED, Act, Opened, OpenRound
from streaming.simulator.differences import differences, verdict
from streaming.simulator.score import Run, Score

ROOT = Path(__file__).parents[3]
RECORDING = str(ROOT / "tests" / "recordings" / "pulsar-3-brokers.ndjson.gz")
SETTINGS = str(ROOT / "tests" / "recordings" / "pulsar-3-brokers.toml")
TWO_POLICIES = ["--config", SETTINGS, "--policy", "avg-shedder", "--policy", "fleet-planner"]


def backtest(*arguments: str) -> Result:
    """Run the command in one process, so that nothing is imported anew."""
    return CliRunner().invoke(main, ["backtest", "--processes", "1", *arguments])


def tree(*arguments: str) -> dict[str, Any]:
    """What the backtest found, from its JSON output."""
    done = backtest(*arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What a backtest of two policies on the whole recording found."""
    return tree(*TWO_POLICIES, RECORDING)


def test_both_policies_leave_the_cluster_unbalanced_for_less_of_the_time_than_it_was(found: dict[str, Any]):
    card = found["score_card"]["lab"]
    assert list(card) == ["as recorded", "avg-shedder", "fleet-planner"]
    for name in ("avg-shedder", "fleet-planner"):
        assert card[name]["unbalanced_percent"] < card["as recorded"]["unbalanced_percent"]
        assert card[name]["unloads"] > 0
        assert card[name]["moved_percent"] > 0
    assert card["as recorded"]["unloads"] == 0


def test_the_open_loop_decides_what_replay_decides(found: dict[str, Any]):
    replayed = CliRunner().invoke(main, ["replay", "--config", SETTINGS, "--only", "actions", RECORDING])
    bundles = [json.loads(line)["data"]["bundle"] for line in replayed.stdout.splitlines()]
    decided = {each["candidate"]: each for each in found["open_loop"]}
    assert decided["avg-shedder"]["unloads_count"] == len(bundles) > 0


def test_a_difference_names_what_one_did_and_why_the_other_did_not(found: dict[str, Any]):
    first = found["differences"][0]
    assert first["round_end"] == "2026-11-21T13:23:10.000Z"
    shedder, planner = first["decisions"]
    assert shedder["acts"] == []
    assert shedder["why_not"] == ["broker-1:8080: hit-count 1/2"]
    assert planner["acts"][0]["bundle"] == "shop/orders/0x80000000_0xa0000000"
    assert planner["why_not"] == []


def test_the_same_recording_gives_the_same_bytes_in_one_process_or_in_two():
    arguments = [*TWO_POLICIES, "-o", "json", RECORDING]
    assert backtest(*arguments).stdout == backtest(*arguments, "--processes", "2").stdout


def test_in_the_example_of_the_docs_the_fleet_planner_finishes_and_the_page_tells_what_comes_out():
    example = str(ROOT / "tests" / "recordings" / "demo-6-brokers.ndjson.gz")
    done = backtest(*TWO_POLICIES[2:], example).stdout
    table = done[done.index("demo, closed loop") :].split("\n\n")
    assert re.search("^fleet-planner .* 100 ", table[0], re.MULTILINE), "it ends balanced"
    docs = (ROOT / "docs" / "use" / "backtest.md").read_text()
    assert table[0] in docs
    assert table[1] in docs


def test_settings_files_are_compared_under_their_names(tmp_path: Path):
    text = Path(SETTINGS).read_text()
    (tmp_path / "now.toml").write_text(text)
    (tmp_path / "candidate.toml").write_text(text.replace("low_hit_count = 3", "high_hit_count = 4"))
    found = tree(
        "--config", str(tmp_path / "now.toml"), "--config", str(tmp_path / "candidate.toml"), RECORDING
    )
    assert list(found["score_card"]["lab"]) == ["as recorded", "now", "candidate"]


def test_only_what_was_reported_in_the_time_asked_for_counts():
    found = tree(*TWO_POLICIES, "--from", "2026-11-21T13:22:00Z", "--to", "2026-11-21T13:23:00Z", RECORDING)
    assert "2026-11-21T13:22:0" in found["sources"]
    assert found["score_card"]["lab"]["as recorded"]["unbalanced_percent"] == 0
    assert found["differences"] == []


@pytest.mark.parametrize(
    ("until", "policy", "told"),
    [
        (
            "13:21:30",
            "fleet-planner",
            "1 round is recorded, and the first in which every candidate may act is round 2",
        ),
        (
            "13:21:50",
            "avg-shedder",
            "3 rounds are recorded, and the first in which every candidate may act is round 3",
        ),
        ("13:22:10", "avg-shedder", ""),
    ],
)
def test_a_recording_of_too_few_rounds_shows_nothing(until: str, policy: str, told: str):
    asked = ["--config", SETTINGS, "--policy", policy, "--to", f"2026-11-21T{until}Z", RECORDING]
    verdicts = tree(*asked)["verdicts"]["lab"]
    assert ("No verdict: " in verdicts[0]) == bool(told), verdicts
    assert told in verdicts[0]
    assert verdicts[0] in backtest(*asked).stdout


def test_a_folder_stands_for_the_recordings_in_it(tmp_path: Path, found: dict[str, Any]):
    lines = gzip.decompress(Path(RECORDING).read_bytes()).splitlines(keepends=True)
    (tmp_path / "b.ndjson.gz").write_bytes(gzip.compress(b"".join(lines[200:])))
    (tmp_path / "a.ndjson").write_bytes(b"".join(lines[:200]))
    assert tree(*TWO_POLICIES, str(tmp_path))["score_card"] == found["score_card"]


def test_without_recorded_moves_what_somebody_did_by_hand_has_not_happened():
    card = tree(*TWO_POLICIES, "--to", "2026-11-21T13:25:00Z", "--recorded-moves", "drop", RECORDING)
    figures = card["score_card"]["lab"]
    assert figures["nobody acts"]["unbalanced_percent"] == 0
    assert figures["avg-shedder"]["unloads"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.ndjson"], "nowhere.ndjson: no such file or folder; give a recording"),
        (["kafak://here:9092"], "kafak://here:9092: no such address; give a recording"),
        (["--policy", "avg-shedder", "--policy", "avg-shedder", RECORDING], "two candidates are the same"),
        (["--from", "2026-11-21T13:22:00", RECORDING], "has no offset: add Z for UTC"),
        (["kafka://127.0.0.1:1", RECORDING], "give one address, or files"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_remedy(arguments: list[str], message: str):
    done = backtest(*arguments)
    assert done.exit_code == 2
    assert message in done.output


GARBAGE = b"\x00\xff\n" * 3
OTHER_JSON = b'{"version": 1,\n"partitions": []}\n'
ONE_LINE = gzip.decompress(Path(RECORDING).read_bytes()).splitlines(keepends=True)[0]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (GARBAGE, "no line of it is a usable report (3 lines refused); expected a recording"),
        (OTHER_JSON, "no line of it is a usable report (2 lines refused); expected a recording"),
        (b"", "it is empty; expected a recording of `trimtab record`"),
        (
            ONE_LINE,
            "it has no Pulsar cluster with two brokers and a bundle; its reports are from 2026-11-21T",
        ),
        (ONE_LINE + GARBAGE, ", 3 lines refused"),
    ],
    ids=["garbage", "other JSON", "empty", "one report", "one report and garbage"],
)
@pytest.mark.parametrize("command", [["backtest"], ["simulate", "--from"]], ids=["backtest", "simulate"])
def test_a_recording_without_a_fleet_is_described(
    tmp_path: Path, command: list[str], content: bytes, told: str
):
    file = tmp_path / "given"
    file.write_bytes(content)
    done = CliRunner().invoke(main, [*command, str(file)])
    assert done.exit_code == 2
    assert f"{file}: " in done.output
    assert told in done.output


def test_of_a_time_without_reports_the_time_of_the_recording_is_told():
    told = backtest("--from", "2030-01-01T00:00:00Z", RECORDING).output
    assert (
        "two brokers and a bundle in the time asked for; its reports are from 2026-11-21T13:21:25Z to "
        in told
    )


def test_an_empty_folder_is_refused_by_name(tmp_path: Path):
    done = backtest(str(tmp_path))
    assert done.exit_code == 2
    assert "no file in it ends in .ndjson" in done.output


@pytest.mark.skipif(browser() is None, reason="no Chromium or Chrome is installed")
def test_the_page_shows_the_verdict_and_the_plots_in_a_browser(tmp_path: Path):
    page = tmp_path / "page.html"
    assert backtest(*TWO_POLICIES, "--html", str(page), RECORDING).exit_code == 0
    text = shown_text(page)
    assert "is better than" in text
    assert text.count('class="main-svg"') >= 2, "a plot of the spread, and one of the brokers"
    assert "rounds were decided differently" in text


def test_the_page_asks_no_network(tmp_path: Path):
    page = tmp_path / "page.html"
    backtest(*TWO_POLICIES, "--html", str(page), RECORDING)
    text = page.read_text()
    body = text[: text.index("<script>")] + text[text.index("</script>") :]
    assert " src=" not in body
    assert "@import" not in body


def open_run(candidate: str, acts: dict[int, list[Act]]) -> Opened:
    """A candidate's run; ``acts`` has the acts of each round by the round's end in ms."""
    return Opened(
        cluster="east",
        candidate=candidate,
        rounds=[
            OpenRound(end_ms=end_ms, acts=each, packed_why=OpenRound.pack("calm", [], []))
            for end_ms, each in acts.items()
        ],
        rejected_count=0,
    )


def unload(bundle: str, destination: str) -> Act:
    """An unload from b1."""
    return Act(kind="unload", bundle=bundle, source="b1", destination=destination, reason="hot")


def test_rounds_of_different_lengths_are_compared_by_the_longer_ones():
    short = open_run("short", {10_000: [unload("x", "b2")], 20_000: [], 30_000: [], 40_000: []})
    long = open_run("long", {20_000: [unload("x", "b2")], 40_000: [unload("y", "b2")]})
    found = differences([short, long])
    assert [each.end_ms for each in found] == [40_000]
    assert found[0].decisions[0].why_not == ["calm"]


def test_another_destination_is_a_difference():
    one = open_run("one", {10_000: [unload("x", "b2")], 20_000: []})
    other = open_run("other", {10_000: [unload("x", "b3")], 20_000: []})
    decisions = differences([one, other])[0].decisions
    assert decisions[0].why_not == ["x to b3, but to b2"]


def test_a_bundle_that_a_shedding_broker_keeps_is_named():
    fired = OpenRound(end_ms=10_000, acts=[], packed_why=OpenRound.pack("decided", [("b1", "fired")], []))
    one = Opened(cluster="east", candidate="one", rounds=[fired], rejected_count=0)
    decisions = differences([one, open_run("other", {10_000: [unload("x", "b2")]})])[0].decisions
    assert decisions[0].why_not == ["x: b1 sheds others"]


def run(candidate: str, rounds: int, unbalanced: int, spread: float, moved_percent: float, moves: int) -> Run:
    """A candidate's run with the figures that the verdict looks at."""
    score = Score(
        rounds=rounds,
        unbalanced_rounds=unbalanced,
        spread_points=spread,
        moved_messages_ratio=moved_percent / 100,
        unloads=moves,
    )
    return Run(scenario="east", candidate=candidate, seed=0, score=score, series=None)


Figures = tuple[int, int, float, float, int]
"""Rounds, unbalanced ones, points of spread, % moved, moves."""


@pytest.mark.parametrize(
    ("one", "other", "sentence"),
    [
        (
            (100, 10, 9, 9, 9),
            (100, 20, 9, 9, 9),
            "one is better than other: the cluster is unbalanced in 10 % of the rounds, not in 20 %.",
        ),
        (  # 4 % of the rounds are no clear difference
            (100, 10, 9, 9, 9),
            (100, 14, 9, 9, 9),
            "No clear difference between one and other.",
        ),
        (  # 20 % of the rounds are two rounds only
            (10, 2, 9, 9, 9),
            (10, 4, 9, 9, 9),
            "No clear difference between one and other.",
        ),
        (  # less time unbalanced, paid with traffic; two moves more are not clear
            (100, 20, 9, 30, 11),
            (100, 10, 9, 60, 13),
            (
                "other is better than one at a price: the cluster is unbalanced in 10 % of the rounds, not in 20 %; but 60 % of the fleet's "
                "message rate moves, not 30 %."
            ),
        ),
        (  # brokers closer together, paid with traffic and moves
            (100, 10, 9, 9, 9),
            (100, 10, 5, 20, 12),
            (
                "other is better than one at a price: its brokers are 5 points apart in the mean, not 9; but 20 % of the fleet's message rate "
                "moves, not 9 %, and it takes 12 moves and splits, not 9."
            ),
        ),
        (  # less time unbalanced, paid with a wider spread, which counts behind it
            (100, 10, 20, 9, 9),
            (100, 30, 12, 9, 9),
            (
                "one is better than other at a price: the cluster is unbalanced in 10 % of the rounds, not in 30 %; but its brokers are 20 "
                "points apart in the mean, not 12."
            ),
        ),
        (
            (100, 10, 9.1, 9, 9),
            (100, 11, 9.2, 3, 9),
            "other is better than one: 3 % of the fleet's message rate moves, not 9 %.",
        ),
        (  # 10 points more of a month's traffic are no quarter more
            (100, 10, 9, 100, 90),
            (100, 10, 9, 110, 100),
            "No clear difference between one and other.",
        ),
        ((100, 10, 9, 9, 9), (100, 10, 9, 9, 9), "No clear difference between one and other."),
    ],
)
def test_the_first_clear_difference_decides_and_what_is_clearly_worse_behind_it_is_the_price(
    one: Figures, other: Figures, sentence: str
):
    assert verdict([run("one", *one), run("other", *other)]) == [sentence]


def test_each_two_candidates_are_compared_and_a_single_one_with_the_recording():
    recorded, many = run(AS_RECORDED, 10, 9, 30, 0, 0), [run(name, 10, 1, 9, 5, 3) for name in "abc"]
    assert [each.split(" between ")[1] for each in verdict([recorded, *many])] == [
        "a and b.",
        "a and c.",
        "b and c.",
    ]
    assert verdict([recorded, many[0]]) == [
        (
            "a is better than what was recorded at a price: the cluster is unbalanced in 10 % of the rounds, not in 90 %; but 5 % of the fleet's "
            "message rate moves, not 0 %, and it takes 3 moves and splits, not 0."
        )
    ]


def test_of_a_single_candidate_no_decisions_are_compared(tmp_path: Path):
    page = tmp_path / "page.html"
    text = backtest("--config", SETTINGS, "--html", str(page), RECORDING).stdout
    assert "pulsar-3-brokers is better than what was recorded" in text
    assert "decided the same" not in text + page.read_text()
    assert "There is one candidate, so no decisions are compared" in text
    better = verdict([run(AS_RECORDED, 10, 1, 9, 0, 0), run("a", 10, 9, 9, 5, 3)])
    assert better[0].startswith("What was recorded is better than a: the cluster is unbalanced")


def test_every_table_names_its_cluster(tmp_path: Path):
    page, two = tmp_path / "page.html", tmp_path / "two.ndjson"
    text = gzip.decompress(Path(RECORDING).read_bytes())
    two.write_bytes(text + text.replace(b'"cluster":"lab"', b'"cluster":"east"'))
    done = backtest(*TWO_POLICIES, "--html", str(page), str(two))
    titles = re.findall("^(.*?)  +(?:unbalanced %|rounds)", done.stdout, re.MULTILINE)
    assert titles == ["east, closed loop", "lab, closed loop", "east, open loop", "lab, open loop"]
    heads = re.findall("<table[^>]*><tr><th>(.*?)</th>", page.read_text())
    rounds = "round until, UTC"
    assert heads == ["east", "east", f"east, {rounds}", "lab", "lab", f"lab, {rounds}"]


def test_the_page_begins_with_what_was_compared_where_when_and_by_which_version(tmp_path: Path):
    page = tmp_path / "page.html"
    backtest(*TWO_POLICIES, "--html", str(page), RECORDING)
    first, *notes = re.findall("<p[^>]*>(.*?)</p>", page.read_text())
    assert first == (
        "What avg-shedder and fleet-planner would have done with lab from 2026-11-21T13:21:25Z to 2026-11-21T13:30:40Z, by the "
        f"controller of trimtab {version('trimtab')}."
    )
    assert notes[0].startswith("lab (3 brokers, 16 bundles): 318 load reports")
    assert any("in percent of its limit" in each for each in notes)
    assert any("Clear means: 5 % of the rounds" in each for each in notes)


def test_plots_cut_only_a_short_peak_and_leave_room_for_the_bar_of_buttons(tmp_path: Path):
    page = tmp_path / "page.html"
    backtest(*TWO_POLICIES, "--html", str(page), RECORDING)
    for traces, layout in plots(page):
        points = sorted(each for trace in traces for each in trace["y"] if each is not None)
        top = layout["yaxis"]["range"][1]
        cut = [each for each in points if each > top]
        assert 0 < len(cut) <= 3, "one round: a broker died, and reports without a minute's statistics follow"
        assert f"a peak is at {points[-1]:,.0f}" in layout["yaxis"]["title"]["text"]
        assert layout["margin"]["t"] >= 64


def plots(page: Path) -> list[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Traces and layout of every plot of a page."""
    text, read = page.read_text(), json.JSONDecoder().raw_decode
    found = []
    for start in re.finditer(r'Plotly\.newPlot\(\s*"[^"]+",\s*', text):
        traces, end = read(text, start.end())
        layout, _ = read(text, text.index("{", end))
        found.append((traces, layout))
    return found


def control(time: str, settings: dict[str, object], **others: object) -> str:
    """An operator's control event as a line of a recording."""
    return json.dumps(
        {
            "specversion": "1.0",
            "id": f"control/{time}",
            "source": "/trimtab/control",
            "type": "trimtab.control.v1",
            "subject": "control",
            "time": time,
            "cluster": "lab",
            "data": {"settings": settings, "who": "ada", **others},
        }
    )


def with_controls(folder: Path, *controls: str) -> str:
    """The recording with control events before it, as a file."""
    file = folder / "controls.ndjson"
    file.write_text("\n".join([*controls, gzip.decompress(Path(RECORDING).read_bytes()).decode()]))
    return str(file)


BEFORE = "2026-11-21T13:20:00Z"
NEVER = {
    "pulsar": {
        "shedding_policy": "fleet-planner",
        "avg_shedder": {"high_hit_count": 100, "low_hit_count": 100},
    }
}


def test_settings_of_operators_count_and_a_line_says_so_but_no_pause_and_no_policy(tmp_path: Path):
    file = with_controls(tmp_path, control(BEFORE, NEVER, paused=True))
    found = tree(*TWO_POLICIES, "--from", "2026-11-21T13:21:30Z", file)
    assert {each["candidate"]: each["unloads_count"] > 0 for each in found["open_loop"]} == {
        "avg-shedder": False,
        "fleet-planner": True,
    }
    assert {name: each["unloads"] > 0 for name, each in found["score_card"]["lab"].items()} == {
        "as recorded": False,
        "avg-shedder": False,
        "fleet-planner": True,
    }
    assert found["operators_settings"] == [
        (
            "lab: settings made by `policy set` count for every candidate: pulsar.avg_shedder.high_hit_count = 100, "
            f"pulsar.avg_shedder.low_hit_count = 100 from {BEFORE} (--policy is in place of pulsar.shedding_policy)"
        )
    ]
    assert found["operators_settings"][0] in backtest(*TWO_POLICIES, file).stdout


LOW = {"pulsar": {"avg_shedder": {"low_hit_count": 12}}}
SET = "pulsar.avg_shedder.low_hit_count = 12"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ([("13:20:00", LOW), ("13:20:20", {})], ""),
        ([("13:20:00", {}), ("13:20:20", LOW)], f"{SET} from 2026-11-21T13:20:20Z"),
        (
            [("13:25:00", LOW), ("13:26:00", {})],
            f"{SET} from 2026-11-21T13:25:00Z; what the file says again from 2026-11-21T13:26:00Z",
        ),
        (
            [("13:20:00", LOW), ("13:26:00", {})],
            f"{SET} from 2026-11-21T13:20:00Z; what the file says again from 2026-11-21T13:26:00Z",
        ),
        ([("14:00:00", LOW), ("14:01:00", {})], ""),
    ],
    ids=["taken back before", "in force", "within", "begun before", "later"],
)
def test_of_what_operators_set_only_what_counts_within_the_recording_is_said(
    tmp_path: Path, made: list[tuple[str, dict[str, object]]], said: str
):
    file = with_controls(tmp_path, *(control(f"2026-11-21T{time}Z", settings) for time, settings in made))
    settings = tree("--config", SETTINGS, "--loop", "closed", file)["operators_settings"]
    assert [each.partition(" candidate: ")[2] for each in settings] == ([said] if said else [])


def test_settings_of_operators_can_be_left_out(tmp_path: Path, found: dict[str, Any]):
    left_out = tree(
        *TWO_POLICIES, "--recorded-settings", "drop", with_controls(tmp_path, control(BEFORE, NEVER))
    )
    assert left_out["operators_settings"] == []
    assert left_out["score_card"] == found["score_card"]
