"""``trimtab split``: what it prints, in which shape, and how it refuses."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streaming.cli.split import split_command

BUNDLE = "tenant/ns/0x00000000_0x00000200"
WHOLE = "tenant/ns/0x00000000_0xffffffff"
MIB = 1048576

PIP_169 = {
    "bundle": BUNDLE,
    "algorithm": "flow_or_qps_equally_divide",
    "topics": {
        f"t{step}": {"position": where, "msgRateIn": 100 * step, "msgThroughputOut": 10 * MIB * step}
        for step, where in enumerate((10, 20, 80, 90, 100, 110), 1)
    },
    "max_msg_rate": 1100,
    "max_bandwidth_mbytes": 110,
    "difference_threshold_percentage": 10,
}
PIP_143 = {
    "bundle": BUNDLE,
    "algorithm": "specified_positions_divide",
    "topics": {f"t{step}": {"position": where} for step, where in enumerate((10, 20, 80, 90), 1)},
    "positions": [85, 15, 50],
}


def plan(text: str | bytes | Mapping[str, object], *options: str) -> Result:
    """Run the command on one request, or on a text as it is."""
    given = json.dumps(text) if isinstance(text, Mapping) else text
    return CliRunner().invoke(split_command, ["plan", "--input", "-", *options], input=given)


def answer(request: Mapping[str, object]) -> dict[str, object]:
    """The only answer, which must be a success."""
    result = plan(request)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def positions(*arguments: str) -> Result:
    return CliRunner().invoke(split_command, ["positions", *arguments])


@pytest.mark.parametrize(("variant", "boundary"), [({}, 96), ({"flow_or_qps_boundary": "proposal"}, 95)])
def test_the_example_of_pip_169_can_be_entered_as_it_stands(variant: dict[str, str], boundary: int):
    assert answer({**PIP_169, **variant}) == {
        "boundaries": [boundary],
        "reason": "cut wherever the running total would pass a limit",
        "children": [
            {
                "range": f"0x00000000_0x{boundary:08x}",
                "topics": 4,
                "msg_rate": 1000.0,
                "throughput_bytes_per_s": 100.0 * MIB,
            },
            {
                "range": f"0x{boundary:08x}_0x00000200",
                "topics": 2,
                "msg_rate": 1100.0,
                "throughput_bytes_per_s": 110.0 * MIB,
            },
        ],
        "warnings": [],
    }


def test_the_example_of_pip_143_can_be_entered_as_it_stands():
    found = answer(PIP_143)
    assert found["boundaries"] == [15, 50, 85]
    assert [child["topics"] for child in found["children"]] == [1, 1, 1, 1]


def test_k_boundaries_balance_equal_topics_as_pip_143_does():
    topics = {name: {**entry, "msgRateIn": 10} for name, entry in PIP_143["topics"].items()}
    assert answer({"bundle": BUNDLE, "topics": topics, "k": 3})["boundaries"] == [15, 50, 85]


def test_no_boundary_is_null_with_a_reason():
    assert answer({"bundle": BUNDLE, "topics": {}}) == {
        "boundaries": None,
        "reason": "no topic in the bundle has traffic: there is nothing to balance",
        "children": [],
        "warnings": [],
    }


def test_names_alone_are_enough_where_no_load_is_needed():
    names = [f"persistent://tenant/ns/topic-{number}" for number in range(8)]
    found = answer({"bundle": WHOLE, "algorithm": "topic_count_equally_divide", "topics": names})
    assert [child["topics"] for child in found["children"]] == [4, 4]
    assert found["warnings"] == []


@pytest.mark.parametrize(
    ("request_", "warning"),
    [
        pytest.param(
            {"bundle": WHOLE, "topics": ["orders"]},
            "names are hashed as written, but Pulsar hashes full names such as persistent://tenant/ns/topic: orders",
            id="bare name",
        ),
        pytest.param(
            {"bundle": WHOLE, "topics": {"tenant/ns/orders": {}}},
            "names are hashed as written",
            id="a name without a domain is bare",
        ),
        pytest.param(
            {"bundle": WHOLE, "topics": ["persistent://tenant/ns2/a", "persistent://tenant/ns/a"]},
            "topics of another namespace than tenant/ns: persistent://tenant/ns2/a",
            id="another namespace",
        ),
        pytest.param(
            {"bundle": BUNDLE, "topics": {"t1": {"position": 512}}},
            "topics outside 0x00000000_0x00000200 are ignored: t1",
            id="outside the bundle",
        ),
        pytest.param(
            {
                "bundle": BUNDLE,
                "topics": {"t1": {"position": 5}, "t2": {"position": 5}, "t3": {"position": 6}},
            },
            "topics at one position, 0x00000005, cannot be separated: t1, t2",
            id="a collision",
        ),
        pytest.param(
            {"bundle": WHOLE, "topics": ["persistent://tenant/ns/a"] * 3},
            "2 topics are given more than once",
            id="repeated names",
        ),
        pytest.param({"bundle": BUNDLE, "positions": [5]}, "positions are ignored", id="useless positions"),
        pytest.param(
            {"bundle": BUNDLE, "algorithm": "range_equally_divide", "k": 2}, "k is ignored", id="useless k"
        ),
    ],
)
def test_what_is_odd_is_answered_with_a_warning(request_: dict[str, object], warning: str):
    found = answer(request_)["warnings"]
    assert len(found) == 1
    assert found[0].startswith(warning)


def test_a_topic_outside_the_bundle_changes_nothing_else():
    inside = answer(PIP_169)
    outside = {**PIP_169, "topics": {**PIP_169["topics"], "far": {"position": 9999, "msgRateIn": 1e6}}}
    found = answer(outside)
    assert found["warnings"] == ["topics outside 0x00000000_0x00000200 are ignored: far"]
    assert {**found, "warnings": []} == inside


BAD = [
    pytest.param(
        {"bundle": BUNDLE, "algorithm": "halves"}, "there are balanced_flow_divide, flow_or", id="algorithm"
    ),
    pytest.param(
        {**PIP_143, "positions": []}, "specified_positions_divide needs positions", id="positions missing"
    ),
    pytest.param({}, "missing required field `bundle`", id="no bundle"),
    pytest.param(
        {"bundle": "tenant/ns/0x00000000"}, "invalid bundle range '0x00000000'", id="malformed range"
    ),
    pytest.param(
        {"bundle": "0x00000000_0x00000200"}, "is no bundle: expected tenant/namespace", id="a range alone"
    ),
    pytest.param({"bundle": "tenant/ns/0x5_0x5"}, "is an empty range", id="empty range"),
    pytest.param({"bundle": "tenant/ns/0x5_0x4"}, "lower bound is above its upper one", id="reversed range"),
    pytest.param(
        {"bundle": "tenant/ns/0x5_0x6", "algorithm": "range_equally_divide"},
        "0x00000005_0x00000006 can't be split further",
        id="width 1",
    ),
    pytest.param(
        {"bundle": BUNDLE, "topics": {"a": {"msgRateIn": -1}}},
        "msgRateIn of topic 'a' is -1.0",
        id="negative rate",
    ),
    pytest.param(
        {"bundle": BUNDLE, "topics": {"a": {"msgThroughputOut": float("nan")}}},
        "msgThroughputOut of topic 'a' is nan",
        id="NaN",
    ),
    pytest.param(
        {"bundle": BUNDLE, "topics": {"a": {"msgRateOut": float("inf")}}},
        "msgRateOut of topic 'a' is inf",
        id="infinity",
    ),
    pytest.param(
        {"bundle": BUNDLE, "topics": {"a": {"msgRateIn": "5"}}}, "Expected `float", id="text for a rate"
    ),
    pytest.param({"bundle": BUNDLE, "topics": 5}, "$.topics", id="topics are no topics"),
    pytest.param(
        {"bundle": BUNDLE, "topics": {"a": {"position": -1}}}, "Expected `int` >= 0", id="no position"
    ),
    pytest.param(
        {"bundle": BUNDLE, "topics": {"a": {"position": 1 << 32}}}, "<= 4294967295", id="beyond 32 bits"
    ),
    pytest.param({"bundle": BUNDLE, "topics": ["\ud800"]}, "not valid Unicode", id="half a surrogate pair"),
    pytest.param(
        {"bundle": BUNDLE, "max_msg_rate": 0}, "max_msg_rate is 0.0; expected a number above", id="limit 0"
    ),
    pytest.param(
        {"bundle": BUNDLE, "max_bandwidth_mbytes": float("nan")},
        "max_bandwidth_mbytes is nan",
        id="limit NaN",
    ),
    pytest.param(
        {"bundle": BUNDLE, "difference_threshold_percentage": float("inf")},
        "difference_threshold_percentage is inf",
        id="threshold infinite",
    ),
    pytest.param({"bundle": BUNDLE, "max_child_ratio": -1}, "max_child_ratio is -1.0", id="ratio below 0"),
    pytest.param({"bundle": BUNDLE, "k": 0}, "Expected `int` >= 1", id="k of 0"),
    pytest.param(
        {"bundle": BUNDLE, "max_msgrate": 5}, "unknown field `max_msgrate`; a request has bundle", id="typo"
    ),
]


@pytest.mark.parametrize(("request_", "message"), BAD)
def test_a_bad_request_ends_with_exit_code_2_and_prints_nothing(request_: dict[str, object], message: str):
    result = plan(request_)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("slip", "named"),
    [
        (
            {"topics": {"a": {"msgRateIn": 5}, "b": {"msgRateIn": "NaN"}}},
            "topic 'b' has {'msgRateIn': 'NaN'}",
        ),
        ({"topics": {"a": None, "c": {"position": -1}}}, "topic 'c' has {'position': -1}"),
        ({"topics": ["a", 7]}, "topics is ['a', 7]"),
        ({"k": 0}, "k is 0"),
        ({"algorithm": None}, "algorithm is null"),
        ({"flow_or_qps_boundary": "middle"}, "flow_or_qps_boundary is 'middle'"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_topic(slip: dict[str, object], named: str):
    assert named in plan({"bundle": BUNDLE, **slip}).stderr


@pytest.mark.parametrize("text", ["[]", "5", "null", '"bundle"'])
def test_json_that_is_no_object_is_one_bad_request(text: str):
    result = plan(text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Expected `object`" in result.stderr


@pytest.mark.parametrize("percentage", [0, -5.5])
def test_a_difference_threshold_of_0_or_less_is_allowed(percentage: float):
    assert answer({**PIP_169, "difference_threshold_percentage": percentage})["boundaries"] == [96]


def test_a_request_over_several_lines_is_one_request():
    result = plan(json.dumps(PIP_169, indent=2))
    assert json.loads(result.stdout)["boundaries"] == [96]


def test_several_lines_are_answered_line_by_line_in_order():
    requests = [PIP_169, *(case.values[0] for case in BAD), PIP_143]
    lines = [json.dumps(request) for request in requests]
    result = plan("\n".join([*lines[:-1], "no json", "", lines[-1], ""]))
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, result.stderr) == (0, "")
    assert answers[0]["boundaries"] == [96]
    assert answers[-1]["boundaries"] == [15, 50, 85]
    assert answers[-2]["error"].startswith("not JSON")
    for case, found in zip(BAD, answers[1:-2], strict=True):
        assert str(case.values[1]) in found["error"]
    assert len(answers) == len(requests) + 1


def test_a_bad_first_line_does_not_make_the_file_one_request():
    result = plan('{"bundle": 5}\n' + json.dumps(PIP_169))
    assert result.exit_code == 0
    assert ["error" in json.loads(line) for line in result.stdout.splitlines()] == [True, False]


def test_where_no_line_is_json_it_is_refused_and_says_what_one_request_would_lack():
    result = plan(json.dumps(PIP_169, indent=2).replace("0,", "0,,"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "read as one request, it is not JSON: Expected property name" in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "standard input: it is empty"),
        (b"\n\n", "standard input: it is empty"),
        (b"\xff\xfe\n", "standard input: no line of it is JSON"),
        (b"[" * 100_000, "standard input: no line of it is JSON"),
    ],
)
def test_text_of_no_sense_is_refused_in_words(text: bytes, said: str):
    result = plan(text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_file_that_is_not_there_is_wrong_use(tmp_path: Path):
    result = CliRunner().invoke(split_command, ["plan", "--input", str(tmp_path / "none.json")])
    assert result.exit_code == 2
    assert "none.json" in result.stderr


PICTURE = """\
tenant/ns/0x00000000_0x00000200  flow_or_qps_equally_divide
cut wherever the running total would pass a limit

  ▂▃       ▄▆▇█
├────────────┼───────────────────────────────────────────────────┤
0x00000000                                              0x00000200

child                   topics    messages/s           bytes/s  of the limits
0x00000000_0x00000060        4       1,000.0       104,857,600    0.91 ██████████████████
0x00000060_0x00000200        2       1,100.0       115,343,360    1.00 ████████████████████
warning: topics outside 0x00000000_0x00000200 are ignored: far
"""


def test_the_picture_shows_load_cuts_children_and_warnings():
    topics = {**PIP_169["topics"], "far": {"position": 9999}}
    assert plan({**PIP_169, "topics": topics}, "--format", "table").stdout == PICTURE


@pytest.mark.parametrize(
    ("request_", "shown"),
    [
        ({"bundle": BUNDLE, "topics": {"t": {"position": 8}}}, "\n  ·\n├─"),
        ({"bundle": BUNDLE}, "not cut: no topic in the bundle has traffic"),
        ({"bundle": "tenant/ns/0x0_0x3", "topics": {"t": {"position": 2, "msgRateIn": 1}}}, "█\n├"),
        (
            {"bundle": WHOLE, "topics": {"t": {"position": (1 << 32) - 1, "msgRateIn": 1}}},
            f"\n{' ' * 64}█\n├",
        ),
    ],
)
def test_bundles_without_load_or_width_have_a_picture_too(request_: dict[str, object], shown: str):
    result = plan(request_, "--format", "table")
    assert result.exit_code == 0
    assert shown in result.stdout


def test_several_lines_can_be_drawn_as_well():
    result = plan("\n".join([json.dumps(PIP_169), "nope", json.dumps(PIP_143)]), "--format", "table")
    assert result.exit_code == 0
    assert result.stdout.count("├") == 2
    assert "\nerror: not JSON" in result.stdout


ORDERS = "persistent://shop/orders/new"


def test_positions_are_those_of_the_names_as_written():
    result = positions("123456789", ORDERS)
    assert result.stdout == f"3421780262  0xcbf43926  123456789\n  27962971  0x01aaae5b  {ORDERS}\n"
    assert "names are hashed as written" in result.stderr
    assert result.stderr.endswith(": 123456789\n")


def test_positions_in_json_have_the_shape_of_pulsars_answer():
    result = positions("--format", "json", "--bundle", "shop/orders/0x00000000_0x40000000", ORDERS)
    assert json.loads(result.stdout) == {
        "namespace": "shop/orders",
        "bundle": "0x00000000_0x40000000",
        "topicHashPositions": {ORDERS: 27962971},
    }
    assert json.loads(positions("--format", "json", ORDERS).stdout) == {
        "topicHashPositions": {ORDERS: 27962971}
    }


def test_partitioned_topics_are_expanded():
    found = json.loads(positions("--format", "json", "--partitions", "3", ORDERS).stdout)[
        "topicHashPositions"
    ]
    assert found == {
        f"{ORDERS}-partition-0": 2980088843,
        f"{ORDERS}-partition-1": 3332881565,
        f"{ORDERS}-partition-2": 1605299495,
    }


def test_topics_outside_the_bundle_are_left_out_with_a_warning():
    result = positions("--bundle", "shop/orders/0x40000000_0x80000000", ORDERS, "persistent://shop/bills/x")
    assert result.exit_code == 0
    assert result.stdout == "1209349228  0x4815346c  persistent://shop/bills/x\n"
    assert f"outside 0x40000000_0x80000000: {ORDERS} at 0x01aaae5b" in result.stderr
    assert "topics of another namespace than shop/orders: persistent://shop/bills/x" in result.stderr


@pytest.mark.parametrize(
    "arguments", [(), ("--bundle", "shop/orders", ORDERS), ("--partitions", "-1", ORDERS)]
)
def test_positions_refuse_what_they_cannot_read(arguments: tuple[str, ...]):
    result = positions(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
