"""The wire: CloudEvents 1.0 as structured JSON, one event a record. Loads neither Spark nor a broker's client."""
