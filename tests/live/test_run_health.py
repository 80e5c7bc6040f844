"""What an operator sees of a running controller: `/metrics`, `/healthz` and `/readyz`, also of one that hangs or starts late."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from streaming.controller.metrics import KNOWN_LABELS
from tests.support.controllers import misbehaving
from tests.support.loads import played
from tests.support.processes import Warm, ask, cold, members, samples
from tests.support.stage import Stage, replayed

pytestmark = pytest.mark.live


Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


def value(page: Page, name: str, **labels: str) -> float:
    """One sample; fails when there is none."""
    return page[name, frozenset(labels.items())]


def total(page: Page, name: str, **labels: str) -> float:
    """The sum of all samples with these labels."""
    return sum(
        number for (found, its), number in page.items() if found == name and its >= set(labels.items())
    )


def test_metrics_agree_with_what_was_published_and_an_idle_controller_is_ready(stage: Stage, warm: Warm):
    config = stage.settings()
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        url = run.url
        assert ask(f"{url}/healthz").status == 200
        first = samples(url)
        for reason in KNOWN_LABELS.rejected_reasons:
            assert value(first, "trimtab_rejected_total", reason=reason) == 0
        assert value(first, "trimtab_query_restarts_total") == 0
        assert total(first, "trimtab_build_info") == 1
        assert not any("east-1" in dict(labels).values() for _, labels in first)
        assert ask(f"{url}/readyz").status == 503, "no query yet"
        run.until(lambda: ask(f"{url}/readyz").status == 200, "readiness")

        stage.send(played(range(7)))
        stage.send_raw(b"east-1", b"not json")
        stage.flush()
        stage.wait_for(stage.topics.audit, 7, running=[run])
        summaries = stage.data(stage.topics.audit)
        stage.wait_for(stage.topics.dead_letter, 1, running=[run])
        run.until(lambda: total(samples(url), "trimtab_rejected_total") == 1, "the rejected in the metrics")
        run.until(lambda: total(samples(url), "trimtab_rounds_total") == 7, "the rounds in the metrics")
        page = samples(url)
        actions = stage.values(stage.topics.actions)
        assert len(actions) == 2
        cluster = {"cluster": "east-1"}
        assert value(page, "trimtab_actions_published_total", **cluster, kind="unload", dry_run="false") == 2
        assert value(page, "trimtab_actions_published_total", **cluster, kind="unload", dry_run="true") == 0
        assert value(page, "trimtab_rounds_total", **cluster, outcome="decided") == 7
        assert value(page, "trimtab_rounds_total", **cluster, outcome="no-quorum") == 0
        for name in ("examined", "candidates"):
            wanted: Counter[str] = Counter()
            for summary in summaries:
                for outcome, count in summary[name]["outcomes"].items():
                    wanted[outcome.partition(" ")[0]] += count
            for outcome, count in wanted.items():
                found = value(page, f"trimtab_{name}_total", **cluster, policy="avg-shedder", outcome=outcome)
                assert found == count, (name, outcome)
        report = "trimtab.pulsar.load-report.v1"
        assert value(page, "trimtab_events_total", **cluster, type=report, outcome="used") == 14
        assert value(page, "trimtab_events_total", **cluster, type="trimtab.tick.v1", outcome="used") == 7
        assert value(page, "trimtab_rejected_total", reason="not-json") == 1
        assert value(page, "trimtab_brokers", **cluster, state="reporting") == 2
        mean = value(page, "trimtab_usage_points", **cluster, resource="overall", stat="mean")
        assert mean == pytest.approx(summaries[-1]["usage"]["mean_points"])
        assert value(page, "trimtab_dry_run", **cluster) == 0
        assert value(page, "trimtab_batches_skipped_total") == 0
        assert value(page, "trimtab_decision_lag_seconds_count") == 7

        batches = value(page, "trimtab_batch_duration_seconds_count")
        looks = [ask(f"{url}/readyz").status for _ in range(200)]
        assert set(looks) == {200}
        assert value(samples(url), "trimtab_batch_duration_seconds_count") == batches, "idle costs no batches"
        assert run.terminate() == 0
        assert ask(f"{url}/healthz").status == 0


@pytest.mark.slow
def test_a_frozen_jvm_and_a_batch_that_stands_still_show_in_healthz_until_they_go_on(stage: Stage):
    config, flag = stage.settings(), stage.directory / "flags"
    stage.send(played([0]))
    with misbehaving(stage, config, "hangs") as run:
        stage.wait_for(stage.topics.audit, 1, running=[run])

        def health(status: int, message: str = "") -> bool:
            answer = ask(f"{run.url}/healthz")
            return answer.status == status and message in answer.body

        run.until(lambda: health(200), "the first batch to be over")
        flag.touch()
        stage.send(played([1]))
        run.until(lambda: health(503, '"batch"'), "the batch to be missed")
        flag.unlink()
        stage.wait_for(stage.topics.audit, 2, running=[run])
        run.until(lambda: health(200), "life again")

        java = next(each.pid for each in members(run.process.pid) if each.name == "java")
        os.kill(java, signal.SIGSTOP)
        run.until(lambda: health(503, '"driver"'), "the JVM to be missed")
        os.kill(java, signal.SIGCONT)
        run.until(lambda: health(200), "life again")
        assert "not alive: driver" in run.output
        assert run.terminate() == 0


DELAY = """
import pathlib, sys, time

flag = pathlib.Path({flag!r})
if any("transform_with_state_driver_worker" in each for each in sys.orig_argv) and not flag.exists():
    flag.touch()
    time.sleep(12)
"""


@pytest.mark.slow
def test_a_python_that_starts_too_late_is_named(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flag = tmp_path / "was-late"
    (tmp_path / "sitecustomize.py").write_text(DELAY.format(flag=str(flag)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    config = stage.settings()
    wanted = replayed(config, played(range(3)))
    stage.send(played(range(3)))
    with cold(config, tmp_path / "run.log") as run:
        stage.wait_for_outputs(wanted, running=[run])
        assert run.terminate() == 0
    assert flag.exists()
    assert "this machine was too busy to start a Python process" in run.output
    assert "the query failed and is restarted in 1 s" in run.output
    assert stage.published() == wanted
