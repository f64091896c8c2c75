"""A Python function as a conjunct: candidates' columns in, one boolean per candidate out."""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thetastream.errors import QueryError

PLAIN, DICTIONARY = "plain", "dictionary"


@dataclass(frozen=True)
class Predicate:
    """A vectorised Python predicate; still callable as the function it marks.

    ``columns`` lists (alias, column names): what the function reads of each stream.
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
        # The decorator took the function's place in its module, so pickle finds the mark, not the function.
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
        "dictionary" hands columns over as ``pyarrow.DictionaryArray``: the tuples' values as they lie in
        memory, and for each candidate which one it is. No value is copied, so for wide ones, images say, the
        function decides what to copy, or does its work once for each value.
    **columns : sequence of str
        Per alias the columns the function reads. It is called with one keyword argument per alias, an
        object that has those columns as Arrow arrays of equal length, and returns that many booleans.
        A TIMESTAMP arrives as int64 microseconds since 1970 (UTC), a year-month interval as int32
        months; NULL in the answer counts as false.

    Raises
    ------
    QueryError
        PREDICATE_FORM if ``form`` is neither.
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
        raise QueryError("PREDICATE_COLUMNS", f"aliases ignore case, so two of {', '.join(columns)} are one")
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
