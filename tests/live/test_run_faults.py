"""What a person reads of an address that does not answer: one line that names the cause, soon, and nothing of the client's search.

No broker is needed: what listens, if anything does, is a web server.
"""

import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deploy.local.processes import free_ports
from tests.support.processes import TRIMTAB, Child

pytestmark = pytest.mark.live

SOON_S = 6.0
"""Three seconds on an idle machine; without the look at the address it is the client's ten."""
PROGRAMS = {"run": ["run"], "collect": ["collect", "kafka", "east"], "execute": ["execute", "kafka", "east"]}


class Web(BaseHTTPRequestHandler):
    """Answers as any web server does."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def closed_port() -> str:
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


def settings(directory: Path, url: str, *, security: str = "") -> Path:
    admin = url.replace("pulsar://", "http://") if url.startswith("pulsar") else "http://127.0.0.1:1"
    config = directory / "trimtab.toml"
    config.write_text(
        f'[input]\nurl = "{url}"\n{security}\n[input.pulsar]\nadmin_url = "{admin}"\n'
        f'[spark]\ncheckpoint = "{directory}/checkpoint"\n'
        f"[metrics]\nport = 0\ncollector_port = 0\nexecutor_port = 0\n"
        f"[targets.east.kafka]\nbootstrap = '{url.partition('://')[2]}'\n"
    )
    return config


def told(directory: Path, program: str, url: str, *, security: str = "") -> str:
    """The one line about the fault; fails when there are others, or when it comes late."""
    config = settings(directory, url, security=security)
    with Child((*TRIMTAB, *PROGRAMS[program], "--config", str(config)), directory / "run.log") as child:
        began = child.url
        child.until(lambda: "trying again" in child.output, "the line")
        first, line, *more = child.output.splitlines()
        assert began in first
        assert not more or all("trying again" in each for each in more)
        took = datetime.fromisoformat(line[:23].replace(",", ".")) - datetime.fromisoformat(
            first[:23].replace(",", ".")
        )
        assert took.total_seconds() < SOON_S
        assert child.terminate() == 0
    return line


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_closed_port_is_one_line_of_every_program(program: str, tmp_path: Path):
    address = closed_port()
    assert f"nothing listens at {address} (connection refused)" in told(
        tmp_path, program, f"kafka://{address}"
    )


@pytest.mark.parametrize("system", ["kafka", "pulsar"])
def test_an_unknown_host_is_one_line(system: str, tmp_path: Path):
    line = told(tmp_path, "run", f"{system}://no-such-host.invalid:9092")
    assert "the host of no-such-host.invalid:9092 is unknown" in line


def test_a_closed_port_of_pulsar_is_one_line(tmp_path: Path):
    address = closed_port()
    assert f"nothing listens at {address} (connection refused)" in told(
        tmp_path, "run", f"pulsar://{address}"
    )


@pytest.mark.parametrize(
    ("security", "fault"),
    [
        ("", "speaks HTTP, not the protocol of Kafka"),
        ("security.protocol = 'ssl'", "does not speak TLS, which the settings ask for"),
    ],
)
def test_another_protocol_is_one_line(security: str, fault: str, web: str, tmp_path: Path):
    assert f"{web} {fault}" in told(tmp_path, "run", f"kafka://{web}", security=security)
