"""`make watch`: a Prometheus, and a Grafana where one is installed, that look at a running `make demo` without Docker."""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from deploy.local.demo.child import METRICS_PORT
from deploy.local.grafana import Grafana
from deploy.local.processes import interrupt_once
from deploy.local.prometheus import Prometheus
from deploy.local.watching import Watcher, WatcherError

PORT, GRAFANA_PORT = 9090, 3000
"""Their own defaults."""
CHECK_S = 1.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.watch",
        description="Watch a controller on this machine with Prometheus, and Grafana if installed.",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        default=METRICS_PORT,
        help="port of the controller's metrics (%(default)s)",
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
    except WatcherError as error:
        print(error, file=sys.stderr)
        return 1


def _start(args: argparse.Namespace, directory: Path, servers: ExitStack) -> list[Watcher]:
    """Start Prometheus, and Grafana if possible; otherwise print why there is none."""
    target = f"127.0.0.1:{args.metrics_port}"
    prometheus = Prometheus(directory / "prometheus", target=target, port=args.port)
    servers.enter_context(prometheus)
    print(f"alerts at {prometheus.url}/alerts, watching {target}/metrics; Ctrl-C ends it", flush=True)
    grafana = Grafana(directory / "grafana", prometheus_url=prometheus.url, port=args.grafana_port)
    try:
        servers.enter_context(grafana)
    except WatcherError as error:
        print(f"no dashboards: {error}", flush=True)
        return [prometheus]
    print(f"dashboards at {grafana.url}", flush=True)
    return [prometheus, grafana]


if __name__ == "__main__":
    sys.exit(main())
