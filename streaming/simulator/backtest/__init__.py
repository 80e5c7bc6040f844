"""``trimtab backtest``: what settings would have done to a recorded cluster.

Open loop: every candidate decides on what was recorded, and nothing it decides has an effect. Closed loop: what it decides changes what
the brokers report afterwards. The model, its assumptions and its limits are on the page docs/backtest.md.
"""
