"""``trimtab throttle plan``: what it prints, in which shape, with which exit code, and how it refuses."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streaming.cli import main
from tests.policies.throttle.moving import GB, MB, WORKED_EXAMPLE, Partition


def row(one: Partition) -> dict[str, object]:
    """One partition as the command reads it."""
    return {
        "topic": one.topic,
        "partition": one.number,
        "current_replicas": list(one.replicas),
        "in_progress_adding_replicas": list(one.adding),
        "target_replicas": list(one.target),
        "leader": one.replicas[0] if one.leader is None else one.leader,
        "write_bytes_per_s": one.writes,
        "log_size_bytes": one.size,
    }


WORKED = [row(one) for one in WORKED_EXAMPLE]
GOOD = row(Partition("t-0", [1, 2], [2, 3], 4 * MB, GB))


def plan(given: Sequence[Mapping[str, object]] | str | bytes, *options: str) -> Result:
    """Run the command on partitions, or on a text as it is."""
    text = given if isinstance(given, (str, bytes)) else json.dumps({"partitions": given})
    return CliRunner().invoke(main, ["throttle", "plan", "--input", "-", *options], input=text)


def answer(given: Sequence[Mapping[str, object]], *options: str, exit_code: int = 0) -> dict[str, object]:
    result = plan(given, *options)
    assert (result.exit_code, result.stderr) == (exit_code, ""), result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_the_worked_example_is_answered_number_by_number() -> None:
    assert answer(WORKED) == {
        "leader_throttled_replicas": {"t0": "0:101,0:102,1:102,1:103,2:101,2:103", "t1": "0:101,0:102,0:103"},
        "follower_throttled_replicas": {"t0": "0:103,1:104,2:104", "t1": "0:104"},
        "partitions_moving": ["t0-0", "t0-1", "t0-2", "t1-0"],
        "partitions_without_data_movement": [],
        "leader_bytes_to_send": {"101": 42 * GB, "102": 24 * GB, "103": 6 * GB},
        "follower_bytes_to_receive": {"103": 12 * GB, "104": 60 * GB},
        "leader_min_bytes_per_s": {"101": 26 * MB, "102": 16 * MB, "103": 4 * MB},
        "follower_min_bytes_per_s": {"103": 4 * MB, "104": 16 * MB},
        "leader_min_write_rate_bytes_per_s": {"101": 10 * MB, "102": 8 * MB, "103": 2 * MB},
        "failover_safe_leader_min_bytes_per_s": {"101": 30 * MB, "102": 42 * MB, "103": 38 * MB},
        "uniform": {
            "min_bytes_per_s": 26 * MB,
            "rate_bytes_per_s": 31_200_000,
            "feasible": True,
            "violations": [],
            "duration_s": {
                "leader:101": 42 * GB / 5_200_000,
                "leader:102": 24 * GB / 15_200_000,
                "leader:103": 6 * GB / 27_200_000,
                "follower:103": 12 * GB / 27_200_000,
                "follower:104": 60 * GB / 15_200_000,
            },
            "total_s": 42 * GB / 5_200_000,
            "bottleneck": "leader:101",
        },
        "per_broker": {
            "leader_rate_bytes_per_s": {"101": 31_200_000, "102": 19_200_000, "103": 4_800_000},
            "follower_rate_bytes_per_s": {"103": 4_800_000, "104": 19_200_000},
            "feasible": True,
            "violations": [],
            "duration_s": {
                "leader:101": 42 * GB / 5_200_000,
                "leader:102": 7500.0,
                "leader:103": 7500.0,
                "follower:103": 15000.0,
                "follower:104": 18750.0,
            },
            "total_s": 18750.0,
            "bottleneck": "follower:104",
        },
        "batches": None,
        "unknown": [],
        "not_planned": [],
        "warnings": [
            "4 new replicas are counted with their whole log: it is not known what they have already"
        ],
        "fingerprint": "2d5d8145acd58dbd",
    }


@pytest.mark.parametrize("rate", [19_200_000, 21_600_000, 26_000_000])
def test_a_rate_that_never_finishes_is_exit_code_3_with_the_plan_on_stdout(rate: int) -> None:
    found = answer(WORKED, "--rate", str(rate), exit_code=3)
    for name in ("uniform", "per_broker"):
        outcome = found[name]
        assert isinstance(outcome, dict)
        assert (outcome["feasible"], outcome["total_s"], outcome["bottleneck"]) == (False, None, None)
        assert outcome["violations"] == [
            {
                "broker": 101,
                "role": "leader",
                "rate": rate,
                "required_more_than": 26 * MB,
                "deficit": 26 * MB - rate,
            }
        ]
        assert list(outcome["duration_s"]) == ["leader:102", "leader:103", "follower:103", "follower:104"]


def test_a_deadline_a_cap_a_headroom_and_a_floor_each_change_the_rates() -> None:
    def rates(*options: str) -> list[int]:
        found = answer(WORKED, *options)
        uniform, own = found["uniform"], found["per_broker"]
        assert isinstance(uniform, dict)
        assert isinstance(own, dict)
        return [
            uniform["rate_bytes_per_s"],
            *own["leader_rate_bytes_per_s"].values(),
            *own["follower_rate_bytes_per_s"].values(),
        ]

    assert rates("--deadline", "3600") == [
        37_666_667,
        37_666_667,
        22_666_667,
        5_666_667,
        7_333_334,
        32_666_667,
    ]
    assert rates("--cap", "28000000") == [
        28_000_000,
        28_000_000,
        19_200_000,
        4_800_000,
        4_800_000,
        19_200_000,
    ]
    assert rates("--headroom", "0.5") == [
        39_000_000,
        39_000_000,
        24_000_000,
        6_000_000,
        6_000_000,
        24_000_000,
    ]
    assert rates("--floor", "20000000") == [
        31_200_000,
        31_200_000,
        20_000_000,
        20_000_000,
        20_000_000,
        20_000_000,
    ]
    assert rates("--rate", "50000000") == [50_000_000] * 6


def test_a_cap_that_misses_the_deadline_is_told() -> None:
    found = answer(WORKED, "--deadline", "3600", "--cap", "30000000")
    assert "uniform: takes 10500 s and misses the deadline of 3600 s" in found["warnings"]  # type: ignore[operator]


def test_decimal_headroom_is_exact() -> None:
    found = answer([{**GOOD, "write_bytes_per_s": 3 * MB}], "--headroom", "0.2", "--floor", "1")
    assert found["per_broker"]["follower_rate_bytes_per_s"] == {"3": 3_600_000}  # type: ignore[index]


def test_nothing_depends_on_the_order_of_the_input() -> None:
    turned = [
        {
            **one,
            "current_replicas": one["current_replicas"][::-1],
            "target_replicas": one["target_replicas"][::-1],
        }  # type: ignore[index]
        for one in reversed(WORKED)
    ]
    options = ["--cap", "22000000", "--batches", "auto"]
    assert plan(turned, *options).stdout == plan(WORKED, *options).stdout


def test_batches_are_printed_with_their_price() -> None:
    found = answer(WORKED, "--cap", "22000000", "--batches", "auto", exit_code=3)["batches"]
    assert isinstance(found, dict)
    assert [batch["partitions"] for batch in found["batches"]] == [["t0-1", "t0-2", "t1-0"], ["t0-0"]]
    assert [batch["min_bytes_per_s"] for batch in found["batches"]] == [18 * MB, 8 * MB]
    assert found["total_s"] == 60 * GB / 5_600_000 + 12 * GB / 1_600_000
    assert found["all_at_once_total_s"] is None
    assert "take longer together" in found["explanation"]
    two = answer(WORKED, "--batches", "2")["batches"]
    assert isinstance(two, dict)
    assert len(two["batches"]) == 2


def test_what_only_reorders_or_removes_needs_no_throttle() -> None:
    found = answer([{**GOOD, "target_replicas": [2, 1]}, {**GOOD, "partition": 1, "target_replicas": [2]}])
    assert found["partitions_moving"] == []
    assert found["partitions_without_data_movement"] == ["t-0", "t-1"]
    assert found["leader_throttled_replicas"] == {}
    assert found["warnings"] == ["no partition gains a replica: nothing is copied, so no throttle is needed"]
    some = answer([GOOD, {**GOOD, "partition": 1, "target_replicas": [2]}])
    assert "no throttle is needed where nothing is copied: t-1" in some["warnings"]  # type: ignore[operator]


def test_an_empty_reassignment_moves_nothing() -> None:
    assert answer([])["partitions_moving"] == []


def test_no_traffic_is_planned_at_the_floor() -> None:
    found = answer([{**GOOD, "write_bytes_per_s": 0, "log_size_bytes": 100 * 2**20}])["uniform"]
    assert isinstance(found, dict)
    assert (found["min_bytes_per_s"], found["rate_bytes_per_s"], found["total_s"]) == (0, 2**20, 100.0)


def test_what_is_unknown_has_no_number_and_is_named() -> None:
    found = answer([{**GOOD, "log_size_bytes": None}, {**GOOD, "partition": 1, "write_bytes_per_s": None}])
    assert found["unknown"] == [
        {"partition": "t-0", "lacks": ["log_size_bytes"]},
        {"partition": "t-1", "lacks": ["write_bytes_per_s"]},
    ]
    assert found["leader_bytes_to_send"] == {"1": None}
    assert found["leader_min_bytes_per_s"] == {"1": None}
    uniform = found["uniform"]
    assert isinstance(uniform, dict)
    assert [uniform[key] for key in ("rate_bytes_per_s", "feasible", "total_s", "bottleneck")] == [None] * 4
    warning = "some values are unknown, so figures that depend on them are missing: t-0 (log_size_bytes), t-1 (write_bytes_per_s)"
    assert warning in found["warnings"]  # type: ignore[operator]


def test_a_size_alone_that_is_unknown_leaves_the_rate_known() -> None:
    uniform = answer([{**GOOD, "log_size_bytes": None}])["uniform"]
    assert isinstance(uniform, dict)
    assert (uniform["rate_bytes_per_s"], uniform["feasible"], uniform["total_s"]) == (9_600_000, True, None)


def test_fractions_of_a_byte_are_rounded_up() -> None:
    found = answer([{**GOOD, "write_bytes_per_s": 1000.01}])
    assert found["follower_min_bytes_per_s"] == {"3": 1001}


def test_numbers_beyond_64_bits_are_printed_in_full() -> None:
    rows = [{**GOOD, "partition": number, "log_size_bytes": 2**63 - 1} for number in range(3)]
    assert answer(rows)["leader_bytes_to_send"] == {"1": 3 * (2**63 - 1)}


KAFKAS = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3],"log_dirs":["any","any"]}]}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: "),
        (b"\xff", "not JSON: "),
        ("[]", "bad request: Expected `object`, got `array`"),
        ("{}", "bad request: Object missing required field `partitions`"),
        ('{"partitions": [{"topic": "t", "partition": "0"}]}', "Expected `int`, got `str`"),
        ('{"partitions": [{"topic": "t", "partition": 0, "write_rate": 1}]}', "unknown field `write_rate`"),
        ('{"version": 2, "partitions": []}', "bad request: Expected `int` <= 1 - at `$.version`"),
        (
            KAFKAS,
            "t-0: current_replicas and leader missing; add what is missing, or let it be read from the cluster",
        ),
        ([{**GOOD, "replicas": [1]}], "t-0: has both of target_replicas and replicas; give one of them"),
        ([{**GOOD, "leader": None}], "t-0: leader missing"),
        (
            [{**GOOD, "leader": -1}],
            "t-0: no leader (-1), so nothing can be copied; bring one of the current replicas back",
        ),
        ([{**GOOD, "leader": 3}], "t-0: leader is 3, which is not among current_replicas [1, 2]"),
        ([GOOD, GOOD], "t-0: given twice"),
        ([{**GOOD, "target_replicas": []}], "t-0: target_replicas is empty"),
        ([{**GOOD, "current_replicas": []}], "t-0: current_replicas is empty"),
        ([{**GOOD, "target_replicas": [3, 3]}], "t-0: target_replicas is [3, 3]; give each broker once"),
        (
            [{**GOOD, "current_replicas": [1, 2, 4], "in_progress_adding_replicas": [4]}],
            "t-0: already being reassigned: Kafka is adding [4], and target_replicas [2, 3] leaves some of them out",
        ),
        (
            [{**GOOD, "write_bytes_per_s": -1}],
            "t-0: write_bytes_per_s is -1; expected 0 or more, or null for unknown",
        ),
        ([{**GOOD, "write_bytes_per_s": -0.5}], "t-0: write_bytes_per_s is -1; expected 0 or more"),
        ([{**GOOD, "partition": -1}], "t--1: partition is -1"),
    ],
)
def test_bad_input_is_exit_code_2_with_a_message_and_nothing_on_stdout(
    text: str | bytes | list[dict[str, object]], message: str
) -> None:
    result = plan(text)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert message in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rate", "0"], "0 is not in the range"),
        (["--rate", "1", "--deadline", "1"], "give one of them"),
        (["--rate", "5", "--cap", "4"], "--rate 5 is above --cap 4"),
        (["--deadline", "0"], "0 is not above 0"),
        (["--headroom", "-0.1"], "-0.1 is not 0 or more"),
        (["--headroom", "nan"], "'nan' is no number"),
        (["--floor", "0"], "0 is not in the range"),
        (["--batches", "0"], "'0' is neither auto nor a whole number from 1"),
        (["--batches", "auto"], "without a cap"),
        (["--batches", "2"], "2 batches of 1 moving partitions"),
        (["--apply"], "--apply needs --bootstrap or --cluster"),
        (["--bootstrap", "a:1", "--cluster", "east-1"], "--bootstrap and --cluster both say where to look"),
        (["--bootstrap", "nonsense"], "--bootstrap: bootstrap is 'nonsense'; expected host:port"),
        (["--config", "trimtab.toml"], "--config is read for --cluster only"),
        (["--cluster", "nowhere"], 'there is no [targets."nowhere".kafka] in the settings'),
        (["--interval", "4"], "4.0 is not in the range"),
    ],
)
def test_options_that_make_no_sense_are_exit_code_2(options: list[str], message: str) -> None:
    result = plan([GOOD], *options)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert message in result.stderr


def test_batches_need_every_write_rate() -> None:
    result = plan([{**GOOD, "write_bytes_per_s": None}], "--batches", "1")
    assert result.exit_code == 2
    assert "t-0 has no write rate" in result.stderr


def test_text_names_the_role_that_never_ends(tmp_path: Path) -> None:
    file = tmp_path / "moves.json"
    file.write_text(json.dumps({"partitions": WORKED}))
    result = CliRunner().invoke(
        main, ["throttle", "plan", "--input", str(file), "--format", "table", "--rate", "21600000"]
    )
    assert result.exit_code == 3
    assert "uniform: INFEASIBLE, it would never end" in result.stdout
    assert "leader:101: 21.6 MB/s is not above its minimum of 26.0 MB/s" in result.stdout


def test_planning_from_a_file_loads_no_client_of_a_broker() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from streaming.cli import main; "
        "r = CliRunner().invoke(main, ['throttle', 'plan', '--input', '-'], input='{\"partitions\": []}'); "
        "assert r.exit_code == 0, r.output; "
        "print([name for name in ('kafka', 'pyspark', 'prometheus_client', 'httpx') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
