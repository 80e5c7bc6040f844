"""From records to outputs, and what is reported to the driver about it: used by the Spark operator and by replay."""
