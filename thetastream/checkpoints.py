"""Repairs of checkpoints and of files behind them. Commands of the same names do the same."""

from thetastream.runtime.checkpoint_files import update_paths
from thetastream.spark.sinks.file_sink_log import finish_epoch

__all__ = ["finish_epoch", "update_paths"]
