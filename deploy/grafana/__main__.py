"""``python -m deploy.grafana [--check]``: write the dashboards, or say which of them are stale."""

from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.generated import command
from deploy.grafana import cluster, copies, overview, programs


def render() -> dict[str, str]:
    """The JSON of every dashboard, by file name."""
    builders = (
        overview.build,
        cluster.build,
        copies.build,
        programs.build_programs,
        programs.build_application,
    )
    boards = [build() for build in builders]
    encoder = JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False)
    return {f"{board.uid}.json": encoder.encode(board) + "\n" for board in boards}


main = command(render, Path(__file__).with_name("dashboards"), owned="*.json")

if __name__ == "__main__":
    main()
