"""How long something takes: the best of several, because everything that disturbs only ever adds."""

import gc
import math
import time
from collections.abc import Callable, Sequence


def best_cpu_s(run: Callable[[], object], *, times: int) -> float:
    """CPU seconds of the quickest of ``times`` calls; other processes on the machine count for little."""
    found = math.inf
    for _ in range(times):
        gc.collect()
        begun = time.process_time()
        run()
        found = min(found, time.process_time() - begun)
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of ``values`` do not exceed; ``values`` is not empty."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
