"""``trimtab simulate`` as a user meets it: the same seeds give the same figures, and they show which candidate does better."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from streaming.cli import main
from streaming.simulator.score import ALL, Run, Score, card

ROOT = Path(__file__).parents[3]
RECORDING = ROOT / "tests" / "recordings" / "pulsar-3-brokers.ndjson.gz"
SHORT = ["simulate", "--seeds", "1", "--hours", "1", "--processes", "1"]


def simulate(*arguments: str) -> str:
    """Standard output of a short simulation."""
    done = CliRunner().invoke(main, [*SHORT, *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def figures() -> dict[str, dict[str, float]]:
    """Means of one hot broker by candidate."""
    return json.loads(simulate("-o", "json"))["means"][ALL]


def test_the_planner_balances_sooner_than_avg_shedder_with_few_more_moves(
    figures: dict[str, dict[str, float]],
):
    planner, shedder = figures["fleet-planner"], figures["avg-shedder"]
    assert planner["unbalanced_percent"] < shedder["unbalanced_percent"] / 2
    assert planner["unloads"] <= shedder["unloads"] + 3
    assert planner["ended_balanced_percent"] == 100


def test_nobody_and_perfect_information_stand_beside_as_bounds(figures: dict[str, dict[str, float]]):
    assert list(figures) == ["nobody acts", "avg-shedder", "fleet-planner", "perfect information"]
    assert figures["nobody acts"]["unbalanced_percent"] == 100
    assert figures["nobody acts"]["unloads"] == 0
    assert figures["perfect information"]["unbalanced_percent"] < 10


def test_the_same_seeds_give_the_same_bytes_in_one_process_or_in_two():
    arguments = ["--scenario", "three-brokers", "--policy", "fleet-planner", "-o", "json"]
    assert simulate(*arguments) == simulate(*arguments, "--processes", "2")


def test_settings_files_are_compared_under_their_names(tmp_path: Path):
    for name, threshold in (("calm", 30.0), ("eager", 15.0)):
        (tmp_path / f"{name}.toml").write_text(
            f"[pulsar.avg_shedder]\nlow_threshold_points = {threshold}\nlow_hit_count = 2\n"
        )
    found = json.loads(
        simulate(
            "--config", str(tmp_path / "calm.toml"), "--config", str(tmp_path / "eager.toml"), "-o", "json"
        )
    )
    assert list(found["means"][ALL]) == ["nobody acts", "calm", "eager", "perfect information"]
    assert {run["seed"] for run in found["runs"]} == {1}


def test_the_page_is_one_file_that_asks_no_network(tmp_path: Path):
    page = tmp_path / "page.html"
    simulate("--policy", "fleet-planner", "--html", str(page))
    text = page.read_text()
    body = text[: text.index("<script>")] + text[text.index("</script>") :]
    assert f"played by trimtab {version('trimtab')} on 20" in body
    assert "<h2>one-hot-broker</h2><p>10 brokers: " in body
    assert "Score card" in body
    assert " src=" not in body
    assert "@import" not in body


def test_a_fleet_begins_as_a_recording_has_it():
    found = json.loads(simulate("--from", str(RECORDING), "-o", "json"))
    assert found["runs"]


def test_a_simulated_recording_says_why_a_backtest_of_it_has_other_figures():
    text = simulate("--from", str(RECORDING), "--hours", "0.5", "--seeds", "1", "--policy", "avg-shedder")
    assert "`trimtab backtest` plays\nthe recorded rounds themselves" in text
    assert "backtest" not in simulate("--hours", "0.5", "--seeds", "1", "--policy", "avg-shedder")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", __file__, "--scenario", "scale-out"], "leave one of them out"),
        (["--policy", "avg-shedder", "--policy", "avg-shedder"], "two candidates have the same name"),
        (["--from", __file__], "no line of it is a usable report"),
        (["--seeds", "0"], "'0': expected a whole number from 1 to 1000"),
        (["--processes", "none"], "'none': expected a whole number from 1 on"),
        (["--scenario", "one-hot-brokers"], "Did you mean one-hot-broker?"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_remedy(arguments: list[str], message: str):
    done = CliRunner().invoke(main, ["simulate", *arguments])
    assert done.exit_code == 2
    assert message in done.output


def score(**given: object) -> Score:
    """A score with something in it."""
    plain = Score(
        rounds=100, unbalanced_rounds=10, ended_balanced=True, unloads=4, failed=0, splits=0, needless=1, moved_twice=0,
        sent_back=0, wrong_sign=0, moved_messages_ratio=0.1, disrupted_messages=5.0, recovery_rounds=[3, None],
        hottest_points=60.0, spread_points=20.0,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **given)


def test_the_card_is_the_mean_over_the_seeds_and_leaves_out_what_is_not_known():
    runs = [
        Run(scenario="a", candidate="x", seed=seed, score=each, series=None)
        for seed, each in enumerate(
            [score(), score(unloads=8, recovery_rounds=[None]), score(recovery_rounds=[5])]
        )
    ]
    found = card(runs)["a"]["x"]
    assert found["unloads"] == pytest.approx(16 / 3, abs=1e-3)
    assert found["unbalanced_percent"] == 10.0
    assert found["recovery_rounds"] == 4.0
    assert found["ended_balanced_percent"] == 100.0


def test_transfer_shedder_plays_on_published_loads_and_the_others_as_without_it(
    tmp_path: Path, figures: dict[str, dict[str, float]]
):
    eager = tmp_path / "eager.toml"
    eager.write_text(
        '[pulsar]\nshedding_policy = "transfer-shedder"\n[pulsar.transfer_shedder]\ntarget_std_ratio = 0.04\n'
    )
    asked = ("--config", str(eager), "--policy", "avg-shedder", "-o", "json")
    found = json.loads(simulate(*asked))["means"][ALL]
    assert found["eager"]["ended_balanced_percent"] == 100
    assert found["eager"]["unbalanced_percent"] < 50
    assert found["avg-shedder"] == figures["avg-shedder"]


@pytest.mark.parametrize(
    "command", [["simulate"], ["backtest", str(RECORDING)]], ids=["simulate", "backtest"]
)
def test_without_the_extra_a_page_is_refused_before_the_first_run(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "plotly", None)
    page = tmp_path / "page.html"
    done = CliRunner().invoke(main, [*command, "--html", str(page)])
    assert (done.exit_code, page.exists()) == (2, False)
    assert 'pip install "trimtab[pages]"' in done.stderr


def test_a_page_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path):
    page = tmp_path / "nowhere" / "page.html"
    done = CliRunner().invoke(main, [*SHORT, "--policy", "fleet-planner", "--html", str(page)])
    assert f"--html {page} cannot be written: No such file or directory" in done.stderr
