"""A Pulsar cluster: its fleet, what may be touched, which bundles are unloaded or split, and its part of the summary."""
