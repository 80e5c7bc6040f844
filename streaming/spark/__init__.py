"""The Spark side: source, stateful operator, checkpoint, session. Everything here may import pyspark."""
