"""Settings that make checkpoints of tests cheap."""

CHECKPOINT_FILES: dict[str, str | bool] = {
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": False,
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings under which Spark writes a checkpoint with few processes.

By default, Hadoop starts ten processes (chmod, readlink) to write a file, and ten more for its checksum file.
This is a third of the CPU time of a small query. Processes of their own, which tests kill, keep the default.
"""
