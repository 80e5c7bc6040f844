"""`trimtab run` that stores the memory of one cluster damaged: `python -m tests.live.garbling CLUSTER run …`."""

from collections.abc import Sequence

from state.layouts import VERSION
from streaming.cli import main as trimtab
from streaming.spark.operator import SparkStore
from tests.live.altered import alter

CUT_OFF = bytes([VERSION]) + b"\x9f"
"""The beginning of a header, as a disk may leave it."""


def main(arguments: Sequence[str]) -> None:
    """Run the command, with another operator for as long as it runs."""
    garbled = arguments[0]

    def garble(cluster: str, store: SparkStore) -> None:
        if cluster == garbled:
            store.put_header(CUT_OFF)

    restore = alter(after=garble)
    try:
        trimtab.main(args=list(arguments[1:]), prog_name="trimtab", standalone_mode=False)
    finally:
        restore()
