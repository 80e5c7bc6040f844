"""Where it runs: the wire, settings, the Spark application, sources, sinks, metrics and the command line."""
