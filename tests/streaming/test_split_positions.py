"""`trimtab split positions` names the position of each topic in its bundle."""

import json
import subprocess
import sys

import pytest

from tests.streaming.test_split_command import ORDERS, positions


def test_positions_are_those_of_the_names_as_written() -> None:
    result = positions("123456789", ORDERS)
    assert result.stdout == f"3421780262  0xcbf43926  123456789\n  27962971  0x01aaae5b  {ORDERS}\n"
    assert "names are hashed as written" in result.stderr
    assert result.stderr.endswith(": 123456789\n")


def test_positions_in_json_have_the_shape_of_pulsars_answer() -> None:
    result = positions("--format", "json", "--bundle", "shop/orders/0x00000000_0x40000000", ORDERS)
    assert json.loads(result.stdout) == {
        "namespace": "shop/orders",
        "bundle": "0x00000000_0x40000000",
        "topicHashPositions": {ORDERS: 27962971},
    }
    assert json.loads(positions("--format", "json", ORDERS).stdout) == {
        "topicHashPositions": {ORDERS: 27962971}
    }


def test_partitioned_topics_are_expanded() -> None:
    found = json.loads(positions("--format", "json", "--partitions", "3", ORDERS).stdout)[
        "topicHashPositions"
    ]
    assert found == {
        f"{ORDERS}-partition-0": 2980088843,
        f"{ORDERS}-partition-1": 3332881565,
        f"{ORDERS}-partition-2": 1605299495,
    }


def test_topics_outside_the_bundle_are_left_out_with_a_warning() -> None:
    result = positions("--bundle", "shop/orders/0x40000000_0x80000000", ORDERS, "persistent://shop/bills/x")
    assert result.exit_code == 0
    assert result.stdout == "1209349228  0x4815346c  persistent://shop/bills/x\n"
    assert f"outside 0x40000000_0x80000000: {ORDERS} at 0x01aaae5b" in result.stderr
    assert "topics of another namespace than shop/orders: persistent://shop/bills/x" in result.stderr


@pytest.mark.parametrize(
    "arguments", [(), ("--bundle", "shop/orders", ORDERS), ("--partitions", "-1", ORDERS)]
)
def test_positions_refuse_what_they_cannot_read(arguments: tuple[str, ...]) -> None:
    result = positions(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_the_command_starts_without_spark_or_a_brokers_client() -> None:
    code = (
        "import sys; from streaming.cli import main\n"
        "try: main(['split', 'positions', 'a'])\n"
        "except SystemExit: print(sorted({'pyspark', 'kafka', 'prometheus_client', 'pandas'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.endswith("[]\n")
