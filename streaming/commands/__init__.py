"""The commands of ``trimtab``, one a module; ``streaming.cli`` puts them together."""
