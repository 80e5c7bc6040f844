"""What to do: pure functions over columns.

A policy takes a snapshot of one cluster, its own memory and its settings, and returns decisions, the memory's
next value and an explanation. Nothing here uses a clock, randomness, the environment, I/O, Spark or JSON.
"""
