"""Messages in and out, their encoding, and the metric families. Knows no broker."""
