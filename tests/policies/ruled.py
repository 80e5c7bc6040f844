"""Rules built by hand: brokers b1, b2 … with named bundles."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from policies.columns import Floats
from policies.shedding.rules import NO_GROUP, Limit, Rules, Spread

GROUPS = {"spread": ["t/a", "t/b", "t/c"], "other": ["t/x", "t/y"]}
A, B, C, X, FREE = (f"t/{name}/0x0_0x1" for name in ("a", "b", "c", "x", "free"))
MORE_OF_A, MORE_OF_B = "t/a/0x1_0x2", "t/b/0x1_0x2"


def rules_of(
    *owned: Sequence[str],
    drained: Sequence[str] | None = None,
    groups: Mapping[str, list[str]] = GROUPS,
    domains: Mapping[str, list[str]] | None = None,
    isolation: Sequence[int] | None = None,
    silent: Collection[str] = (),
    masked: Collection[str] = (),
    told: Collection[str] = (),
    keeps_sole: bool = False,
    limits: Mapping[str, float] | None = None,
    spent: Mapping[str, float] | None = None,
    costs: Mapping[str, Floats] | None = None,
) -> Rules:
    """Rules of brokers with these bundles, and of the drained broker ``gone``.

    ``silent`` brokers receive nothing, ``masked`` bundles may not be chosen, ``told`` were told to leave. ``limits`` are named after
    what they count (``broker``, ``namespace``, ``drain``, else the whole cluster), and so is what is ``spent`` already.
    """
    each = [*owned, *([] if drained is None else [drained])]
    brokers = [f"b{at}" for at in range(1, len(owned) + 1)] + ([] if drained is None else ["gone"])
    bundles = [name for names in each for name in names]
    namespaces = sorted({name.rpartition("/")[0] for name in bundles})
    namespace = np.array([namespaces.index(name.rpartition("/")[0]) for name in bundles], dtype=np.int64)
    counts = np.array([len(names) for names in each], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    leaving = np.array([name in told for name in bundles], dtype=np.bool_)
    group_of = {name: at for at, names in enumerate(groups.values()) for name in names}
    domain_of = {name: at for at, names in enumerate((domains or {}).values(), 1) for name in names}
    return Rules(
        brokers=brokers,
        starts=starts,
        movable=np.array([name not in masked for names in owned for name in names], dtype=np.bool_),
        may_receive=np.array([f"b{at}" not in silent for at in range(1, len(owned) + 1)]),
        isolation=None if isolation is None else np.array(isolation),
        namespace=namespace,
        spread=Spread(
            namespace=namespace,
            starts=starts,
            group=np.array([group_of.get(name, NO_GROUP) for name in namespaces], dtype=np.int64),
            groups=list(groups),
            domain=np.array([domain_of.get(name, 0) for name in brokers], dtype=np.int64),
            domains=["", *(domains or {})],
            brokers_count=len(owned),
        ),
        limits=tuple(
            _limit(
                name,
                most,
                float((spent or {}).get(name, 0)),
                len(brokers),
                len(namespaces),
                (costs or {}).get(name),
            )
            for name, most in (limits or {}).items()
        ),
        keeps_sole=keeps_sole,
        leaving=leaving,
        staying_counts=counts - [sum(name in told for name in names) for names in each],
    )


def _limit(
    name: str, most: float, spent: float, brokers_count: int, namespaces_count: int, costs: Floats | None
) -> Limit:
    if name == "broker":
        return Limit(name, most, np.full(brokers_count, spent), by="broker")
    if name == "namespace":
        return Limit(name, most, np.full(namespaces_count, spent), by="namespace")
    return Limit(
        name,
        most,
        np.array([spent]),
        drains={"drain": True, "hour": False}.get(name),
        costs=costs,
    )


def row_of(rules: Rules, broker: str, place: int = 0) -> int:
    """Row of a broker's bundle."""
    return rules.first_row_of(broker) + place
