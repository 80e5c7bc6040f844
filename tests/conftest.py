"""Settings for every test, and the option that writes what comes out into golden files."""

import pytest
from hypothesis import settings

settings.register_profile("trimtab", deadline=None)  # `make bench` measures speed; machines are shared
settings.load_profile("trimtab")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/scenarios tests/contract --rewrite``; the diff is what is reviewed."""
    parser.addoption(
        "--rewrite", action="store_true", help="write what comes out into scenarios and sessions"
    )
