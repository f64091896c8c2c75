"""Settings that make checkpoints of tests cheap."""

FAST_CHECKPOINTS: dict[str, str | bool] = {"spark.sql.streaming.checkpoint.fileChecksum.enabled": False}
"""Without this checksum, Hadoop starts half as many processes. Processes of their own, which tests kill, keep
the default."""
