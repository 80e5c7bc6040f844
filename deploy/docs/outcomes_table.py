"""The table of what a policy says of a pair or broker, in ``docs/decisions.md``: all of it is declared with the policies."""

from collections.abc import Iterator

from policies.shedding.contract import OutcomeText
from policies.shedding.registry import POLICIES

BEGIN, END = (
    "<!-- outcomes: written by `python -m deploy.docs` from the policies -->\n",
    "<!-- end of outcomes -->\n",
)


def render_outcomes(page: str) -> str:
    """The page with its table written anew. Raises ValueError if a mark is missing."""
    before, after = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:before]}{''.join(_lines())}{page[after:]}"


def _lines() -> Iterator[str]:
    yield "| outcome | meaning | what to do |\n|---|---|---|\n"
    for name, text in _texts().items():
        advice = f" {text.advice} " if text.advice else " "
        yield f"| `{text.example or name}` | {text.meaning} |{advice}|\n"


def _texts() -> dict[str, OutcomeText]:
    """Every outcome once, in the order of the policies."""
    found: dict[str, OutcomeText] = {}
    for policy in POLICIES:
        for outcome in policy.outcomes:
            found.setdefault(outcome, policy.text_of(outcome))
    return found
