"""`make watch`: a Prometheus process that looks at a running `make demo`, for machines without Docker.

It shows what the alerts and the recorded numbers say; the dashboards need Grafana, which deploy/compose.yaml brings.
"""

import argparse
import sys
import tempfile
import threading
from pathlib import Path

from deploy.local.demo.child import METRICS_PORT
from deploy.local.prometheus import Prometheus, PrometheusError
from streaming.stopping import stopped_by_signals

PORT = 9090
"""Prometheus' own default."""
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
    return parser.parse_args()


def main() -> int:
    """Run until Ctrl-C; 1 when there is no Prometheus or it ends by itself."""
    asked = _arguments()
    stopping = threading.Event()

    target = f"127.0.0.1:{asked.metrics_port}"
    try:
        with (
            stopped_by_signals(lambda _: stopping.set()),
            tempfile.TemporaryDirectory(prefix="trimtab-watch-") as directory,
            Prometheus(Path(directory), target=target, port=asked.port) as prometheus,
        ):
            print(f"alerts at {prometheus.url}/alerts, watching {target}/metrics; Ctrl-C ends it", flush=True)
            while not stopping.wait(CHECK_S):
                prometheus.check()
    except PrometheusError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
