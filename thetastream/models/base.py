"""The base class of models, which are pure routers, and the routes that they choose.

A model chooses the unit that stores a tuple and the units that probe with it. It sees hashes and places, but
no tuples, clocks or Spark. A route says which rows of a block go to which unit in which role. All routers of
two streams run the same unit (``thetastream.engine.two_stream.unit``) and differ only in their routes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from thetastream.core.keys import Int64s
from thetastream.core.sides import Role, Side
from thetastream.models.drawing import Drawing, row

ModelName: TypeAlias = Literal["auto", "spark"]
"""What ``model=`` may be beside a model: the planner chooses, or Spark joins."""
AUTO = "auto"
"""The value of a setting that the planner chooses."""
CHANGEABLE: Mapping[str, bool] = {"is_changeable": True}
"""The metadata of a field of a model that may differ when a query continues from its checkpoint."""


class Places(NamedTuple):
    """The place of each tuple, and the interval of places in which its partners lie; int64 per row.

    A tuple has partners only at the places from ``low`` to ``high``, both included.
    """

    own: Int64s
    low: Int64s
    high: Int64s


class Hashes:
    """The properties of the rows of a block that routers use. Each is computed when a router first reads it.

    Parameters
    ----------
    tuples : callable
        It returns the hash of each tuple, int64 of shape (n,).
    places : callable, optional
        It returns the places of the tuples. A model that ``needs_places`` always has it.

    Examples
    --------
    >>> Hashes(lambda: np.array([7, 9])).tuples % 2
    array([1, 1])
    """

    def __init__(self, tuples: Callable[[], Int64s], places: Callable[[], Places] | None = None) -> None:
        self._find_tuples, self._find_places = tuples, places

    @cached_property
    def tuples(self) -> Int64s:
        """The number of each tuple, which spreads tuples evenly, also equal ones, and in the same way when a
        Spark task is run again (``thetastream.engine.spreading``)."""
        return self._find_tuples()

    @cached_property
    def places(self) -> Places:
        """The places of the tuples, which follow from the values that the condition compares, for routing by
        content."""
        assert self._find_places is not None
        return self._find_places()


class Route(NamedTuple):
    """Some rows of a block go to one unit in one role."""

    unit: int
    role: Role
    rows: Int64s | None
    """Positions of the rows in the block; None means all rows."""


class Model(ABC):
    """The class of values that a user passes as ``model=``. Models are frozen, printable and picklable.

    A model chooses the unit that stores a tuple and the units that probe with it (``route``). The defaults
    are those of a router of two streams, so such a model defines only ``name``, ``n_units``, ``route`` and
    ``describe``. A field that may differ when a query starts again has the metadata ``CHANGEABLE``.
    """

    name: ClassVar[str]
    """The name of the model in the registry."""
    sizes: ClassVar[tuple[str, ...]] = ()
    """The fields that may change while a query runs; without them, the model cannot scale."""

    @property
    @abstractmethod
    def n_units(self) -> int:
        """The number of units, which are numbered from 0."""

    # Planning

    @classmethod
    def variants(
        cls, n_units: int, subgroups: Callable[[int], int], needs_partners: bool = False
    ) -> "Iterator[Model]":
        """Yield every setting of this model with ``n_units`` units, so that the planner can choose the
        cheapest.

        By default, the number of units is the only setting of a model. A model whose cost does not follow
        from its routes alone yields nothing: it runs only if a query names it.

        Parameters
        ----------
        n_units : int
            The number of units.
        subgroups : callable
            It returns the number of subgroups into which a number of units of one side may be divided.
        needs_partners : bool
            Whether to yield also the settings that bring partners together by content, for joins that answer
            each tuple.
        """
        yield cls(n_units)  # type: ignore[call-arg]

    # Features

    @property
    def runs_on_units(self) -> bool:
        """Whether plain units of two streams, which send no messages, run the model as it is."""
        return True

    # Routing

    @property
    def needs_places(self) -> str | None:
        """How the places that ``route`` uses follow from the condition: by ``hash``, by ``range``, or
        ``auto``, which takes what the condition offers. None if ``route`` uses no places."""
        return None

    @property
    def sees_all(self) -> bool:
        """Whether every unit receives every tuple, and so can number all tuples in the order of arrival."""
        return False

    def sees_partners(self, side: Side) -> bool:
        """Whether each tuple of ``side`` meets all its partners at one unit, which stores it.

        Outer, semi and anti joins need this for the streams that they preserve.
        """
        return False

    @abstractmethod
    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        """Yield the routes of the rows of one block."""

    def route_probes(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        """Yield the routes of rows that look for partners among tuples stored earlier, and are not stored."""
        for route in self.route(side, n_rows, hashes):
            if route.role is not Role.STORE:
                yield route._replace(role=Role.PROBE)

    def counts(self, unit: int, side: Side) -> bool:
        """Whether this unit counts the tuples of ``side`` that it receives. Other units do not count their
        copies."""
        return True

    def keeps(self, unit: int, sequence: Int64s, times: Int64s) -> npt.NDArray[np.bool_]:
        """Choose the tuples that a unit stores; called only if ``sees_all`` is true.

        ``sequence`` has the numbers of the tuples in their stream, and ``times`` their event times in
        microseconds.
        """
        raise NotImplementedError

    # Scaling

    def stores(self, unit: int) -> Sequence[Side]:
        """List the sides whose tuples a unit stores."""
        return tuple(Side)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Groups of units that share tuples evenly. A policy scales each group by its own load."""
        return (tuple(range(self.n_units)),)

    def resized(self, sizes: Sequence[int]) -> "Model":
        """Return the model in which each group has at least the number of units in ``sizes``.

        It is called only for models that can scale.
        """
        (name,) = self.sizes
        resized: Model = replace(self, **{name: sizes[0]})  # type: ignore[type-var]
        return resized

    def with_sizes(self, **sizes: object) -> "Model":
        """Return the model with new values of some of its ``sizes``."""
        changed: Model = replace(self, **sizes)  # type: ignore[type-var]
        return changed

    def shared_kind(self, unit: int) -> str | None:
        """Name the kind of a unit that may work for several generations of units at once.

        Units of equal kinds store the same sides, and a tuple of the other side probes all of them or none.
        None means that a unit works for one generation only.
        """
        return None

    # Stored tuples that move

    def first_copies(
        self, unit: int, side: Side, n_rows: int, places: Places | None
    ) -> npt.NDArray[np.bool_]:
        """Find the rows of ``side`` of which this unit stores the first copy.

        By default, a tuple is stored once.
        """
        return np.ones(n_rows, dtype=np.bool_)

    def probe_first_copies(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        """Yield the routes of rows that look for partners, if only the first copy of each partner is stored.

        By default, these are the routes of ``route_probes``, because a tuple is stored once.
        """
        yield from self.route_probes(side, n_rows, hashes)

    @abstractmethod
    def describe(self) -> str:
        """Describe the model in one line for ``explain``."""

    def draw(self) -> Drawing:
        """Draw the units. By default they stand side by side."""
        return row(["store and probe"] * self.n_units)


def keep_fixed(model: Model) -> Model:
    """Return the model with the default of each field that may differ when a query starts again.

    >>> from thetastream.models.chain import Chain
    >>> keep_fixed(Chain(3, block=64))
    Chain(workers=3)
    """
    if not is_dataclass(model):
        return model
    return replace(model, **{one.name: one.default for one in fields(model) if one.metadata == CHANGEABLE})


def is_model(value: object) -> TypeGuard[Model]:
    """Whether a value can be passed as ``model=``. A class of models, or the name of one, cannot."""
    return isinstance(value, Model)


def moves_tuples(model: Model) -> bool:
    """Whether units that leave move their tuples to units of this model, although the tuples will expire.

    A model without such a setting leaves them where they are.
    """
    return bool(getattr(model, "moves_tuples", False))


def is_positive(value: object) -> TypeGuard[int]:
    """Whether a value is a positive integer.

    >>> is_positive(2), is_positive(True), is_positive((2, 2))
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def read_positive_pair(value: object) -> tuple[int, int] | None:
    """Read a positive integer, which stands for a pair of equal numbers, or a pair; None for anything else.

    >>> read_positive_pair(2), read_positive_pair([1, 3]), read_positive_pair(0)
    ((2, 2), (1, 3), None)
    """
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(map(is_positive, pair)):
        return None
    return pair[0], pair[1]


def split(targets: Int64s, n_targets: int) -> Iterator[tuple[int, Int64s]]:
    """Yield (target, positions) for every target that has rows. Positions are in the order of the rows.

    ``targets`` are from 0 to ``n_targets`` - 1.

    >>> [(target, rows.tolist()) for target, rows in split(np.array([2, 0, 2]), 3)]
    [(0, [1]), (2, [0, 2])]
    """
    # NumPy sorts numbers of at most 16 bits by their digits.
    order = np.argsort(targets.astype(np.min_scalar_type(n_targets - 1)), kind="stable")
    ends = np.cumsum(np.bincount(targets, minlength=n_targets)).tolist()
    for target, (start, end) in enumerate(pairwise([0, *ends])):
        if start < end:
            yield target, order[start:end]
