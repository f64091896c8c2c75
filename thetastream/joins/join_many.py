"""``th.join_many`` runs several joins of the same two streams over one exchange."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from thetastream.families.options import TaskOptions, takes
from thetastream.joins.tasks import JoinTasks, plan_tasks
from thetastream.models.base import Model, ModelName

if TYPE_CHECKING:
    from thetastream.joins.ask.streams import Input


@takes(TaskOptions)
def join_many(
    streams: "Mapping[str, Input]",
    tasks: Mapping[str, Mapping[str, Any]],
    model: Model | ModelName | None = None,
    **options: Unpack[TaskOptions],
) -> JoinTasks:
    """Join the same two streams several times over one exchange, so that each tuple is sent once.

    Join tasks share the exchange if they run in one query, so start the DataFrame ``together``. Spark runs
    one query for each ``writeStream``. Therefore the DataFrame of one task, started alone, is what
    ``th.join`` would return, with an exchange of its own.

    Parameters
    ----------
    streams : mapping of alias to DataFrame
        Two streams, or two batch DataFrames. One DataFrame may appear under both aliases.
    tasks : mapping of name to mapping
        What each task joins: ``on``, and optionally ``within``, ``index`` and ``archive_period``, as in
        ``join``. Windows must be time windows.
    model : Model, optional
        The model of all tasks. It must route by tuples alone, as ``th.Biclique(units)``, ``th.Matrix``,
        ``th.Split`` and ``th.Chain`` do. On a chain that hands on tuples, each worker has an instance of the
        handshake join for each task (ESJ, architecture). If the model is left out, the biclique with equal
        sides that fills the partitions runs.
    **options
        They apply to all tasks, and a task's own ``index`` or ``archive_period`` comes first.

    Returns
    -------
    JoinTasks
        A mapping of name to DataFrame, with ``together``, ``split(batch)`` and ``explain()``. For queries
        with ``max_tasks``, it also has ``add`` and ``remove``.

    Raises
    ------
    QueryError
        It is TASKS, TASKS_MODEL, MAX_TASKS, CANNOT_ADD_TASK (``max_tasks`` and deletes), COUNT_WINDOW, or an
        error of ``join``. It is raised before anything starts, and it names the task. ``InvalidQuery`` lists
        several problems.
    SessionError
        The Spark session lacks a setting that the join needs.

    Examples
    --------
    >>> import thetastream as th
    >>> pairs = th.join_many(
    ...     {"a": trades, "b": quotes},
    ...     tasks={
    ...         "near": {"on": "abs(a.price - b.bid) <= 0.05", "within": "10 seconds"},
    ...         "same": {"on": "a.symbol = b.symbol AND a.qty > b.qty", "within": "5 minutes"},
    ...     },
    ... )  # doctest: +SKIP
    >>> def save(batch, epoch):
    ...     for name, found in pairs.split(batch).items():
    ...         found.write.mode("append").parquet(f"out/{name}")
    >>> query = pairs.together.writeStream.foreachBatch(save).start()  # doctest: +SKIP
    """
    return plan_tasks(streams, tasks, model, options)
