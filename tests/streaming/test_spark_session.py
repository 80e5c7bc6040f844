"""Which Spark is refused, whoever started it."""

import pytest

from streaming.process.exits import Refused
from streaming.spark.session import SPARK_VERSION, require_version


@pytest.mark.parametrize("version", ["4.2.1", "4.2.1-amzn-0", "4.3.0", "5.0.0-preview1", SPARK_VERSION])
def test_a_spark_that_keeps_no_sockets_open_is_good(version: str) -> None:
    require_version(version)


@pytest.mark.parametrize("version", ["4.2.0", "4.1.9", "3.5.9", "unknown"])
def test_an_older_spark_is_refused_with_the_reason_and_the_version_that_is_needed(version: str) -> None:
    with pytest.raises(Refused, match=rf"Spark {version}, which leaves a socket open .* run Spark 4\.2\.1"):
        require_version(version)
