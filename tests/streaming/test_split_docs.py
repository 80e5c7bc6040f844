"""The pictures in ``docs/splitting.md`` are what the command draws."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from policies.splitting.algorithms import ALGORITHMS
from streaming.cli.split import split_command

PAGE = (Path(__file__).resolve().parents[2] / "docs/splitting.md").read_text()
PICTURES = re.findall(r"<!-- picture: (\w+) -->\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("algorithm", "shown"), PICTURES, ids=[name for name, _ in PICTURES])
def test_the_page_shows_what_the_command_draws(algorithm: str, shown: str):
    found = re.search(r"<!-- request: .*? -->\n```json\n(.*?)```", PAGE, re.DOTALL)
    request = json.dumps({**json.loads(found[1]), "algorithm": algorithm})
    result = CliRunner().invoke(split_command, ["plan", "--input", "-", "--format", "table"], input=request)
    assert (result.exit_code, result.stdout) == (0, shown)


def test_the_page_shows_or_explains_every_algorithm():
    assert len(PICTURES) == len(ALGORITHMS) - 1
    for algorithm in ALGORITHMS:
        assert f"`{algorithm}`" in PAGE
