"""Settings that make checkpoints of tests cheap."""

CHECKPOINT_FILES: dict[str, str | bool] = {"spark.sql.streaming.checkpoint.fileChecksum.enabled": False}
"""Without this checksum, Hadoop starts half as many processes. Processes of their own, which tests kill, keep
the default."""
