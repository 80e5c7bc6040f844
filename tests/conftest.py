"""What holds for every test."""

from hypothesis import settings

settings.register_profile("trimtab", deadline=None)  # speed is a matter of `make bench`; machines are shared
settings.load_profile("trimtab")
