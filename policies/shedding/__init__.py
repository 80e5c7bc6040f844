"""Which bundles to move away from which broker. One policy a module, the same names in each."""
