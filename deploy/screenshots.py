"""``docs/use/backtest.png``: the page of docs/use/backtest.md as a browser shows it.

``python -m deploy.screenshots`` writes it; it needs Chromium or Chrome.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PICTURE: Final = ROOT / "docs" / "use" / "backtest.png"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LIMIT_S = 120
_SIZE = "1400,1500"
_BACKTEST = (
    "backtest", "--policy", "avg-shedder", "--policy", "fleet-planner", "tests/recordings/demo-6-brokers.ndjson.gz",
)  # fmt: skip


def browser() -> str | None:
    """A browser that runs without a screen; None where none is installed."""
    return next((path for name in _BROWSERS if (path := shutil.which(name)) is not None), None)


def shown_text(page: Path) -> str:
    """The page's document after its scripts have run."""
    return _browse(page, "--dump-dom")


def picture(page: Path, file: Path) -> None:
    """Take a picture of the upper part of a page."""
    _browse(page, f"--screenshot={file}", f"--window-size={_SIZE}", "--hide-scrollbars")


def _browse(page: Path, *options: str) -> str:
    program = browser()
    if program is None:
        raise SystemExit(f"none of {', '.join(_BROWSERS)} is installed")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="trimtab-browser-") as profile:
        common = ["--headless", "--disable-gpu", f"--user-data-dir={profile}", "--virtual-time-budget=10000"]
        done = subprocess.run(
            [program, *common, *sandbox, *options, page.resolve().as_uri()],
            check=True,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
    return done.stdout


def main() -> None:
    """Write the picture anew."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        trimtab = [sys.executable, "-c", "from streaming.cli import main; main()"]
        subprocess.run(
            [*trimtab, *_BACKTEST, "--html", str(page)],
            check=True,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            timeout=_LIMIT_S,
        )
        picture(page, PICTURE)
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
