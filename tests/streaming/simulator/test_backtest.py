"""``trimtab backtest`` as a user meets it, on the recording of three real brokers."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deploy.screenshots import browser, shown_text
from streaming.cli import main
from streaming.simulator.backtest import Act, Opened, OpenRound
from streaming.simulator.differences import differences, verdict

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
    assert "2026-11-21T13:22:00" in found["sources"]
    assert found["score_card"]["lab"]["as recorded"]["unbalanced_percent"] == 0
    assert found["differences"] == []


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
        ([__file__], "no Pulsar cluster"),
        (["nowhere.ndjson"], "nowhere.ndjson: neither a recording nor kafka://"),
        (["--policy", "avg-shedder", "--policy", "avg-shedder", RECORDING], "two candidates are the same"),
        (["--from", "2026-11-21T13:22:00", RECORDING], "has no offset: add Z for UTC"),
        (["kafka://127.0.0.1:1", RECORDING], "give one address, or files"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_remedy(arguments: list[str], message: str):
    done = backtest(*arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_an_empty_folder_is_refused_by_name(tmp_path: Path):
    done = backtest(str(tmp_path))
    assert done.exit_code == 2
    assert "no file in it ends in .ndjson" in done.output


@pytest.mark.skipif(browser() is None, reason="no Chromium or Chrome is installed")
def test_the_page_shows_the_verdict_and_the_plots_in_a_browser(tmp_path: Path):
    page = tmp_path / "page.html"
    assert backtest(*TWO_POLICIES, "--html", str(page), RECORDING).exit_code == 0
    text = shown_text(page)
    assert "fleet-planner is better" in text
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
    assert decisions[0].why_not == ["x: goes to b2 instead"]


def figures(unbalanced: float, spread: float, moved: float) -> dict[str, float | None]:
    """The figures that the verdict looks at."""
    return {
        "unbalanced_percent": unbalanced,
        "spread_points": spread,
        "moved_percent": moved,
        "hottest_points": 50.0,
        "unloads": 3.0,
        "splits": 0.0,
    }


@pytest.mark.parametrize(
    ("one", "other", "sentence"),
    [
        ((10, 9, 9), (20, 1, 1), "one is better: the cluster is unbalanced for less of the time."),
        ((10, 9, 9), (10, 5, 20), "other is better: the cluster is unbalanced for as long, with its brokers"),
        ((10, 9.1, 9), (10, 9.2, 3), "other is better: the cluster is as balanced, with less traffic moved."),
        ((10, 9, 9), (10, 9, 9), "one and other do equally well."),
    ],
)
def test_who_is_better_is_judged_by_balance_first(
    one: tuple[float, float, float], other: tuple[float, float, float], sentence: str
):
    assert verdict({"one": figures(*one), "other": figures(*other)}).startswith(sentence)
