"""Changes the number of shuffle partitions of a stopped query.

    partition of unit u = pmod(hash(key(u)), partitions)

Spark rewrites the state of each stateful operator and commits it as an epoch of its own, which reads no
input. Units, their grouping keys, mailboxes and control folders do not depend on the number of partitions, so
they stay as they are.
"""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from thetastream.app.job.checkpoint import Checkpoint, lock, read_checkpoint, read_partitions
from thetastream.core.addresses import hide_secrets
from thetastream.core.arguments import refuse_non_integer
from thetastream.core.errors import SessionError, StateError, ThetastreamError
from thetastream.core.folder import is_uri
from thetastream.core.identity import CHOSEN
from thetastream.core.private_folder import make_temporary
from thetastream.joins.ask.refusals import read_first_line
from thetastream.runtime.checkpoint_files import update_paths
from thetastream.runtime.observe.running import is_running
from thetastream.spark.sinks.file_sink_log import complete_log

MANAGER = "_streamingCheckpointManager"
"""The attribute of a session that rewrites state. Classic sessions of PySpark 4.2 and later have it."""


class Rescaling(NamedTuple):
    """The number of shuffle partitions of a checkpoint before and after a call of ``rescale``."""

    before: int
    now: int
    chosen: tuple[str, ...]
    """The models that the planner chose: one for each join whose query names no model."""


def rescale(
    spark: SparkSession, checkpoint: str | Path, partitions: int, file_sink: str | Path | None = None
) -> Rescaling:
    """Change the number of shuffle partitions of a stopped query.

    The query continues after its last epoch when it starts again. The number of units stays the same. If the
    checkpoint already has this number of partitions, nothing changes.

    Parameters
    ----------
    spark : SparkSession
        A classic session, not one of Spark Connect.
    checkpoint : str or Path
        The checkpoint: a path, or a URI that both Spark and Arrow open.
    partitions : int
        The new number of shuffle partitions.
    file_sink : str or Path, optional
        The folder that the query writes with Spark's file sink, such as ``format("parquet")``. If it is left
        out, such a query stops within ten epochs with BATCH_METADATA_NOT_FOUND. A second call with the folder
        repairs the checkpoint. Other sinks and ``th.write`` do not need it.

    Returns
    -------
    Rescaling
        The numbers ``before`` and ``now``, and the models that the planner has ``chosen``. If the query names
        no model, give it the chosen model when it starts again, because ``auto`` might choose another one.

    Raises
    ------
    QueryError
        BAD_VALUE if the number is not positive.
    SessionError
        CANNOT_RESCALE if the session is one of Spark Connect, or of an earlier version of Spark.
    StateError
        EPOCH_UNFINISHED if the last epoch is not committed, or an earlier call for another number was
        interrupted. CANNOT_RESCALE if Spark refuses the checkpoint.
    ThetastreamError
        NO_CHECKPOINT if the folder is not a checkpoint; CHECKPOINT_IN_USE if its query runs.

    Examples
    --------
    >>> rescale(spark, "out/checkpoint", partitions=8)  # doctest: +SKIP
    """
    refuse_non_integer(partitions, "partitions", 1)
    manager = getattr(spark, MANAGER, None)
    if manager is None:
        what = "rescale needs a classic session of PySpark 4.2 or later"
        raise SessionError("CANNOT_RESCALE", f"{what}; this one is {type(spark).__module__}, {spark.version}")
    path = str(checkpoint)
    found = read_checkpoint(path)
    where = hide_secrets(found.path)
    if is_running(found.query):
        what = f"{where} belongs to query {found.query}, which runs on this machine"
        raise ThetastreamError("CHECKPOINT_IN_USE", f"{what}; stop it first")
    with lock(path):
        before = _find_partitions(found, partitions)
        if before != partitions:
            try:
                manager.repartition(_link(path), partitions, enforce_exactly_once_sink=True)
            except PySparkException as error:
                what = f"Spark cannot give {where} {partitions} partitions: {read_first_line(error)}"
                raise StateError("CANNOT_RESCALE", what) from None
            # Spark writes the paths of files with schemas into the state.
            update_paths(path)
        if file_sink is not None:
            complete_log(spark, str(file_sink), read_checkpoint(path).committed)
    words = (part.words for join in found.joins for part in join.identity.values() if part.rule == CHOSEN)
    return Rescaling(before, partitions, tuple(words))


def _link(path: str) -> str:
    """Link to a folder whose path has a space or another character that a URI escapes; return the link.

    Spark 4.3 escapes the path of the checkpoint twice when it rewrites state, so it looks in another folder.
    """
    if is_uri(path) or quote(path) == path:
        return path
    link = make_temporary("thetastream-rescale-") / "checkpoint"
    link.symlink_to(Path(path).absolute(), target_is_directory=True)
    return str(link)


def _find_partitions(found: Checkpoint, wanted: int) -> int:
    """Find the number of partitions of the last committed epoch, and refuse an epoch that is not committed.

    An interrupted call leaves an epoch that has begun with another number. A call for the same number
    completes this epoch.
    """
    where = hide_secrets(found.path)
    before = None if found.committed < 0 else read_partitions(found.path, found.committed)
    if before is None:
        raise StateError("EPOCH_UNFINISHED", f"{where} must have a committed epoch; it has none")
    if found.partitions not in (before, wanted):
        what = f"an earlier rescale of {where} to {found.partitions} partitions was interrupted"
        raise StateError("EPOCH_UNFINISHED", f"{what}; complete it before you ask for {wanted}")
    if found.begun != found.committed and found.partitions == before != wanted:
        what = f"epoch {found.begun} of {where} must be committed; it was interrupted"
        hint = "run the query once with trigger(availableNow=True), or thetastream run --until-caught-up"
        raise StateError("EPOCH_UNFINISHED", f"{what}. Let Spark repeat it first: {hint}")
    return before
