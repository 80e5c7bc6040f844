"""The rules: each alert fires when it should and not otherwise, and whoever is woken finds a page that helps."""

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from prometheus_client import generate_latest

from deploy.docs.examples import REPOSITORY
from deploy.docs.metrics_page import used_families
from deploy.local.prometheus import configuration
from state.outputs import INFORMATION, Finding
from streaming.cli.maintenance import WILL_NOT_PASS
from tests.support.programs import promtool
from tests.support.queries import ROOT, RULES, Asked, alerts, asked_by_rules, problems

CASES = sorted((Path(__file__).parent / "rules").glob("*.test.yml"))
RUNBOOKS = ROOT / "docs/run/runbooks"
HEADINGS = ("## What it means", "## What to look at", "## What to do")


def cases_of(path: Path) -> list[dict[str, Any]]:
    return [case for test in yaml.safe_load(path.read_text())["tests"] for case in test["alert_rule_test"]]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name.partition(".")[0])
def test_an_alert_fires_when_it_should_and_not_otherwise(path: Path):
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not():
    fired, silent = set(), set()
    for case in (case for path in CASES for case in cases_of(path)):
        (fired if case["exp_alerts"] else silent).add(case["alertname"])
    assert fired == alerts().keys()
    assert silent == alerts().keys()


@pytest.mark.parametrize(
    ("page", "rule", "changed"),
    [
        ("unbalanced", "trimtab_outliers) > 0", "trimtab_outliers) > 5"),
        ("unbalanced", "unless on (job, cluster) cluster:trimtab_idle_hands:bool == 1", ""),
        ("paused", "for: 4h", "for: 6h"),
        ("lag", "p95_10m > 60", "p95_10m > 6"),
    ],
)
def test_the_cases_notice_a_changed_rule(tmp_path: Path, page: str, rule: str, changed: str):
    text = (RULES / "alerts.rules.yml").read_text()
    assert rule in text
    (tmp_path / "alerts.rules.yml").write_text(text.replace(rule, changed))
    (tmp_path / "recording.rules.yml").write_text((RULES / "recording.rules.yml").read_text())
    cases = next(path for path in CASES if path.name == f"{page}.test.yml")
    copy = tmp_path / cases.name
    copy.write_text(cases.read_text().replace("../../../deploy/prometheus/", ""))
    assert promtool("test", "rules", copy).returncode == 1


@pytest.mark.parametrize("asked", asked_by_rules(), ids=lambda asked: asked.where)
def test_every_rule_names_metrics_labels_and_values_that_exist(asked: Asked):
    assert not problems(asked)


def test_what_a_drain_cannot_move_is_what_the_commands_call_so():
    rules = yaml.safe_load((RULES / "recording.rules.yml").read_text())["groups"][0]["rules"]
    (kept,) = [each["expr"] for each in rules if each["record"] == "cluster:trimtab_drain_bundles_kept:sum"]
    assert f'outcome=~"{"|".join(WILL_NOT_PASS)}"' in kept


def test_prometheus_accepts_the_configuration_for_the_demo_and_the_one_of_make_watch(tmp_path: Path):
    ours = tmp_path / "prometheus.yml"
    ours.write_text(configuration("127.0.0.1:9464", interval_s=0.5, programs=["127.0.0.1:9465"]))
    for path in (RULES / "prometheus.yml", ours):
        done = promtool("check", "config", path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "2 rule files found" in done.stdout


def test_prometheus_finds_no_fault_with_the_names_on_the_metrics_page():
    done = promtool("check", "metrics", given=generate_latest(used_families()).decode())
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_alert_fires_for_a_finding_that_is_information():
    assert set(get_args(get_type_hints(Finding)["kind"])) >= INFORMATION
    assert not [name for name, rule in alerts().items() if any(kind in rule["expr"] for kind in INFORMATION)]


@pytest.mark.parametrize("name", alerts())
def test_every_alert_says_what_happened_and_has_a_runbook(name: str):
    rule = alerts()[name]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook", "runbook_url"}
    page = REPOSITORY / rule["annotations"]["runbook"]
    assert rule["annotations"]["runbook_url"] == f"http://127.0.0.1:3000/public/runbooks/{page.name}"
    text = page.read_text()
    assert text.startswith(f"# {name}\n")
    assert [line for line in text.splitlines() if line.startswith("## ")] == list(HEADINGS)
    assert f"({page.name})" in (RUNBOOKS / "README.md").read_text()


def test_no_runbook_is_left_over_and_their_links_lead_somewhere():
    pages = {path.name for path in RUNBOOKS.glob("*.md")} - {"README.md"}
    assert pages == {Path(rule["annotations"]["runbook"]).name for rule in alerts().values()}
    for path in RUNBOOKS.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
            assert (path.parent / link).exists(), f"{path.name}: {link}"
