"""What `trimtab report` says about the summaries of several days, compared with sums made by hand."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from deploy.screenshots import browser, shown_text
from state.outputs import (
    BrokerLoad,
    JudgedRow,
    PromiseRow,
    PromisesSummary,
    RoundSummary,
    Section,
    UsageSummary,
    canonical,
)
from state.outputs.types import ROUND_TYPE
from streaming.operators.action_events import UnreadableEvent
from streaming.operators.report import ClusterReport, Report
from streaming.operators.report_page import plot, render_page
from streaming.operators.report_text import report_text
from tests.streaming.summaries import ROUND, section


def record(summary: RoundSummary, *, source: str = "/trimtab/trimtab") -> bytes:
    """The summary as a record of the audit topic."""
    return b'{"id":"x","source":"%s","type":"%s","cluster":"%s","data":%s}' % (
        source.encode(),
        ROUND_TYPE.encode(),
        summary.cluster.encode(),
        canonical(summary),
    )


def loads(*points: float, group: str | None = None) -> list[BrokerLoad]:
    """A broker for each usage."""
    return [
        BrokerLoad(
            broker=f"b{row}", usage_points=each, resources={}, messages_per_s=0.0, bytes_per_s=0.0, bundles_count=1,
            excluded=False, group=group,
        )
        for row, each in enumerate(points)
    ]  # fmt: skip


def a_round(minute: int, *points: float, **fields: object) -> RoundSummary:
    """A minute in which brokers have these usages."""
    usage = UsageSummary(mean_points=sum(points) / len(points), max_points=max(points), stdev_points=0.0)
    return msgspec.structs.replace(
        ROUND,
        start=f"2026-11-21T10:{minute:02}:00.000Z",
        end=f"2026-11-21T10:{minute + 1:02}:00.000Z",
        usage=usage,
        brokers=loads(*points),
        brokers_reporting_count=len(points),
        **fields,
    )


def judged(outcome: str) -> JudgedRow:
    """An unload from b0 to b1."""
    return JudgedRow(
        id=f"id-{outcome}", kind="unload", bundle="t/n/0x0_0x1", outcome=outcome, brokers={"source": "b0", "destination": "b1"},
        before={}, expected={}, seen={},
    )  # fmt: skip


def promise(before: float, expected: float, seen: float, outcome: str) -> PromiseRow:
    """A promise about the source's usage, in points; the destination is always at 10."""
    sides = ({"source": each, "destination": 10.0} for each in (before, expected, seen))
    first, second, third = sides
    return PromiseRow(
        id="p", bundle="t/n/0x0_0x1", brokers={"source": "b0"}, before_points=first, expected_points=second, seen_points=third,
        outcome=outcome,
    )  # fmt: skip


def promises(*rows: PromiseRow) -> PromisesSummary:
    """The promises of one round."""
    outcomes = {each.outcome: 1 for each in rows}
    return PromisesSummary(
        kept_count=9, failed_count=9, expected_gain_points=0.0, gain_points=0.0, error_points=0.0,
        checked=Section(count=len(rows), outcomes=outcomes, heaviest=list(rows)),
    )  # fmt: skip


def reported(summaries: Sequence[RoundSummary]) -> ClusterReport:
    """The report on the only cluster of these summaries."""
    report = Report(unbalanced_points=15.0)
    for each in summaries:
        report.take(record(each), 1)
    return report.clusters()[0]


def test_the_hours_in_which_brokers_are_too_far_apart_are_added_up() -> None:
    tree = reported([a_round(0, 50, 20), a_round(1, 50, 36), a_round(2, 50, 35), a_round(3, 80, 20)]).tree()
    assert tree["observed_hours"] == round(4 / 60, 3)
    assert tree["unbalanced_hours"] == round(2 / 60, 3)


def test_brokers_of_different_groups_are_not_compared() -> None:
    both = [*loads(80, 75), *loads(20, 25, group="east")]
    summary = msgspec.structs.replace(a_round(0, 80, 75, 20, 25), brokers=both)
    assert reported([summary]).unbalanced_ms == 0


def test_where_a_summary_does_not_name_every_broker_the_hottest_is_compared_with_the_mean() -> None:
    summary = msgspec.structs.replace(
        a_round(0, 50, 36, 30), brokers=loads(50, 36), brokers_reporting_count=3
    )
    assert reported([summary]).unbalanced_ms == 0, "50 is 11 above the mean"
    hotter = msgspec.structs.replace(a_round(0, 80, 36, 30), brokers=loads(80, 36), brokers_reporting_count=3)
    assert reported([hotter]).unbalanced_ms == 60_000


def test_what_was_held_back_is_counted_by_its_reason_and_what_acted_is_not() -> None:
    found = reported([a_round(0, 50, 20), a_round(1, 50, 20)])
    assert found.tree()["held_back"] == {"cooldown": 10, "one-topic": 6}
    assert found.actions_count == 6


def test_actions_are_counted_as_they_were_judged_and_those_without_effect_are_named() -> None:
    rows = [judged("good"), judged("ineffective")]
    section_ = Section(count=2, outcomes={"good": 1, "ineffective": 1}, heaviest=rows)
    found = reported([a_round(0, 50, 20, judged=section_), a_round(1, 50, 20, judged=section_)])
    assert found.judged == {("unload", "good"): 2, ("unload", "ineffective"): 2}
    assert [each.id for each in found.without_effect] == ["id-ineffective"] * 2
    assert "unload t/n/0x0_0x1  b0 to b1  ineffective" in report_text(found)


def test_the_gain_is_the_mean_over_all_settled_unloads_not_over_rounds() -> None:
    first = promises(promise(60, 40, 45, "kept"), promise(60, 50, 60, "failed"))
    found = reported(
        [
            a_round(0, 50, 20, promises=first),
            a_round(1, 50, 20, promises=promises(promise(50, 30, 30, "kept"))),
        ]
    )
    tree = found.tree()["promises"]
    # expected 20, 10 and 20; seen 15, 0 and 20
    assert tree == {
        "kept_count": 2, "failed_count": 1, "expected_gain_points": 16.67, "gain_points": 11.67
    }  # fmt: skip


def test_a_round_of_a_controller_that_was_replaced_does_not_count() -> None:
    report = Report(unbalanced_points=15.0)
    report.take(record(a_round(0, 50, 20)), 2)
    report.take(record(a_round(1, 50, 20)), 1)
    assert report.clusters()[0].rounds == {"decided": 1}


def test_each_cluster_is_reported_by_itself() -> None:
    report = Report(unbalanced_points=15.0)
    for name in ("west", "east"):
        report.take(record(msgspec.structs.replace(a_round(0, 50, 20), cluster=name)), 1)
    assert [each.cluster for each in report.clusters()] == ["east", "west"]


def test_a_summary_that_cannot_be_read_is_refused_by_name() -> None:
    with pytest.raises(UnreadableEvent, match="it may be from another version"):
        Report(unbalanced_points=15.0).take(b'{"id":"x"}', 1)


def test_rounds_before_anybody_acted_say_that_nothing_is_known_yet() -> None:
    text = report_text(
        reported([msgspec.structs.replace(ROUND, usage=None, candidates=section(), splits=section())])
    )
    assert "not known: no unload has settled" in text
    assert "not known: no round says how loaded brokers are" in text


@pytest.mark.skipif(browser() is None, reason="no Chromium or Chrome is installed")
def test_the_page_shows_a_plot_for_each_cluster_in_a_browser(tmp_path: Path) -> None:
    report = Report(unbalanced_points=15.0)
    for name in ("west", "east"):
        for minute in range(5):
            summary = msgspec.structs.replace(a_round(minute, 50 + minute, 20), cluster=name)
            report.take(record(summary), 1)
    page = tmp_path / "report.html"
    page.write_text(render_page(report.clusters(), "trimtab.audit reaches back to 2026-11-21"))
    text = shown_text(page)
    assert text.count('class="plot-container') == 2
    assert "reaches back to 2026-11-21" in text


def test_the_page_asks_no_network() -> None:
    page = render_page([reported([a_round(0, 50, 20)])], "")
    assert " src=" not in page[: page.index("<script>")] + page[page.index("</script>") :]


def test_a_month_is_drawn_with_the_worst_of_each_span() -> None:
    report = Report(unbalanced_points=15.0)
    for number in range(5000):
        report.take(record(a_round(0, 99 if number == 4321 else 40, 20)), 1)
    hottest = plot(report.clusters()[0].moments).data[0].y
    assert len(hottest) == 1667
    assert max(hottest) == 99
