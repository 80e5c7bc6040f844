"""One message of every type as each version of trimtab writes or takes it; today's code has to read them all.

`golden_messages/vX.Y.Z` belongs to a version. A released version's is never changed; that of the version in
`pyproject.toml`, while it is not released, is written anew by `python -m tests.streaming.golden`.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

from streaming.docs.kinds import KINDS
from streaming.docs.recorded import replay_recording

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_name("golden_messages")


def version() -> str:
    """Of the clone; newer than every released one."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def folders() -> list[Path]:
    """A folder for each version."""
    return sorted(GOLDEN.glob("v*"))


def messages(folder: Path) -> dict[str, dict[str, Any]]:
    """Events of a version by their type."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {event["type"]: event for event in found}


def main() -> None:
    """Write the messages of the version in ``pyproject.toml``: the examples of the docs."""
    folder = GOLDEN / f"v{version()}"
    folder.mkdir(parents=True, exist_ok=True)
    examples = replay_recording(ROOT).examples
    for kind in KINDS:
        text = json.dumps(examples[kind.message], indent=1, ensure_ascii=False)
        (folder / f"{kind.type}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
