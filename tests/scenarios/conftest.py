"""``pytest tests/scenarios --rewrite`` writes what came out into the scenarios; the diff is what is reviewed."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", default=False, help="write the outputs into the scenarios"
    )
