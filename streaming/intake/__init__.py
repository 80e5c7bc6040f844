"""From records to outputs, and what the driver is told of it: the way in for the Spark operator and for replay."""
