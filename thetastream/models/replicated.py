"""How the tuples of a stream are looked up in a staged table: ``th.Replicated``, or a matrix of one column.

    Replicated()                each task looks its tuples up in the whole table
    Matrix(n, 1, subgroups=n)   tuples are divided among n tasks by their keys; each needs a part of the table

A lookup has no units and no state, so ``Replicated`` is not in the registry of models.
"""

from dataclasses import dataclass

from thetastream.models.base import Model
from thetastream.models.matrix import Matrix


@dataclass(frozen=True)
class Replicated:
    """Each task looks its tuples up in the whole table, and each host keeps a copy of what its tuples need.

    This is the default of streams beside a table, as long as the table is not larger than the cache of a host
    (``table_cache=``). A larger table is refused if a join asks for ``th.Replicated()``. To divide the tuples
    among tasks, ask for ``th.Matrix(n, 1, subgroups=n)``.

    Examples
    --------
    >>> Replicated()
    Replicated()
    """


def count_lookup_partitions(model: Model | Replicated | str | None) -> int | None:
    """Count the partitions in which a model looks tuples up in a table; None if it is none of such models.

    >>> models = Replicated(), Matrix(4, 1, subgroups=4), Matrix(2, 2), "auto"
    >>> [count_lookup_partitions(model) for model in models]
    [1, 4, None, None]
    """
    if isinstance(model, Replicated):
        return 1
    if isinstance(model, Matrix) and model == Matrix(model.rows, 1, subgroups=model.rows):
        return model.rows
    return None
