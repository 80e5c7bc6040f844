"""A real Prometheus beside a real controller: every query of the dashboards and rules finds data."""

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deploy.local.processes import free_ports
from deploy.local.prometheus import Prometheus
from tests.streaming.events import result
from tests.support.loads import LENGTH_S, START_S, played
from tests.support.processes import Running, Warm, until
from tests.support.programs import need
from tests.support.queries import (
    KAFKA_ONLY,
    OF_PROGRAMS,
    Asked,
    alerts,
    asked_by_dashboards,
    asked_by_rules,
    parts,
    rules,
)
from tests.support.stage import Stage

pytestmark = pytest.mark.live

SCRAPE_S = 0.5
ANSWERS_S = 60.0
"""A few scrapes and evaluations on a machine that others use too."""
INTERVAL = "2m"
"""Longer than the test has looked, so that what happened at its start is still in every rate."""
EMPTY = {
    "trimtab / Cluster: annotation Splits": "no split was published, and a mark for nothing would mislead",
    "trimtab / Cluster: Bundles that stand out": "none does here, and bars show what was counted only",
    **dict.fromkeys(KAFKA_ONLY, "about Kafka clusters only, and here is none"),
    **dict.fromkeys(OF_PROGRAMS, "about executors and collectors, and here is none"),
}
"""Queries that find no data on a healthy system, and why they should not."""


def answer(prometheus: Prometheus, path: str, **query: str) -> Any:
    """`data` of an answer of its API; raises what it answers to a bad question."""
    url = f"{prometheus.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as answered:  # noqa: S310  http on loopback
        return json.load(answered)["data"]


def values(prometheus: Prometheus, expr: str) -> list[float]:
    """The value of each series an expression has now."""
    return [float(series["value"][1]) for series in answer(prometheus, "query", query=expr)["result"]]


def is_answered(prometheus: Prometheus, asked: Asked) -> bool:
    """Whether there is at least one number."""
    return any(map(math.isfinite, values(prometheus, asked.filled(interval=INTERVAL))))


def asked_for_by_rules() -> Iterator[Asked]:
    """Every selector of every rule: an alert has to be silent here, but the data that it looks at has to be there."""
    for asked in asked_by_rules():
        for selector in parts(asked.expr).selectors:
            matchers = ",".join(
                f'{found.name}{_OPERATORS[str(found.op)]}"{found.value}"'
                for found in selector.matchers.matchers
            )
            yield Asked(asked.where, f"{selector.name}{{{matchers}}}")


_OPERATORS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}


def test_every_query_of_panels_and_rules_finds_data_in_a_run_that_acts(
    stage: Stage, warm: Warm, tmp_path: Path
):
    need("prometheus")
    with warm.start("run", "--config", str(stage.settings()), "--from", "earliest") as run:
        target = run.url.removeprefix("http://")
        directory = tmp_path / "prometheus"
        with Prometheus(directory, target=target, port=free_ports(1)[0], interval_s=SCRAPE_S) as prometheus:
            stage.send(played(range(2)))
            stage.wait_for(stage.topics.audit, 2, running=[run])
            run.until(
                lambda: values(prometheus, "sum(trimtab_rounds_total)") == [2.0],
                "the first rounds to be scraped, so that what follows is an increase",
            )
            stage.send_raw(b"east-1", b"not json")
            stage.send(played(range(2, 8)))
            failing = json.loads(stage.wait_for(stage.topics.actions, 1, running=[run])[0])["id"]
            stage.send([result(failing, "failed", time_s=START_S + 8 * LENGTH_S)])
            stage.send(played(range(8, 9)))  # the bundle is unloaded again
            again = json.loads(stage.wait_for(stage.topics.actions, 2, running=[run])[1])["id"]
            stage.send([result(again, "succeeded", time_s=START_S + 9 * LENGTH_S)])
            stage.send(played(range(9, 14)))  # rounds that show no effect, after which the action is judged
            stage.wait_for(stage.topics.audit, 14, running=[run])
            _, _, third, last = map(json.loads, stage.wait_for(stage.topics.actions, 4, running=[run]))
            time_s = START_S + 14 * LENGTH_S
            stage.send(
                [result(third["id"], "failed", time_s=time_s), result(last["id"], "succeeded", time_s=time_s)]
            )
            stage.send(
                played(range(14, 20), moved=[last["subject"]])
            )  # it helps, and what it promised is checked
            stage.wait_for(stage.topics.audit, 20, running=[run])

            questions = [*asked_by_dashboards(), *asked_for_by_rules()]
            missing = wait_for_answers(prometheus, questions, running=run)
            assert sorted({asked.where for asked in missing} ^ EMPTY.keys()) == []
            groups = answer(prometheus, "rules")["groups"]
            evaluated = [rule for group in groups for rule in group["rules"]]
            assert len(evaluated) == len(rules())
            assert [rule["name"] for rule in evaluated if rule["health"] != "ok"] == []
            assert {rule["name"] for rule in evaluated if rule["type"] == "alerting"} == alerts().keys()
        assert run.terminate() == 0


def wait_for_answers(prometheus: Prometheus, questions: list[Asked], *, running: Running) -> list[Asked]:
    """Wait until only queries of ``EMPTY`` find no data; returns those that find none, which after ``ANSWERS_S`` may be more."""
    empty = questions

    def is_done() -> bool:
        nonlocal empty
        empty = [asked for asked in empty if not is_answered(prometheus, asked)]
        return {asked.where for asked in empty} <= EMPTY.keys()

    with suppress(AssertionError):  # the caller's assertion names what is missing
        until(is_done, what="answers", running=[running], timeout_s=ANSWERS_S)
    return empty
