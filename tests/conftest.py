"""Settings for every test."""

from hypothesis import settings

settings.register_profile("trimtab", deadline=None)  # `make bench` measures speed; machines are shared
settings.load_profile("trimtab")
