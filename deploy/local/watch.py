"""`make watch`: a Prometheus, and a Grafana where one is installed, that look at a running `make demo` without Docker."""

import argparse
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

from deploy.local import grafana
from deploy.local.demo.child import METRICS_PORT
from deploy.local.grafana import Grafana
from deploy.local.prometheus import Prometheus
from deploy.local.watching import Watcher, WatcherError
from streaming.stopping import stopped_by_signals

PORT, GRAFANA_PORT = 9090, 3000
"""Their own defaults."""
CHECK_S = 1.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.watch",
        description="A Prometheus that looks at a controller on this machine.",
    )
    parser.add_argument(
        "--metrics-port", type=int, default=METRICS_PORT, help="of the controller (%(default)s)"
    )
    parser.add_argument("--port", type=int, default=PORT, help="to serve Prometheus on (%(default)s)")
    parser.add_argument(
        "--grafana-port", type=int, default=GRAFANA_PORT, help="to serve Grafana on (%(default)s)"
    )
    return parser.parse_args()


def main() -> int:
    """Run until Ctrl-C; 1 when there is no Prometheus or a server ends by itself."""
    asked = _arguments()
    stopping = threading.Event()

    target = f"127.0.0.1:{asked.metrics_port}"
    try:
        with (
            stopped_by_signals(lambda _: stopping.set()),
            tempfile.TemporaryDirectory(prefix="trimtab-watch-") as directory,
            ExitStack() as servers,
        ):
            prometheus = Prometheus(Path(directory), target=target, port=asked.port)
            watchers: list[Watcher] = [servers.enter_context(prometheus)]
            print(f"alerts at {prometheus.url}/alerts, watching {target}/metrics; Ctrl-C ends it", flush=True)
            if grafana.find() is None:
                print(f"no dashboards: there is no grafana on the PATH ({grafana.INSTALL})", flush=True)
            else:
                watchers.append(servers.enter_context(_dashboards(asked, Path(directory), prometheus)))
                print(f"dashboards at {watchers[-1].url}", flush=True)
            while not stopping.wait(CHECK_S):
                for watcher in watchers:
                    watcher.check()
    except WatcherError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _dashboards(asked: argparse.Namespace, directory: Path, prometheus: Prometheus) -> Grafana:
    return Grafana(directory / "grafana", prometheus_url=prometheus.url, port=asked.grafana_port)


if __name__ == "__main__":
    sys.exit(main())
