"""Python functions as conjuncts: they take columns of candidates and return one boolean per candidate."""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thetastream.errors import QueryError

PLAIN, DICTIONARY = "plain", "dictionary"


@dataclass(frozen=True)
class Predicate:
    """A vectorised Python predicate. It can still be called as the function that it marks.

    ``columns`` lists (alias, column names): the columns of each stream that the function reads.
    """

    function: Callable[..., Any]
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    is_encoded: bool = False

    @property
    def name(self) -> str:
        """Name of the function, for explain and for error messages."""
        return getattr(self.function, "__qualname__", None) or repr(self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # The function's name in its module refers to this object, so pickle cannot find the function itself.
        module, qualname = self.function.__module__, self.name
        if module != "__main__" and _find(module, qualname) is self:
            return _find, (module, qualname)
        return Predicate, (self.function, self.columns, self.is_encoded)


def _find(module: str, qualname: str) -> Any:
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def predicate(form: str = PLAIN, /, **columns: Sequence[str]) -> Callable[[Callable[..., Any]], Predicate]:
    """Mark a vectorised function as a join condition.

    Parameters
    ----------
    form : "plain" or "dictionary"
        "dictionary" passes columns as ``pyarrow.DictionaryArray``: the values of the tuples as they lie in
        memory, and for each candidate the index of its value. No value is copied. For wide values, for
        example images, the function decides what to copy, or it does its work once per value.
    **columns : sequence of str
        For each alias, the columns that the function reads. The function is called with one keyword argument
        per alias. The argument is an object that has these columns as Arrow arrays of equal length. The
        function returns as many booleans. A TIMESTAMP is passed as int64 microseconds since 1970 (UTC), and a
        year-month interval as int32 months. NULL in the answer counts as false.

    Raises
    ------
    QueryError
        PREDICATE_FORM if ``form`` is not one of these.
        PREDICATE_COLUMNS if no alias is named, or the columns of one are not a list of names.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.compute as pc
    >>> from types import SimpleNamespace
    >>> @predicate(a=["x"], b=["y"])
    ... def close(a, b):
    ...     return pc.less_equal(pc.abs(pc.subtract(a.x, b.y)), 1)
    >>> close.columns
    (('a', ('x',)), ('b', ('y',)))
    >>> close(SimpleNamespace(x=pa.array([1, 5])), SimpleNamespace(y=pa.array([2, 9]))).to_pylist()
    [True, False]
    """
    if form not in (PLAIN, DICTIONARY):
        raise QueryError("PREDICATE_FORM", f"form must be {PLAIN!r} or {DICTIONARY!r}, not {form!r}")
    if not columns:
        raise QueryError(
            "PREDICATE_COLUMNS", 'a predicate names its columns: @th.predicate(a=["x"], b=["y"])'
        )
    if len({alias.casefold() for alias in columns}) < len(columns):
        raise QueryError(
            "PREDICATE_COLUMNS", f"aliases ignore case, so two of {', '.join(columns)} are the same"
        )
    for alias, names in columns.items():
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise QueryError(
                "PREDICATE_COLUMNS",
                f"the columns of alias {alias!r} must be a list of names, not {names!r}; "
                f"write {alias}=[{names!r}]",
            )
    listed = tuple((alias, tuple(names)) for alias, names in columns.items())

    def mark(function: Callable[..., Any]) -> Predicate:
        return Predicate(function, listed, form == DICTIONARY)

    return mark
