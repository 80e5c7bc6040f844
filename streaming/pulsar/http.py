"""HTTP as Pulsar's brokers expect it, and what can go wrong when their admin API is called, each kind with its remedy.

A broker that does not own what a request is about answers 307 with the address of the one that does; the request must
then be sent there whole: method, body, authorization. Client libraries drop the authorization when the host changes,
so redirects are followed here.

Invariants: every call returns or raises within little more than ``timeout_s``, however many redirects there are and however
slowly the body of an answer comes, and within twice the time if a broker falls silent in the middle of it; a token
is never sent over plain HTTP to a broker that a redirect from HTTPS names, and is never logged or part of an error.
Not asynchronous: callers run calls in threads; one client serves all of them. httpx limits each wait for a broker, not their
sum, so a header that comes byte by byte is waited for.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal
from urllib.parse import urljoin, urlsplit

import httpx
import msgspec

from streaming.process.closeable import Closeable
from streaming.process.deadline import Deadline
from streaming.process.exits import words_of
from streaming.settings.targets import PulsarTarget
from streaming.transport.reach import fault_of_connection

Failure = Literal[
    "unauthorized",
    "forbidden",
    "not-found",
    "conflict",
    "refused",
    "broker-failed",
    "busy",
    "redirect-loop",
    "unreachable",
    "untrusted",
    "no-answer",
    "not-pulsar",
]
"""Every kind of failure; each is the value of a metric's label."""

PASSING: frozenset[Failure] = frozenset(
    {"unreachable", "no-answer", "broker-failed", "busy", "redirect-loop"}
)
"""Failures that may be over at the next call."""

_BY_STATUS: Mapping[int, Failure] = {
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    409: "conflict",
    412: "refused",
    429: "busy",
}

_REMEDIES: Mapping[Failure, str] = {
    "unauthorized": "the token is missing, expired or of another cluster: check token_file or token_env of the target; "
    "Pulsar answers the same to a role that lacks the permission. A target's role must be a super-user (broker.conf "
    "superUserRoles)",
    "forbidden": "the token's role lacks the permission. A target's role must be a super-user (broker.conf superUserRoles)",
    "not-found": "Pulsar does not know it (any more), or the address is not that of an admin API",
    "conflict": "something else changed it at the same time, or the destination is not alive",
    "refused": "Pulsar cannot carry out the request in the cluster's present state; read the cluster again before "
    "retrying",
    "broker-failed": "the broker's log says more; the failure often passes, so try again",
    "busy": "the broker limits requests (httpRequestsMaxPerSecond): ask less often",
    "redirect-loop": "brokers redirect the request to each other: ownership or leadership is changing, or their "
    "advertised addresses are wrong",
    "unreachable": "check admin_url and whether the broker runs and can be reached from here",
    "untrusted": "the broker's certificate is not signed by an authority of ca_file, has expired, or is for another name: "
    "check ca_file, admin_url and the broker's certificate",
    "no-answer": "the request may have been carried out all the same: check that; a larger timeout_s waits longer",
    "not-pulsar": "the address answers, but not as Pulsar's admin API does: check admin_url",
}


class AdminError(Exception):
    """A call of the admin API failed; the text names the call, what was answered, and the remedy.

    ``failure`` is the kind, ``status`` the HTTP status (None without an answer), ``answer`` what the broker answered.
    Tokens are never part of it.
    """

    def __init__(self, failure: Failure, *, call: str, answer: str, status: int | None = None) -> None:
        answered = f"{status}: {answer}" if status is not None else answer
        told = f"{answered} ({call})" if failure == "unreachable" else f"{call}: {answered}"
        super().__init__(f"{told}. Remedy: {_REMEDIES[failure]}")
        self.failure = failure
        self.status = status
        self.answer = answer

    def advise(self, more: str) -> None:
        """Add to the remedy what only the caller knows."""
        self.args = (f"{self}; {more}",)


def failure_of_status(status: int) -> Failure:
    """The kind of failure an HTTP status of 300 or more stands for."""
    return _BY_STATUS.get(status, "broker-failed")


Method = Literal["GET", "PUT", "POST"]

REDIRECTS_MAX = 8
"""Enough for the leader, the owner and some changes in between; more means that brokers point at each other."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""Topic statistics of a broker with 100,000 topics are about 100 MB."""
REASON_CHARS_MAX = 64 * 1024
"""A broker's reason is shown whole: if it holds an exception, the important part is at its end. No real reason is longer."""
PAGE_CHARS_MAX = 300
"""Characters shown of an answer that is not Pulsar's, such as the page of a proxy."""
_REDIRECTED = range(300, 400)


class CredentialsError(Exception):
    """The token or the certificates of a target cannot be read; the text says which and why."""


class _Reason(msgspec.Struct, frozen=True):
    reason: str = ""


class HttpClient(Closeable):
    """Calls brokers with the credentials of a target. Thread-safe. Raises ``CredentialsError`` when they cannot be read."""

    def __init__(self, target: PulsarTarget, *, environ: Mapping[str, str] = os.environ) -> None:
        self._target = target
        self._environ = environ
        self._timeout_s = target.timeout_s
        self.token()
        self._client = httpx.Client(
            verify=_tls_of(target),
            trust_env=False,
            follow_redirects=False,
            timeout=target.timeout_s,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
        )

    def call(
        self,
        method: Method,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
    ) -> bytes:
        """The body of the answer (empty for 204). Raises ``AdminError`` for a status of 300 or more, and if there is no answer."""
        return self._follow(method, url, query, body)[1]

    def find(self, url: str, *, query: Mapping[str, str] | None = None) -> str:
        """The URL that answers a GET, after its redirects. Raises ``AdminError`` as ``call`` does."""
        return self._follow("GET", url, query, None)[0]

    def _follow(
        self, method: Method, url: str, query: Mapping[str, str] | None, body: object
    ) -> tuple[str, bytes]:
        """The URL that answers, and the body of the answer."""
        deadline = Deadline(self._timeout_s)
        content = None if body is None else msgspec.json.encode(body)
        for _ in range(REDIRECTS_MAX):
            answer, text = self._send_once(method, url, query=query, content=content, deadline=deadline)
            if answer.status_code not in _REDIRECTED:
                return url, self._accept(method, url, answer.status_code, text)
            url, query = _redirect_target(method, url, answer), None
        raise AdminError(
            "redirect-loop", call=f"{method} {url}", answer=f"{REDIRECTS_MAX} redirects", status=307
        )

    def ahead_s(self, url: str, now_s: Callable[[], float]) -> float | None:
        """Seconds by which the answering broker's clock is ahead of ``now_s``, by the answer's date, which has whole seconds.

        None if the answer has no date. Raises ``AdminError``.
        """
        before_s = now_s()
        answer, text = self._send_once(
            "GET", url, query=None, content=None, deadline=Deadline(self._timeout_s)
        )
        self._accept("GET", url, answer.status_code, text)
        return ahead_by_date(answer.headers.get("Date"), before_s, now_s())

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _send_once(
        self,
        method: Method,
        url: str,
        *,
        query: Mapping[str, str] | None,
        content: bytes | None,
        deadline: Deadline,
    ) -> tuple[httpx.Response, bytes]:
        call = f"{method} {url}"
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if (token := self.token()) is not None:
            headers["Authorization"] = f"Bearer {token}"
        request = self._client.build_request(
            method, url, params=query, content=content, headers=headers, timeout=deadline.left_s
        )
        try:
            return self._exchange(request, deadline)
        except (httpx.ReadTimeout, httpx.WriteTimeout, TimeoutError) as error:
            raise AdminError(
                "no-answer", call=call, answer=f"no answer within {self._timeout_s:g} s"
            ) from error
        except (httpx.RequestError, httpx.InvalidURL) as error:
            failure: Failure = "untrusted" if _is_untrusted(error) else "unreachable"
            raise AdminError(failure, call=call, answer=_fault_of(url, error)) from error

    def _exchange(self, request: httpx.Request, deadline: Deadline) -> tuple[httpx.Response, bytes]:
        if deadline.is_over:
            raise TimeoutError
        with closing(self._client.send(request, stream=True)) as response:
            return response, _read(response, deadline)

    def _accept(self, method: Method, url: str, status: int, text: bytes) -> bytes:
        if status < _REDIRECTED.start:
            return text
        raise AdminError(
            failure_of_status(status), call=f"{method} {url}", answer=_answer_of(text), status=status
        )

    def token(self) -> str | None:
        """The token, read at every call: tokens expire, and the file is replaced when they are renewed."""
        target = self._target
        if target.token_file is not None:
            return _one_token(_read_text(target.token_file, "token_file"), f"token_file {target.token_file}")
        if target.token_env is None:
            return None
        return _one_token(
            self._environ.get(target.token_env, ""),
            f"the variable {target.token_env}, which token_env names,",
        )


def ahead_by_date(date: str | None, asked_s: float, answered_s: float) -> float | None:
    """Seconds by which the clock that wrote ``date`` is ahead at least; the other two times are by our clock.

    0.0 where the clocks may be the same; None without a readable date.
    """
    try:
        date_s = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None
    least_s, most_s = date_s - answered_s, date_s + 1 - asked_s
    return 0.0 if least_s <= 0 <= most_s else min(least_s, most_s, key=abs)


def addresses(url: str) -> list[str]:
    """The base addresses of ``http://a:8080,b:8080``, one for each host."""
    scheme, _, hosts = url.rstrip("/").partition("://")
    return [f"{scheme}://{host}" for host in hosts.split(",")]


def _redirect_target(method: str, url: str, answer: httpx.Response) -> str:
    location: str | None = answer.headers.get("Location")
    if location is None:
        raise AdminError(
            "not-pulsar",
            call=f"{method} {url}",
            answer="a redirect without Location",
            status=answer.status_code,
        )
    target = urljoin(url, location)
    if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
        raise AdminError(
            "not-pulsar",
            call=f"{method} {url}",
            answer=f"a redirect from https to {target}, which would send the token unencrypted",
            status=answer.status_code,
        )
    return target


def _read(response: httpx.Response, deadline: Deadline) -> bytes:
    chunks: list[bytes] = []
    size = 0
    for chunk in response.iter_bytes():
        chunks.append(chunk)
        size += len(chunk)
        if deadline.is_over:
            raise TimeoutError
        if size > ANSWER_BYTES_MAX:
            raise httpx.DecodingError(f"more than {ANSWER_BYTES_MAX} bytes")
    return b"".join(chunks)


def _answer_of(text: bytes) -> str:
    """The reason in Pulsar's error body, or the beginning of any other answer."""
    try:
        reason = msgspec.json.decode(text, type=_Reason).reason
    except msgspec.DecodeError:
        reason = ""
    shown = reason[:REASON_CHARS_MAX] or text.decode(errors="replace")[:PAGE_CHARS_MAX]
    return " ".join(shown.split()) or "no explanation"


def _fault_of(url: str, error: Exception) -> str:
    """What is wrong with the address, and the client's own words where they do not say it."""
    address = urlsplit(url).netloc
    fault = fault_of_connection(address, error)
    if fault is None and isinstance(error, httpx.RemoteProtocolError):
        if "illegal" in str(error):
            return f"{address} does not speak HTTP, which admin_url asks for ({error})"
        if "without sending a response" in str(error):
            return f"{address} closed the connection without an answer: perhaps it does not speak HTTP, which admin_url asks for"
    return fault or f"{type(error).__name__}: {words_of(error)}"


def _is_untrusted(error: BaseException | None) -> bool:
    """Whether TLS found the broker's certificate wrong: unlike a broker that is down, that does not pass by itself."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def _tls_of(target: PulsarTarget) -> ssl.SSLContext | bool:
    """Certificates are always verified, host names too; plain HTTP needs none."""
    if not target.admin_url.startswith("https://"):
        return True
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
        if target.certificate_file is not None:
            context.load_cert_chain(target.certificate_file, target.key_file)
    except OSError as error:
        raise CredentialsError(
            f"ca_file {target.ca_file!r}, certificate_file {target.certificate_file!r} or key_file cannot be read: {words_of(error)}"
        ) from error
    return context


def _read_text(file: str, name: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{name} {file} cannot be read: {words_of(error)}") from error


def _one_token(text: str, where: str) -> str:
    """The token without the white space around it; one that no header can carry is refused here, where its value is not shown."""
    token = text.strip()
    if not token:
        raise CredentialsError(f"{where} holds no token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsError(
            f"{where} holds more than a token (its value is not shown): write one line of printable ASCII, without a byte order mark"
        )
    return token
