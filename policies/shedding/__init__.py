"""Which bundles to move away from which broker. One module per policy, with the same names in each."""
