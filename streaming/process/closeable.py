"""What is closed at the end of a ``with`` block."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closeable(ABC):
    """A base for connections: ``with`` gives the object itself, and closes it however the block ends."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
