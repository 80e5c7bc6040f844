"""``trimtab throttle plan``: what it prints, in which shape, with which exit code, and how it refuses."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from streaming.cli import main
from tests.policies.throttle.moving import GB, MB
from tests.streaming.throttle_plans import GOOD, WORKED, answer, plan


@pytest.mark.parametrize("rate", [19_200_000, 21_600_000, 26_000_000])
def test_a_rate_that_never_finishes_is_exit_code_3_with_the_plan_on_stdout(rate: int):
    found = answer(WORKED, "--rate", str(rate), exit_code=3)
    for name in ("uniform", "per_broker"):
        outcome = found[name]
        assert (outcome["feasible"], outcome["total_s"], outcome["bottleneck"]) == (False, None, None)
        assert outcome["violations"] == [
            {
                "broker": 101,
                "role": "leader",
                "rate_bytes_per_s": rate,
                "min_bytes_per_s": 26 * MB,
                "deficit_bytes_per_s": 26 * MB - rate,
                "partitions": ["t1-0", "t0-0"],
            }
        ]
        assert list(outcome["duration_s"]) == ["leader:102", "leader:103", "follower:103", "follower:104"]


@pytest.mark.parametrize(
    ("option", "megabytes"),
    [
        (("--deadline", "3600"), [37.666667, 37.666667, 22.666667, 5.666667, 7.333334, 32.666667]),
        (("--cap", "28000000"), [28, 28, 19.2, 4.8, 4.8, 19.2]),
        (("--headroom", "0.5"), [39, 39, 24, 6, 6, 24]),
        (("--floor", "20000000"), [31.2, 31.2, 20, 20, 20, 20]),
        (("--rate", "50000000"), [50] * 6),
    ],
)
def test_a_deadline_a_cap_a_headroom_a_floor_and_a_rate_each_change_the_rates(
    option: tuple[str, str], megabytes: list[float]
):
    found: Any = answer(WORKED, *option)
    own = found["per_broker"]
    rates = [
        found["uniform"]["rate_bytes_per_s"],
        *own["leader_rate_bytes_per_s"].values(),
        *own["follower_rate_bytes_per_s"].values(),
    ]
    assert rates == [round(each * MB) for each in megabytes]


def test_a_cap_that_misses_the_deadline_is_exit_code_3_and_told_with_the_remedy():
    found: Any = answer(WORKED, "--deadline", "3600", "--cap", "30000000", exit_code=3)
    late = "takes 2 h 55 min and misses the deadline of 1 h 00 min: give a higher --cap or a later --deadline"
    assert found["warnings"][-2:] == [f"uniform {late}", f"per broker {late}"]
    assert [found[name]["deadline_met"] for name in ("uniform", "per_broker")] == [False, False]


def test_a_deadline_is_met_or_not_only_where_there_is_one_and_the_end_is_known():
    def met(rows: list[dict[str, object]], *options: str, exit_code: int = 0) -> object:
        return cast("Any", answer(rows, *options, exit_code=exit_code))["uniform"]["deadline_met"]

    assert met(WORKED) is None
    assert met([{**GOOD, "log_size_bytes": None}], "--deadline", "3600") is None
    assert [met(WORKED, "--deadline", deadline) for deadline in ("0.1", "1e400")] == [True, True]
    assert met(WORKED, "--deadline", "3600", "--cap", "20000000", exit_code=3) is False


@pytest.mark.parametrize("deadline", ["1800", "3600", "20000.1"])
@pytest.mark.parametrize("count", ["1", "2", "4"])
def test_batches_keep_the_deadline_together_at_the_lowest_rates_that_do(count: str, deadline: str):
    found: Any = answer(WORKED, "--deadline", deadline, "--batches", count)["batches"]
    assert found["deadline_met"] is True
    assert found["total_s"] <= float(deadline)
    unhurried = cast("Any", answer(WORKED, "--batches", count))["batches"]["total_s"]
    assert found["total_s"] == pytest.approx(min(float(deadline), unhurried), rel=1e-6)


def test_a_table_says_that_batches_keep_the_deadline_together():
    shown = plan(WORKED, "--deadline", "3600", "--batches", "2", "--format", "table")
    assert (shown.exit_code, "misses" in shown.stdout) == (0, False)
    assert "one batch after the other takes 1 h 00 min, within the deadline; " in shown.stdout


def test_batches_that_keep_a_deadline_that_all_at_once_would_miss_are_exit_code_0():
    found: Any = answer(WORKED, "--deadline", "5000", "--cap", "30000000", "--batches", "2")
    assert (found["uniform"]["deadline_met"], found["batches"]["deadline_met"]) == (False, True)
    assert not any("deadline" in each for each in found["warnings"])


def test_batches_that_miss_the_deadline_run_at_the_cap_and_are_exit_code_3():
    found: Any = answer(WORKED, "--deadline", "3600", "--cap", "30000000", "--batches", "2", exit_code=3)
    batches = found["batches"]
    assert batches["deadline_met"] is False
    assert batches["total_s"] == batches["total_at_cap_s"] > 3600
    assert found["warnings"][-1] == (
        "one batch after the other takes 1 h 10 min and misses the deadline of 1 h 00 min: "
        "give a higher --cap or a later --deadline"
    )


def test_batches_of_an_unknown_size_do_not_say_whether_they_keep_the_deadline():
    rows = [{**GOOD, "log_size_bytes": None}, {**GOOD, "partition": 1}]
    found: Any = answer(rows, "--deadline", "3600", "--batches", "2")
    assert (found["batches"]["total_s"], found["batches"]["deadline_met"]) == (None, None)
    assert any("unknown whether all batches together keep the deadline" in each for each in found["warnings"])


def test_decimal_headroom_is_exact():
    found = answer([{**GOOD, "write_bytes_per_s": 3 * MB}], "--headroom", "0.2", "--floor", "1")
    assert found["per_broker"]["follower_rate_bytes_per_s"] == {"3": 3_600_000}


def test_nothing_depends_on_the_order_of_the_input():
    turned = [
        {
            **one,
            "current_replicas": one["current_replicas"][::-1],
            "target_replicas": one["target_replicas"][::-1],
        }
        for one in reversed(WORKED)
    ]
    options = ["--cap", "22000000", "--batches", "auto"]
    assert plan(turned, *options).stdout == plan(WORKED, *options).stdout


def test_batches_are_printed_with_their_price():
    found = answer(WORKED, "--cap", "22000000", "--batches", "auto")["batches"]
    assert [batch["partitions"] for batch in found["batches"]] == [["t0-1", "t0-2", "t1-0"], ["t0-0"]]
    assert [batch["min_bytes_per_s"] for batch in found["batches"]] == [18 * MB, 8 * MB]
    assert found["total_s"] == 60 * GB / 5_600_000 + 12 * GB / 1_600_000
    assert found["all_at_once_total_s"] is None
    assert found["explanation"] == (
        "No batch has a higher minimum than all at once, and the brokers outside a batch wait: one batch after the other "
        "takes 5 h 03 min (3 h 00 min with each at the cap); all at once never ends at 22.0 MB/s"
    )
    two = answer(WORKED, "--batches", "2")["batches"]
    assert len(two["batches"]) == 2


def test_at_one_rate_batches_are_not_said_to_take_longer_where_they_are_quicker():
    """A batch leaves more of the rate to old data, because less of it goes to what producers write."""
    found: Any = answer(WORKED, "--rate", "31200000", "--batches", "2")["batches"]
    assert found["total_s"] < found["all_at_once_total_s"]
    assert found["explanation"].endswith(
        "one batch after the other takes 1 h 04 min; all at once takes 2 h 14 min at 31.2 MB/s"
    )


def test_batches_of_which_one_never_ends_are_exit_code_3():
    """Broker 101 has to send 26 MB/s, and even a partition alone needs more than the cap."""
    result = plan(WORKED, "--cap", "7000000", "--batches", "auto", "--format", "table")
    assert result.exit_code == 3
    assert "uniform: INFEASIBLE, it would never end" in result.stdout
    assert "batch 1: minimum 18.0 MB/s, rate 7.0 MB/s, never ends: " in result.stdout
    assert "\none batch after the other never ends; all at once never ends at 7.0 MB/s\n" in result.stdout


def test_batches_of_unknown_size_take_an_unknown_time():
    shown = plan([{**GOOD, "log_size_bytes": None}], "--batches", "1", "--format", "table").stdout
    assert "rate 9.6 MB/s, takes ?: t-0\none batch after the other takes ?; " in shown


def test_what_only_reorders_or_removes_needs_no_throttle():
    found = answer([{**GOOD, "target_replicas": [2, 1]}, {**GOOD, "partition": 1, "target_replicas": [2]}])
    assert found["partitions_moving"] == []
    assert found["partitions_without_data_movement"] == ["t-0", "t-1"]
    assert found["leader_throttled_replicas"] == {}
    assert found["warnings"] == ["no partition gains a replica: nothing is copied, so no throttle is needed"]
    some = answer([GOOD, {**GOOD, "partition": 1, "target_replicas": [2]}])
    assert "no throttle is needed where nothing is copied: t-1" in some["warnings"]


def test_an_empty_reassignment_moves_nothing():
    assert answer([])["partitions_moving"] == []


def test_no_traffic_is_planned_at_the_floor():
    found = answer([{**GOOD, "write_bytes_per_s": 0, "log_size_bytes": 100 * 2**20}])["uniform"]
    assert (found["min_bytes_per_s"], found["rate_bytes_per_s"], found["total_s"]) == (0, 2**20, 100.0)


def test_what_is_unknown_has_no_number_and_is_named():
    found = answer([{**GOOD, "log_size_bytes": None}, {**GOOD, "partition": 1, "write_bytes_per_s": None}])
    assert found["unknown"] == [
        {"partition": "t-0", "lacks": ["log_size_bytes"]},
        {"partition": "t-1", "lacks": ["write_bytes_per_s"]},
    ]
    assert found["leader_bytes_to_send"] == {"1": None}
    assert found["leader_min_bytes_per_s"] == {"1": None}
    uniform = found["uniform"]
    assert [uniform[key] for key in ("min_bytes_per_s", "feasible", "total_s", "bottleneck")] == [None] * 4
    assert uniform["rate_bytes_per_s"] == 9_600_000
    warning = "some values are unknown, so figures that depend on them are missing and rates may be too low: t-0 (log_size_bytes), t-1 (write_bytes_per_s). Give them in"
    assert any(each.startswith(warning) for each in found["warnings"])


NO_RATE = {**GOOD, "write_bytes_per_s": None}
NO_SIZE = {**GOOD, "partition": 1, "log_size_bytes": None}


@pytest.mark.parametrize("rows", [[NO_RATE], [NO_RATE, NO_SIZE]], ids=["a rate", "a rate and a size"])
def test_a_table_says_what_is_missing_of_which_partition_and_how_to_give_it(rows: list[dict[str, object]]):
    shown = plan([*rows, {**GOOD, "partition": 2}], "--format", "table")
    assert shown.exit_code == 0
    for title in ("uniform", "per broker"):
        assert f"{title}: unknown whether it ends, because the write rate of t-0 is unknown\n" in shown.stdout
    assert "or let them be read from the cluster with --bootstrap or --cluster\n" in shown.stdout
    assert f"≥{8 * len(rows)}.0 MB/s" in shown.stdout, "the minimum, as far as it is known"


def test_a_deadline_is_planned_for_what_has_a_size_and_not_said_to_be_kept():
    found: Any = answer([GOOD, NO_SIZE], "--deadline", "100")
    for each in (found["uniform"], found["per_broker"]):
        assert [each[key] for key in ("feasible", "total_s", "deadline_met")] == [True, None, None]
    assert found["uniform"]["rate_bytes_per_s"] == 16 * MB + GB // 100
    (warning,) = [each for each in found["warnings"] if "t-1 (log_size_bytes)" in each]
    assert "rates may be too low" in warning
    shown = plan([GOOD, NO_SIZE], "--deadline", "100", "--format", "table").stdout
    assert "uniform: it ends, but unknown sizes leave open when\n" in shown


def test_a_deadline_that_the_known_sizes_alone_miss_is_exit_code_3():
    found: Any = answer([GOOD, NO_SIZE], "--deadline", "100", "--cap", "20000000", exit_code=3)
    assert (found["uniform"]["total_s"], found["uniform"]["deadline_met"]) == (None, False)
    late = "uniform takes at least 4 min 10 s and misses the deadline of 1 min 40 s: give a higher --cap or"
    assert any(each.startswith(late) for each in found["warnings"])


def test_a_table_of_unknown_sizes_says_that_the_copy_ends_and_not_when():
    shown = plan([GOOD, NO_SIZE], "--format", "table")
    assert "uniform: it ends, but unknown sizes leave open when\n" in shown.stdout
    assert "done in" not in shown.stdout


def test_a_source_that_leads_nothing_now_has_its_minimum_after_a_failover_too():
    rows = [
        {
            **GOOD,
            "current_replicas": [1, 3],
            "target_replicas": [1, 4],
            "leader": 1,
            "write_bytes_per_s": 4_000_000,
        },
        {
            **GOOD,
            "partition": 1,
            "current_replicas": [2, 3],
            "target_replicas": [2, 5],
            "leader": 2,
            "write_bytes_per_s": 4_000_000,
        },
    ]
    # 3 would feed the other old replica and the new one of both: 4 x 2 x 2
    assert answer(rows)["failover_safe_leader_min_bytes_per_s"] == {
        "1": 8_000_000,
        "2": 8_000_000,
        "3": 16_000_000,
    }
    assert (
        "leader:3                         leads none now   16.0 MB/s\n"
        in plan(rows, "--format", "table").stdout
    )


def test_a_table_in_which_nothing_is_copied_says_so_and_foretells_no_end():
    assert plan([], "--format", "table").stdout == (
        "nothing is copied\nwarning: the request names no partition\n"
    )
    still = plan([{**GOOD, "target_replicas": [2]}], "--format", "table").stdout
    assert still.startswith("nothing is copied, 1 without data movement\nwarning: no partition gains a")


def test_lists_of_topics_with_long_names_stay_in_columns():
    rows = [{**GOOD, "topic": topic} for topic in ("__transaction_state", "t")]
    shown = plan(rows, "--format", "table").stdout
    assert "\n  __transaction_state 0:1,0:2\n  t                   0:1,0:2\n" in shown


def test_a_size_alone_that_is_unknown_leaves_the_rate_known():
    uniform = answer([{**GOOD, "log_size_bytes": None}])["uniform"]
    assert (uniform["rate_bytes_per_s"], uniform["feasible"], uniform["total_s"]) == (9_600_000, True, None)


def test_fractions_of_a_byte_are_rounded_up():
    found = answer([{**GOOD, "write_bytes_per_s": 1000.01}])
    assert found["follower_min_bytes_per_s"] == {"3": 1001}


def test_numbers_beyond_64_bits_are_printed_in_full():
    rows = [{**GOOD, "partition": number, "log_size_bytes": 2**63 - 1} for number in range(3)]
    assert answer(rows)["leader_bytes_to_send"] == {"1": 3 * (2**63 - 1)}


KAFKAS = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3],"log_dirs":["any","any"]}]}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Error: standard input: not JSON: "),
        (b"\xff", "not JSON: "),
        ("[]", "bad request: Expected `object`, got `array`; `trimtab throttle plan --help` shows a request"),
        (" ", "Error: standard input: it is empty: `trimtab throttle plan --help` shows a request"),
        ("{}", "bad request: Object missing required field `partitions`"),
        (
            '{"a": 1}',
            "bad request: Object contains unknown field `a`; a request has partitions, version; `trimtab",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": "0"}]}',
            "t-0: partition is '0': Expected `int`, got `str`",
        ),
        ('{"partitions": [{"topic": "t"}]}', "partitions[0]: Object missing required field `partition`"),
        ('{"partitions": [{}, 5]}', "partitions[1]: Expected `object`, got `int`"),
        ('{"version": 2, "partitions": []}', "bad request: version is 2: Expected `int` <= 1; "),
        (
            KAFKAS,
            "t-0: current_replicas and leader missing; add what is missing, or let it be read from the cluster",
        ),
        ([GOOD, GOOD], "t-0: given twice"),
        ([{**GOOD, "current_replicas": []}], "t-0: current_replicas is empty"),
        ([{**GOOD, "write_bytes_per_s": -0.5}], "t-0: write_bytes_per_s is -1; expected 0 or more"),
        ([{**GOOD, "partition": -1}], "t--1: partition is -1"),
    ],
)
def test_bad_input_is_exit_code_2_with_a_message_alone(
    text: str | bytes | list[dict[str, object]], message: str
):
    result = plan(text)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert message in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rate", "0"], "0: expected 1 byte/s or more"),
        (["--rate", "1", "--deadline", "1"], "give one of them"),
        (["--rate", "5", "--cap", "4"], "--rate 5 is above --cap 4"),
        (["--rate", "1e6"], "'1e6': expected bytes/s in digits alone, such as 19200000 for 19.2 MB/s"),
        (
            ["--cap", "19.2MB/s"],
            "'19.2MB/s': expected bytes/s in digits alone, such as 19200000 for 19.2 MB/s",
        ),
        (["--cap", "1000000"], "--cap 1000000 is below --floor 1048576"),
        (["--cap", "20"], "Both are bytes/s, such as 19200000 for 19.2 MB/s"),
        (["--deadline", "0"], "0 is not above 0"),
        (["--headroom", "-0.1"], "-0.1 is not 0 or more"),
        (["--headroom", "nan"], "'nan' is no number"),
        (["--floor", "0"], "0: expected 1 byte/s or more"),
        (["--batches", "0"], "'0' is neither auto nor a whole number from 1"),
        (["--batches", "auto"], "without a cap"),
        (["--batches", "2"], "1 moving partition cannot go in 2 batches; expected a single one"),
        (["--apply"], "--apply needs --bootstrap or --cluster"),
        (["--replace-rates"], "there is no --apply: nothing would be set"),
        (["--plan", "per-broker"], "there is no --apply: nothing would be set"),
        (["--bootstrap", "a:1", "--cluster", "east-1"], "--bootstrap and --cluster both say where to look"),
        (["--bootstrap", "nonsense"], "--bootstrap: bootstrap is 'nonsense'; expected host:port"),
        (["--config", "trimtab.toml"], "--config is read for --cluster only"),
        (
            ["--cluster", "nowhere"],
            'there is no [targets."nowhere".kafka] in the settings (they name no Kafka cluster): add it with bootstrap',
        ),
        (["--interval", "4"], "4.0 is not in the range"),
    ],
)
def test_options_that_make_no_sense_are_exit_code_2(options: list[str], message: str):
    result = plan([GOOD], *options)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert message in result.stderr


def test_text_names_the_role_that_never_ends_and_the_partitions_that_need_most(tmp_path: Path):
    file = tmp_path / "moves.json"
    file.write_text(json.dumps({"partitions": WORKED}))
    result = CliRunner().invoke(
        main, ["throttle", "plan", "--input", str(file), "--format", "table", "--rate", "21600000"]
    )
    assert result.exit_code == 3
    assert "uniform: INFEASIBLE, it would never end" in result.stdout
    assert (
        "leader:101: 21.6 MB/s is not above its minimum of 26.0 MB/s, it must rise by more than 4.4 MB/s "
        "(t1-0 needs 18.0 MB/s, t0-0 needs 8.0 MB/s)\n" in result.stdout
    )


def test_a_rate_that_is_the_minimum_must_be_above_it():
    shown = plan(WORKED, "--rate", "26000000", "--format", "table").stdout
    assert "  leader:101: 26.0 MB/s is its minimum, and a rate must be above that (t1-0 needs" in shown


@pytest.mark.parametrize(
    ("count", "head", "warning"),
    [
        (1, "1 partition is copied, 0 without data movement;", "1 copy is counted with the whole log:"),
        (
            2,
            "2 partitions are copied, 0 without data movement;",
            "2 copies are counted with the whole log:",
        ),
    ],
)
def test_a_table_counts_in_singular_and_plural(count: int, head: str, warning: str):
    rows = [{**GOOD, "partition": number} for number in range(count)]
    command = ["throttle", "plan", "--input", "-", "--format", "table"]
    shown = CliRunner().invoke(main, command, input=json.dumps({"partitions": rows})).stdout
    assert shown.startswith(head)
    assert f"warning: {warning}" in shown
