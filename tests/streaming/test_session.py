"""The end of a Spark session."""

from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from streaming.spark import session


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("no answer"), Py4JError("gone"), ConnectionRefusedError()]
)
def test_a_jvm_that_is_gone_does_not_hide_why_the_controller_ends(error: Exception) -> None:
    class Gone:
        def stop(self) -> None:
            raise error

    def end() -> None:
        spark: Any = Gone()
        try:
            raise ValueError("the reason")
        finally:
            session.Session(spark).stop()

    with pytest.raises(ValueError, match="the reason"):
        end()
