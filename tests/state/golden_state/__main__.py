"""``python -m tests.state.golden_state [--release]``: record what today's trimtab stores.

Until the layout is released, run it whenever a field of the memory changes. ``--release`` freezes it.
"""

import sys

from tests.state.golden_state.recorded import Released, write

if __name__ == "__main__":
    try:
        print(write(release="--release" in sys.argv[1:]))  # noqa: T201
    except Released as refused:
        sys.exit(str(refused))
