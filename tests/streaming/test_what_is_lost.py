"""Whoever is told to start with --fresh, --adopt or --skip-lost is told what is lost by it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from state.layouts import FRESH
from streaming.ports.starts import ADOPT, SKIP_LOST

ROOT = Path(__file__).parents[2]
OPTION = re.compile(r"--(fresh|adopt|skip-lost)")
DEFINED = ("state/layouts.py", "streaming/ports/starts.py", "streaming/cli/run.py")
NO_ADVICE = (
    "gave it up",
    "or --adopt wrote it",
    "published before `--adopt`",
    "--skip-lost: %s",
    "(?:fresh|adopt|skip-lost)",
)


def texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Every string that is not a docstring."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node


def test_each_of_the_options_says_what_is_lost_by_it():
    assert re.search("forgets .*averages.*cooldowns.*budgets.*in flight", FRESH)
    assert re.search("forgets .*published again.*act twice", ADOPT)
    assert re.search("without the lost records for good", SKIP_LOST)


def test_no_message_recommends_such_an_option_without_saying_what_is_lost():
    bare = [
        f"{file.relative_to(ROOT)}:{text.lineno}: {text.value}"
        for folder in ("policies", "state", "streaming")
        for file in sorted((ROOT / folder).rglob("*.py"))
        if str(file.relative_to(ROOT)) not in DEFINED
        for text in texts(ast.parse(file.read_text(encoding="utf-8")))
        if OPTION.search(text.value) and not any(each in text.value for each in NO_ADVICE)
    ]
    assert not bare, "\n".join(["use FRESH, ADOPT or SKIP_LOST:", *bare])
