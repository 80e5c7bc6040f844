"""What many tests of streaming begin with."""

from collections.abc import Iterator

import pytest

from tests.streaming.http_broker import Brokers, http_brokers


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with http_brokers() as make:
        yield make
