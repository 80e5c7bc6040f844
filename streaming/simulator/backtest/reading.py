"""How a backtest reads its recording: from the beginning, as often as it needs to, in any process."""

from collections.abc import Callable, Iterator

from state.events import Event

Read = Callable[[], Iterator[tuple[str, Event]]]
"""Every event of the time asked for with its cluster, in the recorded order; picklable."""
