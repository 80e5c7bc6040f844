"""``trimtab simulate``: a fleet that does not exist, in event time, balanced by the controller that runs live.

The model, its assumptions and its limits are on the page docs/understand/simulations.md.
"""
