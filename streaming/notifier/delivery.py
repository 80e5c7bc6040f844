"""Posting a message until it is taken, refused, or given up. httpx makes each call, tenacity repeats it."""

import os
import threading
from pathlib import Path
from typing import Any, Literal

import httpx
import tenacity

from streaming.contract.messages import SHOWN_CHARACTERS
from streaming.settings.receivers import ReceiverSettings

__all__ = ["Delivery", "Result"]

Result = Literal["delivered", "refused", "given-up"]

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 20.0
_TOO_MANY, _SERVER_ERROR = 429, 500


class _Passing(Exception):
    """An answer, or none, after which the next attempt may go well."""


class _Refused(Exception):
    """An answer after which no attempt would go well."""


class Delivery:
    """Posts to one receiver. The address is never shown: it may be a secret."""

    def __init__(
        self,
        name: str,
        settings: ReceiverSettings,
        stop: threading.Event,
        *,
        first_wait_s: float = _FIRST_WAIT_S,
    ) -> None:
        """``stop`` ends the attempts."""
        self._name, self._settings, self._stop = name, settings, stop
        self._client = httpx.Client(timeout=settings.timeout_s, headers={"User-Agent": "trimtab-notify"})
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Passing),
            wait=tenacity.wait_exponential(multiplier=first_wait_s, max=_LONGEST_WAIT_S)
            + tenacity.wait_random(0, first_wait_s),
            stop=tenacity.stop_after_delay(settings.give_up_after_s) | tenacity.stop_when_event_set(stop),
            sleep=tenacity.sleep_using_event(stop),
            reraise=True,
        )

    def post(self, message: dict[str, Any]) -> tuple[Result, str]:
        """Post a message; returns the result, and the reason if it was not delivered."""
        try:
            self._retrying.copy()(self._attempt, message)
        except _Refused as error:
            return "refused", str(error)
        except _Passing as error:
            return "given-up", str(error)
        return "delivered", ""

    def close(self) -> None:
        """Close connections that are kept."""
        self._client.close()

    def _attempt(self, message: dict[str, Any]) -> None:
        try:
            answer = self._client.post(self._address(), json=message)
        except (OSError, KeyError) as error:
            raise _Passing(f"its address cannot be read: {type(error).__name__} {error}") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise _Refused("its address is no URL; expected http://… or https://…") from error
        except httpx.HTTPError as error:
            raise _Passing(f"no answer: {type(error).__name__}") from error
        if answer.is_success:
            return
        text = f"it answered {answer.status_code} {answer.reason_phrase}: {answer.text[:SHOWN_CHARACTERS]!r}"
        if answer.status_code == _TOO_MANY or answer.status_code >= _SERVER_ERROR:
            raise _Passing(text)
        raise _Refused(f"{text}; check its address and format")

    def _address(self) -> str:
        settings = self._settings
        if settings.url_file is not None:
            return Path(settings.url_file).read_text(encoding="utf-8").strip()
        if settings.url_env is not None:
            return os.environ[settings.url_env]
        assert settings.url is not None
        return settings.url
