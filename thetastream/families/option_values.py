"""The values that options may have, and their readers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from thetastream.core.arguments import describe_given, read_path
from thetastream.core.errors import QueryError
from thetastream.core.spans import parse_nbytes
from thetastream.engine.order import read_order
from thetastream.index import REGISTRY as SHAPES

IndexName: TypeAlias = Literal[
    "scan", "sorted", "intervals", "hash", "hash_sorted", "grid", "tiles", "hash_tiles"
]
"""The names of the index shapes of this package. Another package may add shapes to the registry."""
Objective: TypeAlias = Literal["both", "throughput", "latency"]
"""What the planner chooses the number of nodes of a ring for (PSP, EDBT 2009, section 5.2)."""
OuterRows: TypeAlias = Literal["decided", "early"]
"""When rows of outer joins that have no partner are results."""
EARLY: Final = "early"
MOST_UNITS = 4096
"""The largest number of units that a model may have."""
MOST_TASKS = 256
"""The largest number of join tasks of a query that may change them. Each unit remembers all of them."""
Reader: TypeAlias = Callable[[object, str], object]
"""Takes a value and the name of its option. It returns the value to use, or raises QueryError."""


def keep(value: object, name: str) -> object:
    """Keep a value that can only be read together with the streams."""
    return value


def read_shape(value: object, name: str) -> object:
    """Read the name of an index shape, also of another package."""
    if not isinstance(value, str) or value not in SHAPES:
        raise QueryError("UNKNOWN_INDEX", f"{name} ({value!r}) must be one of {', '.join(SHAPES)}")
    return value


def read_event_time(value: object, name: str) -> object:
    """Read the name of a column, or one for each alias."""
    columns = value.values() if isinstance(value, Mapping) else [value]
    if not all(isinstance(column, str) for column in columns):
        what = f"{name} must be the name of a column, or a mapping of aliases to names"
        raise QueryError("EVENT_TIME", f"{what}, not {value!r}")
    return value


def read_columns(value: object, name: str) -> object:
    """Read names of columns for each alias."""
    entries = value.items() if isinstance(value, Mapping) else [(None, None)]
    if not all(isinstance(alias, str) and _is_list_of_names(names) for alias, names in entries):
        what = f"{name} must map aliases to lists of names of columns, as in {{'a': ['id']}}"
        raise QueryError("BAD_VALUE", f"{what}, not {describe_given(value)}")
    return value


def _is_list_of_names(value: object) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    return len(value) > 0 and all(isinstance(name, str) for name in value)


def read_bool(value: object, name: str) -> bool:
    """Read a boolean."""
    if not isinstance(value, bool):
        raise QueryError("BAD_VALUE", f"{name} must be true or false, not {describe_given(value)}")
    return value


def parse_bool(text: str) -> object:
    """Turn a text into a boolean; return any other text as it is."""
    return {"true": True, "false": False}.get(text.casefold(), text)


def parse_integer(text: str) -> object:
    """Turn a text into a whole number; return any other text as it is."""
    return int(text) if text.isdecimal() else text


def read_folder(condition: str) -> Reader:
    """Make the reader of a folder: a path, or a URI."""

    def read(value: object, name: str) -> str:
        return read_path(value, name, condition)

    return read


def read_local_folder(value: object, name: str) -> str:
    """Read a folder of each host, which is no URI."""
    folder = read_path(value, name, "CACHE_FOLDER")
    if "://" in folder:
        what = f"{name} must be a folder of each host, because segments are mapped into memory"
        raise QueryError("CACHE_FOLDER", f"{what}, not {folder}; give a path, as in {name}='/dev/shm/joins'")
    return folder


def read_number(most: int, condition: str) -> Reader:
    """Make the reader of a whole number from 1 to ``most``."""

    def read(value: object, name: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            what = f"{name} must be a number from 1 to {most}"
            raise QueryError(condition, f"{what}, not {describe_given(value)}")
        return value

    return read


def read_bytes(value: object, name: str) -> int:
    """Read a number of bytes."""
    nbytes = parse_nbytes(value)
    if nbytes is None:
        what = f'{name} must be a positive number of bytes, as in "20 GB"'
        raise QueryError("BAD_VALUE", f"{what}, not {describe_given(value)}")
    return nbytes


def read_instance(kind: type, condition: str, what: str) -> Reader:
    """Make the reader of a value of this package; ``what`` says how to write one."""

    def read(value: object, name: str) -> object:
        if not isinstance(value, kind):
            raise QueryError(condition, f"{name} must be {what}, not {value!r}")
        return value

    return read


def read_objective(value: object, name: str) -> object:
    """Read an ``Objective``."""
    if value not in get_args(Objective):
        listed = ", ".join(get_args(Objective))
        raise QueryError("OBJECTIVE", f"{name} must be one of {listed}, not {value!r}")
    return value


def read_result_order(value: Any, name: str) -> object:
    """Check an order of results, which is read again together with the model."""
    read_order(value, False)
    return value


def read_outer(value: object, name: str) -> object:
    """Read one of ``OuterRows``."""
    if value not in get_args(OuterRows):
        listed = " or ".join(map(repr, get_args(OuterRows)))
        raise QueryError("OUTER", f"{name} must be {listed}, not {describe_given(value)}")
    return value
