"""`make watch`: a Prometheus, and a Grafana where one is installed, that look at a running `make demo` without Docker.

Grafana shows deploy/grafana. Everybody may look and nobody may change anything, as in deploy/compose.yaml. The
installation itself is not changed.
"""

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import yaml

from deploy.local.demo.trimtab import USUAL_PORTS
from deploy.local.processes import LocalError, interrupt_once
from deploy.local.prometheus import HttpServer, Prometheus

DEPLOY = Path(__file__).parents[1]
DASHBOARDS = DEPLOY / "grafana" / "dashboards"
PROVISIONING = DEPLOY / "grafana" / "provisioning"
RUNBOOKS = DEPLOY.parent / "docs" / "run" / "runbooks"
INSTALL = "https://grafana.com/docs/grafana/latest/setup-grafana/installation/"
_HOMES = ("..", "../share/grafana")
"""Its home in archives and in Homebrew, relative to the directory of the program."""
_PACKAGED = Path("/usr/share/grafana")
"""Home of the packages for Linux. What they put on the PATH is a script that reads the service's settings."""


def find() -> tuple[Path, Path] | None:
    """The program `grafana` (9.4 or newer), on the PATH or of a package, and its home with its defaults and pages."""
    on_path = shutil.which("grafana")
    beside = [] if on_path is None else [Path(on_path).resolve().parent / home for home in _HOMES]
    for home in (*beside, _PACKAGED):
        program = shutil.which("grafana", path=home / "bin") or on_path
        if program is not None and (home / "conf" / "defaults.ini").is_file():
            return Path(program), home.resolve()
    return None


class Grafana(HttpServer):
    """A server on loopback that shows the dashboards to everybody who reaches it, with its data and log in `directory`."""

    name = "Grafana"
    ready_path = "/api/health"
    ready_timeout_s = 120.0

    def __init__(self, directory: Path, *, prometheus_url: str, port: int) -> None:
        super().__init__(directory, port=port)
        self._prometheus_url = prometheus_url

    def _prepare(self) -> list[str]:
        grafana = find()
        if grafana is None:
            raise LocalError(f"Grafana is not installed: {INSTALL}")
        program, home = grafana
        self._provision()
        self._lay_pages_out(home)
        return [str(program), "server", "--homepath", str(home)]

    def _provision(self) -> None:
        """Write the provisioning files that the compose file uses, with this machine's paths and ports."""
        provider = yaml.safe_load((PROVISIONING / "dashboards/trimtab.yaml").read_text(encoding="utf-8"))
        provider["providers"][0]["options"]["path"] = str(DASHBOARDS)
        source = yaml.safe_load((PROVISIONING / "datasources/prometheus.yaml").read_text(encoding="utf-8"))
        source["datasources"][0]["url"] = self._prometheus_url
        for kind, content in {"dashboards": provider, "datasources": source}.items():
            directory = self._directory / "provisioning" / kind
            directory.mkdir(parents=True)
            (directory / "trimtab.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")

    def _lay_pages_out(self, home: Path) -> None:
        """Link its static files, and beside them the runbooks, where the panels' links point to."""
        pages = self._directory / "public"
        pages.mkdir()
        for page in (home / "public").iterdir():
            (pages / page.name).symlink_to(page)
        (pages / "runbooks").unlink(missing_ok=True)
        (pages / "runbooks").symlink_to(RUNBOOKS)

    def _environment(self) -> dict[str, str]:
        services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
        return {
            **services["grafana"]["environment"],
            "GF_SERVER_HTTP_PORT": str(self._port),
            "GF_SERVER_STATIC_ROOT_PATH": str(self._directory / "public"),
            "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(DASHBOARDS / "trimtab-overview.json"),
            "GF_PATHS_PROVISIONING": str(self._directory / "provisioning"),
            "GF_PATHS_DATA": str(self._directory / "data"),
            "GF_LOG_MODE": "console",
            "GF_PATHS_PLUGINS": str(self._directory / "plugins"),
        }


PORT, GRAFANA_PORT = 9090, 3000
"""Their own defaults."""
CHECK_S = 1.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.watch",
        description="Watch a controller, its collectors and executors on this machine with Prometheus, and Grafana if installed.",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        default=USUAL_PORTS["run"],
        help="port of the controller's metrics (%(default)s)",
    )
    parser.add_argument(
        "--program-ports",
        type=int,
        nargs="*",
        metavar="PORT",
        default=[USUAL_PORTS["collect"], USUAL_PORTS["execute"]],
        help="ports of collectors' and executors' metrics (%(default)s); one that nobody serves is shown as down",
    )
    parser.add_argument("--port", type=int, default=PORT, help="port for Prometheus (%(default)s)")
    parser.add_argument(
        "--grafana-port", type=int, default=GRAFANA_PORT, help="port for Grafana (%(default)s)"
    )
    return parser.parse_args()


def main() -> int:
    """Run until Ctrl-C; 1 when there is no Prometheus or a server ends by itself."""
    args = _arguments()
    interrupt_once()
    try:
        with tempfile.TemporaryDirectory(prefix="trimtab-watch-") as directory, ExitStack() as servers:
            watchers = _start(args, Path(directory), servers)
            while True:
                time.sleep(CHECK_S)
                for watcher in watchers:
                    watcher.check()
    except KeyboardInterrupt:
        return 0
    except LocalError as error:
        print(error, file=sys.stderr)
        return 1


def _start(args: argparse.Namespace, directory: Path, servers: ExitStack) -> list[HttpServer]:
    """Start Prometheus, and Grafana if possible; otherwise print why there is none."""
    target, *programs = (f"127.0.0.1:{port}" for port in (args.metrics_port, *args.program_ports))
    prometheus = Prometheus(directory / "prometheus", target=target, programs=programs, port=args.port)
    servers.enter_context(prometheus)
    watched = ", ".join(f"{each}/metrics" for each in (target, *programs))
    print(f"alerts at {prometheus.url}/alerts, watching {watched}; Ctrl-C ends it", flush=True)
    grafana = Grafana(directory / "grafana", prometheus_url=prometheus.url, port=args.grafana_port)
    try:
        servers.enter_context(grafana)
    except LocalError as error:
        print(f"no dashboards: {error}", flush=True)
        return [prometheus]
    print(f"dashboards at {grafana.url}", flush=True)
    return [prometheus, grafana]


if __name__ == "__main__":
    sys.exit(main())
