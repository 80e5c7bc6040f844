"""A size as people write it: ``64MiB``, ``20GiB``, ``500MB``."""

import re

import click

_UNITS = {
    "": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SIZE = re.compile(r"(\d{1,12})\s?([A-Za-z]{0,3})")


class Size(click.ParamType[int]):
    """Bytes, with or without a unit; at least one."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Raises ``click.BadParameter``."""
        found = _SIZE.fullmatch(str(value).strip())
        unit = None if found is None else _UNITS.get(found[2])
        if found is None or unit is None or int(found[1]) < 1:
            self.fail(f"{value!r}: expected a size such as 64MiB, 20GiB or 500MB", param, ctx)
        return int(found[1]) * unit


def size_text(size_bytes: int) -> str:
    """The size in the largest binary unit that divides it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes % _UNITS[unit] == 0:
            return f"{size_bytes // _UNITS[unit]}{unit}"
    return f"{size_bytes}"
