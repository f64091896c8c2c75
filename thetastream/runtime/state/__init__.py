"""State of units in Spark's state store: the manifest and the durable segments."""
