"""When to do it: one cluster as a pure state machine, events in, outputs out.

No clock, randomness, environment or I/O: the same events in the same order give the same bytes, in the Spark
application, in ``trimtab replay`` and in every test.
"""
