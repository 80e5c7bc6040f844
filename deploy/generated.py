"""Files that are generated and committed: writing them, and finding those that are stale."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click


def write(pages: Mapping[str, str], folder: Path, *, owned: str) -> None:
    """Write the pages, by their path below ``folder``, and remove files that match ``owned`` and that nothing generates."""
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in _find_surplus(pages, folder, owned):
        path.unlink()


def problems(pages: Mapping[str, str], folder: Path, *, owned: str) -> list[str]:
    """One line for each page that is missing, stale or surplus."""
    lines = []
    for name, text in sorted(pages.items()):
        path = folder / name
        if not path.is_file():
            lines.append(f"{path} is missing")
        elif path.read_text(encoding="utf-8") != text:
            lines.append(f"{path} is stale")
    surplus = _find_surplus(pages, folder, owned)
    return lines + [f"{path} is surplus: nothing generates it" for path in surplus]


def _find_surplus(pages: Mapping[str, str], folder: Path, owned: str) -> list[Path]:
    return [path for path in sorted(folder.glob(owned)) if str(path.relative_to(folder)) not in pages]


def command(render: Callable[[], Mapping[str, str]], folder: Path, *, owned: str) -> click.Command:
    """The command that writes the pages anew, or with ``--check`` says which of them are not as they would be written."""

    @click.command()
    @click.option(
        "--check", is_flag=True, help="Write nothing; exit with 1 if a page is missing, stale or surplus."
    )
    @click.option(
        "--to",
        "target",
        type=click.Path(file_okay=False, path_type=Path),
        default=folder,
        help="Folder of the pages (default: that of the clone).",
    )
    def main(*, check: bool, target: Path) -> None:
        """Write the generated pages anew."""
        pages = render()
        if not check:
            write(pages, target, owned=owned)
            click.echo(f"{len(pages)} pages written to {target}")
            return
        lines = problems(pages, target, owned=owned)
        if lines:
            click.echo("\n".join([*lines, "Run: make docs"]), err=True)
            sys.exit(1)

    return main
