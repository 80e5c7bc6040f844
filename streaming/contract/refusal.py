"""The error of a record that was read and cannot be used."""

from state.events import Rejection, RejectReason


class Refusal(Exception):
    """Why a record is refused."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(detail)
        self.rejection = Rejection(reason=reason, detail=detail)
