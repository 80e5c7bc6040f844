"""A real Grafana as a process, where one is installed: it shows deploy/grafana with the data of a Prometheus of this machine.

Everybody may look and nobody may change anything, as in deploy/compose.yaml. The installation itself is not changed.
"""

import shutil
from pathlib import Path

import yaml

from deploy.local.watching import Watcher, WatcherError

DEPLOY = Path(__file__).parents[1]
DASHBOARDS = DEPLOY / "grafana" / "dashboards"
PROVISIONING = DEPLOY / "grafana" / "provisioning"
RUNBOOKS = DEPLOY.parent / "docs" / "runbooks"
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


class Grafana(Watcher):
    """A server on loopback that shows the dashboards to everybody who reaches it, with its data and log in `directory`."""

    name = "Grafana"
    ready_path = "/api/health"
    ready_timeout_s = 120.0

    def __init__(self, directory: Path, *, prometheus_url: str, port: int) -> None:
        super().__init__(directory, port=port)
        self._prometheus_url = prometheus_url

    def _prepare(self) -> list[str]:
        found = find()
        if found is None:
            raise WatcherError(f"Grafana is not installed: {INSTALL}")
        program, home = found
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
