"""Python functions as conjuncts: they take columns of candidates and return one boolean per candidate.

A predicate is called with NumPy arrays, where the join has Arrow arrays:

Arrow                          NumPy
BOOLEAN, integers, floats      the same type; NaN stays NaN
TIMESTAMP                      datetime64[us], UTC
TIMESTAMP_NTZ, DATE            datetime64[us], datetime64[D]
INTERVAL DAY TO SECOND         timedelta64[us]
anything else                  object: str, bytes, Decimal, arrays of a list, dict

NumPy has no NULL. A candidate that has a NULL in one of the columns is not passed to the function, and does
not join.
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.arguments import describe_given, refuse_non_text
from thetastream.core.errors import QueryError

Form = Literal["plain", "dictionary", "numpy"]
"""How a predicate receives its columns."""
PLAIN: Final = "plain"
DICTIONARY: Final = "dictionary"
NUMPY: Final = "numpy"


@dataclass(frozen=True)
class Predicate:
    """A vectorised Python predicate. It can still be called as the function that it marks.

    ``columns`` lists (alias, column names): the columns of each stream that the function reads. ``form`` says
    how the function receives them. It has the name, the docstring and the signature of the function.
    """

    function: Callable[..., Any]
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    form: str = PLAIN
    is_stable: bool = False
    """Whether the function always finds the same for the same values, so that it may join changes."""
    version: str = ""
    """The version of a stable function, which the user gave it."""

    def __post_init__(self) -> None:
        # functools.update_wrapper cannot set attributes of a frozen dataclass.
        for attribute in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(self.function, attribute):
                object.__setattr__(self, attribute, getattr(self.function, attribute))
        object.__setattr__(self, "__wrapped__", self.function)

    @property
    def name(self) -> str:
        """Name of the function, for explain and for error messages."""
        return getattr(self.function, "__qualname__", None) or repr(self.function)

    @property
    def is_encoded(self) -> bool:
        """Whether the function receives dictionary-encoded columns, for which no value is copied."""
        return self.form == DICTIONARY

    def adapt(self, is_instant: Callable[[str, str], bool]) -> Callable[..., Any]:
        """Return the function as units call it, with Arrow arrays.

        ``is_instant(alias, column)`` says whether a column is a TIMESTAMP.
        """
        if self.form != NUMPY:
            return self.function
        named = [(alias, name) for alias, names in self.columns for name in names]
        return NumpyCall(self.function, [pair for pair in named if is_instant(*pair)])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # The function's name in its module refers to this object, so pickle cannot find the function itself.
        module, qualname = self.function.__module__, self.name
        if module != "__main__" and _find(module, qualname) is self:
            return _find, (module, qualname)
        return Predicate, (self.function, self.columns, self.form, self.is_stable, self.version)


def _find(module: str, qualname: str) -> Any:
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def predicate(form: Form = "plain", /, **columns: Sequence[str]) -> Callable[[Callable[..., Any]], Predicate]:
    """Mark a vectorised function as a join condition.

    The function is called with one keyword argument per alias. The argument is an object that has the columns
    of this alias as arrays of equal length, one value per candidate. The function returns as many booleans.
    When a join is planned, the function is called once with two made-up rows, so that an operation that does
    not exist for a type, an unknown column and a result that is not boolean are found before the query
    starts. Any other exception of this call is ignored, because it may be due to the made-up values.

    Parameters
    ----------
    form : "plain", "numpy" or "dictionary"
        How the function receives columns.

        - "plain": as Arrow arrays. A TIMESTAMP is int64 microseconds since 1970 (UTC), and a year-month
          interval is int32 months. NULL in the answer counts as false.
        - "numpy": as NumPy arrays, so that ``a.x > b.y`` works. Numbers keep their types, times are
          datetime64, and texts are objects. A candidate with a NULL in one of the columns does not join, and
          the function does not see it.
        - "dictionary": as ``pyarrow.DictionaryArray``: the values of the tuples as they lie in memory, and
          for each candidate the index of its value. No value is copied. For wide values, for example images,
          the function decides what to copy, or it does its work once per value.
    **columns : sequence of str
        For each alias, the columns that the function reads.

    Raises
    ------
    QueryError
        PREDICATE_FORM if ``form`` is not one of these.
        PREDICATE_COLUMNS if no alias is named, or the columns of one are not a list of names.
        PREDICATE_PARAMETERS if the function does not take one keyword argument per alias.

    Examples
    --------
    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> @predicate("numpy", a=["x"], b=["y"])
    ... def close(a, b):
    ...     '''Whether x and y differ by 1 at most.'''
    ...     return np.abs(a.x - b.y) <= 1
    >>> close.columns, close.__doc__
    ((('a', ('x',)), ('b', ('y',))), 'Whether x and y differ by 1 at most.')
    >>> close(SimpleNamespace(x=np.array([1, 5])), SimpleNamespace(y=np.array([2, 9]))).tolist()
    [True, False]

    The same function over Arrow arrays:

    >>> import pyarrow.compute as pc
    >>> @predicate(a=["x"], b=["y"])
    ... def close(a, b):
    ...     return pc.less_equal(pc.abs(pc.subtract(a.x, b.y)), 1)
    """
    if not callable(form) and form not in (PLAIN, DICTIONARY, NUMPY):
        raise QueryError(
            "PREDICATE_FORM", f"form must be {PLAIN!r}, {NUMPY!r} or {DICTIONARY!r}, not {form!r}"
        )
    if callable(form) or not columns:
        raise QueryError(
            "PREDICATE_COLUMNS", 'a predicate must name its columns; write @th.predicate(a=["x"], b=["y"])'
        )
    if len({alias.casefold() for alias in columns}) < len(columns):
        raise QueryError(
            "PREDICATE_COLUMNS", f"aliases ignore case, so two of {', '.join(columns)} are the same"
        )
    for alias, names in columns.items():
        is_list = isinstance(names, Sequence) and not isinstance(names, str | bytes)
        if not is_list or not all(isinstance(name, str) for name in names):
            what = f"the columns of alias {alias!r} must be a list of names, not {describe_given(names)}"
            hint = f"{alias}=[{names!r}]" if isinstance(names, str) else f'{alias}=["x", "y"]'
            raise QueryError("PREDICATE_COLUMNS", f"{what}; write {hint}")
    listed = tuple((alias, tuple(names)) for alias, names in columns.items())

    def mark(function: Callable[..., Any]) -> Predicate:
        marked = Predicate(function, listed, form)
        _check_parameters(marked)
        return marked

    return mark


def stable(predicate: Predicate, version: str) -> Predicate:
    """Declare that a predicate always finds the same for the same values, so that it may join changes.

    A delete must find the partners that its insert has found, perhaps weeks before and in another process. So
    the function must not read a clock, random values, or data that change, such as a model that is trained
    again. The version is a part of the query's identity: with another version, a checkpoint is refused.

    Parameters
    ----------
    predicate : Predicate
        A function that ``@th.predicate`` marks.
    version : str
        The version of the function and of all that it reads. Give another one when its answers change.

    Returns
    -------
    Predicate
        The same function, for joins of ``thetastream.changes`` and all others.

    Raises
    ------
    QueryError
        BAD_VALUE if the function is not marked, or the version is no text.

    Examples
    --------
    >>> import numpy as np
    >>> @predicate("numpy", a=["x"], b=["y"])
    ... def close(a, b):
    ...     return np.abs(a.x - b.y) <= 1
    >>> close = stable(close, version="1")
    >>> close.version
    '1'
    """
    if not isinstance(predicate, Predicate):
        what = "th.stable needs a function that @th.predicate marks"
        raise QueryError("BAD_VALUE", f"{what}, not {describe_given(predicate)}")
    refuse_non_text(version, "version", 'version="1"')
    return replace(predicate, is_stable=True, version=version)


def _check_parameters(marked: Predicate) -> None:
    """Raise PREDICATE_PARAMETERS unless the function can be called with one keyword argument per alias."""
    aliases = [alias for alias, _ in marked.columns]
    try:
        inspect.signature(marked.function).bind(**dict.fromkeys(aliases))
    except TypeError as error:
        call = ", ".join(f"{alias}=..." for alias in aliases)
        raise QueryError(
            "PREDICATE_PARAMETERS",
            f"predicate {marked.name} is called as {marked.name}({call}), but its parameters do not fit: "
            f"{error}; write def {marked.name.rpartition('.')[2]}({', '.join(aliases)})",
        ) from None
    except ValueError:
        pass  # Some functions that are written in C have no signature.


class NumpyCall:
    """A function that takes Arrow columns and calls a predicate with NumPy columns.

    Parameters
    ----------
    function : callable
        The predicate. It takes one object with columns per alias, as keyword arguments.
    instants : collection of (alias, column)
        The columns that hold instants as int64 microseconds since 1970.

    Examples
    --------
    >>> call = NumpyCall(lambda a, b: a.x > b.y, ())
    >>> columns = SimpleNamespace(x=pa.array([1, None, 3])), SimpleNamespace(y=pa.array([2, 2, 2]))
    >>> call(a=columns[0], b=columns[1]).tolist()
    [False, False, True]
    """

    def __init__(self, function: Callable[..., Any], instants: Collection[tuple[str, str]]) -> None:
        self._function = function
        self._instants = frozenset(instants)

    def __call__(self, **sides: Any) -> Any:
        """Return the answer of the predicate: one boolean per candidate, false where a column is NULL."""
        columns = {alias: vars(side) for alias, side in sides.items()}
        known = _find_known(column for side in columns.values() for column in side.values())
        if known is not None:
            columns = {
                alias: {name: column.filter(known) for name, column in side.items()}
                for alias, side in columns.items()
            }
        arguments = {
            alias: SimpleNamespace(
                **{name: self._to_numpy(alias, name, column) for name, column in side.items()}
            )
            for alias, side in columns.items()
        }
        if known is None:
            return self._function(**arguments)
        is_match = known.to_numpy(zero_copy_only=False).copy()
        n = int(is_match.sum())
        if n:
            answer = np.asarray(self._function(**arguments))
            if answer.dtype != np.bool_ or answer.shape != (n,):
                raise ValueError(f"it must return {n} booleans, not {answer.dtype} of shape {answer.shape}")
            is_match[is_match] = answer
        return is_match

    def _to_numpy(self, alias: str, name: str, column: pa.Array) -> Any:
        values = column.to_numpy(zero_copy_only=False)
        return values.view("datetime64[us]") if (alias, name) in self._instants else values


def _find_known(columns: Any) -> pa.Array | None:
    """Return which rows have no NULL in any column. Return None if all rows have none."""
    known: pa.Array | None = None
    for column in columns:
        if column.null_count:
            valid = pc.is_valid(column)
            known = valid if known is None else pc.and_(known, valid)
    return known
