"""A broker that gives over HTTP the answers that a test sets, also those that a real broker cannot be made to give."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, dict[str, str], bytes | None]
"""Status, headers and body; with a None body the broker never answers."""


@dataclass(slots=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    body: bytes
    authorization: str | None


def answer_owner(asked: Asked, owner: str) -> Answer:
    """As a broker answers ``topicHashPositions`` of a bundle that the broker at the URL ``owner`` has, or nobody if it is empty."""
    if not owner:
        return 412, {}, b'{"reason": "Failed to find ownership for ServiceUnit"}'
    if "authoritative=" in asked.path:
        return 200, {}, b'{"topicHashPositions": {}}'
    return 307, {"Location": f"{owner}{asked.path}&authoritative=false"}, b""


@dataclass(slots=True)
class Broker:
    """A broker that answers each request with what ``answer`` returns."""

    answer: Callable[[Asked], Answer]
    asked: list[Asked] = field(default_factory=list)
    tls: ssl.SSLContext | None = None
    pause_s: float = 0.0
    """Seconds before each byte of a body."""
    released: threading.Event = field(default_factory=threading.Event)
    server: ThreadingHTTPServer = field(init=False)

    def __post_init__(self) -> None:
        broker = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Asked(self.command, self.path, body, self.headers.get("Authorization"))
                broker.asked.append(request)
                status, headers, answer = broker.answer(request)
                if answer is None:
                    broker.released.wait(30)
                    return
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(answer))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if not broker.pause_s:
                    self.wfile.write(answer)
                    return
                with suppress(OSError):  # the client may leave
                    for byte in answer:
                        broker.released.wait(broker.pause_s)
                        self.wfile.write(bytes([byte]))

            do_GET = do_PUT = do_POST = _any  # noqa: N815  the base class's names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Be quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if self.tls is not None:
            self.server.socket = self.tls.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


Brokers = Callable[[Callable[[Asked], Answer]], Broker]
"""A function that makes a broker with such answers."""


@contextmanager
def http_brokers(tls: ssl.SSLContext | None = None) -> Iterator[Brokers]:
    """A function that makes brokers; they are closed at the end of the block. With ``tls`` they speak https."""
    made: list[Broker] = []

    def make(answer: Callable[[Asked], Answer]) -> Broker:
        made.append(Broker(answer, tls=tls))
        return made[-1]

    yield make
    for broker in made:
        broker.close()
