"""Finding the brokers, for every client of kafka-python."""

from kafka.net.manager import KafkaConnectionManager


class ClosingManager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """Closes the client's network if no broker answers.

    A client of kafka-python 3.0.12 that finds no broker raises when it is made, so nobody can close it; its thread and four open
    files would stay. A standby that looks for its brokers every 45 s would be out of files after hours without them.
    """

    def bootstrap(self, timeout_ms: int | None = None, refresh: bool = True) -> None:  # noqa: FBT001, FBT002  its signature
        """Find the brokers. Raises ``KafkaError``."""
        try:
            super().bootstrap(timeout_ms, refresh)
        except BaseException:
            self.close()
            self._net.close()
            raise
