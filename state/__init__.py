"""Decides when to act: one cluster as a pure state machine, with events in and outputs out.

No clock, randomness, environment or I/O: the same events in the same order give the same bytes, in the Spark
application, in ``trimtab replay`` and in every test.
"""
