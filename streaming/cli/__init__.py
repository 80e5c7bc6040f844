"""The command line: thin; the programs do the work."""

from streaming.cli.commands import main
