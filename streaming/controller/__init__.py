"""``trimtab run``, ``replay`` and ``record``: batches, metrics, health."""
