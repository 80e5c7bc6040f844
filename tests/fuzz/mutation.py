"""Damage for records: bytes, types, extremes, times, names, deep nesting; all of it drawn from one seeded ``Random``."""

import copy
import json
from random import Random
from typing import Any

NUMBERS: list[Any] = [
    *(0, -0.0, 1, -1, -2, 2, 0.5, 99.9, 100, 101, 1e-18, 1e-19, 5e-324, 1e-310, 1e18, 1.0000001e18, 1e19),
    *(1e305, 1.7976931348623157e308, -1e300, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**25),
    *(
        10**400,
        -(2**63),
        -(2**63) - 1,
        float("nan"),
        float("inf"),
        float("-inf"),
        3.0000000000000004,
        1e9,
        1e9 + 1,
    ),
]
TIMES: list[Any] = [
    *(
        "1970-01-01T00:00:00Z",
        "1969-12-31T23:59:59.999Z",
        "0001-01-01T00:00:00+23:59",
        "0001-01-01T00:00:00Z",
    ),
    *(
        "9999-12-31T23:59:59.999999-23:59",
        "9999-12-31T23:59:59Z",
        "8999-12-31T23:59:59Z",
        "2026-11-21T13:21Z",
    ),
    *(
        "2026-02-30T00:00:00Z",
        "2026-11-21T13:21:60Z",
        "2026-11-21T13:21:25",
        "2026-11-21t13:21:25z",
        "\ud800",
    ),
    *("2026-11-21T13:21:25.206Z\ud800", "٢٠٢٦-11-21T13:21:25Z", "2026-11-21T13:21:25+24:00", " ", "0"),
]
TEXTS: list[Any] = [
    *(
        "",
        " ",
        "\x00",
        "\n",
        "a\nb",
        "\ud800",
        "\udfff",
        "ü",
        "\u2028",
        "é" * 300,
        "x" * 5000,
        "NaN",
        "Infinity",
    ),
    *(
        "t/n/0x00000000_0x80000000",
        "t/n/0x0_0x0",
        "t/n/0xffffffff_0x00000000",
        "t/n/0xZ_0x1",
        "/",
        "//0x0_0x1",
    ),
    *(
        "pulsar/b1:8080/0x0_0xffffffff",
        "../..",
        "0:1,0:1",
        "0:",
        "*",
        "0:2147483648",
        ":" * 100,
        "-",
        ".",
        "..",
    ),
    *(
        "(",
        "[",
        "(a+)+$",
        "(?=x)",
        r"\1",
        "(?P<a",
        ".*",
        "a{100000}",
        "(" * 500,
        "\\",
        "x*" * 100,
        "null",
        "true",
    ),
    *(
        "act",
        "dry-run",
        "succeeded",
        "failed",
        "1.0",
        "application/json",
        "99999999999999999999",
        "-1",
        "101",
    ),
]
_LIKE: dict[type, list[Any]] = {int: NUMBERS, float: NUMBERS, str: TEXTS, bool: [True, False]}
OTHERS: list[Any] = [
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"usage": -1, "limit": -1},
    ["x"] * 300,
]
TOKENS = [
    *(
        b"NaN",
        b"1e999",
        b"-1",
        b"null",
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\\ud800",
        b"\xff",
        b"\x00",
    ),
    *(b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\\u0000", b"1e308", b"9" * 400, b"\xef\xbb\xbf"),
]


def extreme(random: Random, like: Any = None) -> Any:
    """A value that something may not expect; mostly of the type of ``like``, so that it gets further."""
    pool = random.choices((NUMBERS, TIMES, TEXTS, OTHERS), (5, 1, 3, 2))[0]
    if random.random() < 0.7:
        pool = _LIKE.get(type(like), pool)
    value = copy.deepcopy(random.choice(pool))
    return nested(value, random) if random.random() < 0.01 else value


def nested(value: Any, random: Random) -> Any:
    """Deep down; as deep as Python itself writes."""
    for _ in range(random.choice((2, 20, 150, 400))):
        value = {"a": value} if random.random() < 0.5 else [value]
    return value


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every container in a tree with each of its keys or indexes."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        at = waiting.pop()
        inner = list(at.items()) if isinstance(at, dict) else list(enumerate(at))
        found.extend((at, key) for key, _ in inner)
        waiting.extend(value for _, value in inner if isinstance(value, dict | list))
    return found


def mutate(event: dict[str, Any], random: Random) -> dict[str, Any]:
    """The event with something in it replaced, scaled, removed, repeated, renamed or swapped."""
    found = copy.deepcopy(event)
    part = found.get("data") if random.random() < 0.8 else found
    at = places(part if isinstance(part, dict) and part else found)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        holder, key = random.choice(at)
        if _is_there(holder, key):
            _damage(holder, key, at, random)
    return found


def _is_there(holder: Any, key: Any) -> bool:
    """Whether an earlier mutation has left it."""
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _damage(holder: Any, key: Any, at: list[tuple[Any, Any]], random: Random) -> None:
    value = holder[key]
    kind = random.random()
    if kind < 0.45:
        holder[key] = extreme(random, value)
    elif kind < 0.65 and isinstance(value, int | float) and not isinstance(value, bool):
        holder[key] = _scaled(value, random)
    elif kind < 0.72:
        other, place = random.choice(at)
        try:
            holder[key] = copy.deepcopy(other[place])
        except (KeyError, IndexError):
            holder[key] = extreme(random)
    elif kind < 0.8:
        del holder[key]
    elif isinstance(holder, dict):
        name = random.choice(TEXTS) if random.random() < 0.5 else f"{key}x"
        holder[name] = copy.deepcopy(value) if random.random() < 0.5 else extreme(random)
    else:
        holder.extend([copy.deepcopy(value)] * random.choice((1, 1, 3, 50)))


def _scaled(value: float, random: Random) -> Any:
    scale = random.choice((0, -1, 0.1, 10, 1e6, 1e12, 1e300))
    try:
        found = value * scale
        return int(found) if isinstance(value, int) and abs(found) < 2**70 else found
    except OverflowError:
        return value


def encoded(event: dict[str, Any], random: Random) -> bytes:
    """As JSON, escaped or in UTF-8 (with what is none of it), then perhaps with damaged bytes."""
    if random.random() < 0.7:
        value = json.dumps(event).encode()
    else:
        value = json.dumps(event, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return damaged(value, random) if random.random() < 0.1 else value


def damaged(value: bytes, random: Random) -> bytes:
    """With some bytes replaced, cut off or inserted."""
    found = bytearray(value)
    for _ in range(random.choice((1, 1, 2, 5))):
        place = random.randrange(len(found) + 1)
        new = random.choice(TOKENS) if random.random() < 0.7 else random.randbytes(random.randrange(4))
        found[place : place + random.choice((0, 1, 3, len(new)))] = new
    if random.random() < 0.1:
        del found[random.randrange(len(found) + 1) :]
    if random.random() < 0.02:
        place = found.find(b'"data"')
        depth = random.choice((200, 1000, 20_000))
        found[place + 8 : place + 8] = b'{"a":' * depth + b"1" + b"}" * random.choice((0, depth))
    return bytes(found)
