"""Finds kinds of stores by name, and makes stores from texts and from tables of parameters.

    parquet:out/pairs                            the kind, and its first parameter
    postgres:postgresql:///results?table=pairs   the other parameters stand behind ?
    postgresql:///results?table=pairs            a scheme that belongs to one kind names this kind
    out/pairs, s3://bucket/pairs                 anything else is the path of a Parquet store

``REGISTRY`` has the kinds of this package, and those that a program adds to it. Another package offers a
kind by an entry point of the group ``thetastream.stores``, whose name is the name of the kind. It is loaded
when its kind is named. A kind of this package cannot be replaced in this way.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_type_hints
from urllib.parse import unquote

from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import QueryError, ThetastreamError, raise_problems, suggest_or_list
from thetastream.core.folder import is_uri
from thetastream.results.store import Store
from thetastream.stores.cassandra import CassandraStore
from thetastream.stores.delta import DeltaStore
from thetastream.stores.hbase import HBaseStore
from thetastream.stores.parquet import ParquetStore
from thetastream.stores.postgres import PostgresStore

GROUP = "thetastream.stores"
"""The group of the entry points by which other packages offer kinds of stores."""
REGISTRY: dict[str, type[Store]] = {
    store.kind: store for store in (ParquetStore, DeltaStore, PostgresStore, CassandraStore, HBaseStore)
}
"""The kinds of stores of this package, and those that a program adds, by name."""
_KIND = re.compile(r"[a-z][a-z0-9_-]+")
_TYPES = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}


def list_kinds() -> list[str]:
    """List the names of all kinds of stores, those of other packages included.

    >>> list_kinds()[:5]
    ['parquet', 'delta', 'postgres', 'cassandra', 'hbase']
    """
    return [*REGISTRY, *sorted({one.name for one in entry_points(group=GROUP)} - REGISTRY.keys())]


def find_kind(name: str) -> type[Store]:
    """Find a kind of store by its name.

    Raises
    ------
    QueryError
        BAD_VALUE if there is no such kind. STORE_PLUGIN if the entry point of another package is no store.
    """
    if name in REGISTRY:
        return REGISTRY[name]
    for point in entry_points(group=GROUP, name=name):
        return _load(point)
    hint = suggest_or_list(name, list_kinds())
    raise QueryError("BAD_VALUE", f"store must name a kind of store, and {name!r} is none{hint}")


def make_store(kind: str, parameters: Mapping[str, object]) -> Store:
    """Make a store from the name of its kind and its parameters.

    >>> make_store("hbase", {"address": "host:9090", "table": "pairs"})
    HBaseStore(address='host:9090', table='pairs')

    Raises
    ------
    QueryError
        All problems together: UNKNOWN_KEY, MISSING_KEY or BAD_VALUE, and STORE_PLUGIN.
    """
    found = find_kind(kind)
    known, problems = _list_parameters(found), list[ThetastreamError]()
    for name, value in parameters.items():
        if name not in known:
            hint = suggest_or_list(name, known)
            problems.append(QueryError("UNKNOWN_KEY", f"a store of the kind {kind} has no {name!r}{hint}"))
        elif not _fits(value, _read_type(found, name)):
            what = f"{name!r} of a store of the kind {kind} must be {_TYPES[_read_type(found, name)]}"
            problems.append(QueryError("BAD_VALUE", f"{what}, not {value!r}"))
    problems += [
        QueryError("MISSING_KEY", f"a store of the kind {kind} must have {name!r}")
        for name, one in known.items()
        if name not in parameters and _is_required(one)
    ]
    raise_problems(problems)
    return found(**parameters)


def read_store(text: str, resolve: Callable[[str], str] = str) -> Store:
    """Make a store from one text: ``kind:address?parameter=value``, or the path of a Parquet store.

    Options of an address that are no parameters of the kind stay in the address. ``resolve`` makes a path
    absolute.

    >>> read_store("out/pairs") == read_store("parquet:out/pairs")
    True
    >>> read_store("hbase:host:9090?table=pairs")
    HBaseStore(address='host:9090', table='pairs')
    >>> read_store("postgresql:///results?sslmode=require&table=pairs").url
    'postgresql:///results?sslmode=require'

    Raises
    ------
    QueryError
        As in ``make_store``.
    """
    kind, address = _split_kind(text)
    first, *others = _list_parameters(find_kind(kind))
    given: dict[str, object] = {}
    if others:
        address, _, options = address.partition("?")
        kept = []
        for option in options.split("&"):
            name, equals, value = option.partition("=")
            if equals and name in others:
                given[name] = _read_value(unquote(value), _read_type(find_kind(kind), name))
            elif option:
                kept.append(option)
        address += "?" * bool(kept) + "&".join(kept)
    if not address:
        raise QueryError("BAD_VALUE", f"a store must be a path or KIND:ADDRESS, not {text!r}")
    if first == "path":
        address = resolve(address)
    return make_store(kind, {first: address} | given)


def name_store(store: Store) -> str:
    """Return a short name for a store: the last part of its last required parameter, without secrets.

    >>> name_store(ParquetStore("s3://key:secret@bucket/pairs/"))
    'pairs'
    >>> name_store(HBaseStore("host:9090", "trades"))
    'trades'
    """
    *_, last = (name for name, one in _list_parameters(type(store)).items() if _is_required(one))
    return hide_secrets(str(getattr(store, last))).rstrip("/").rpartition("/")[2]


def _split_kind(text: str) -> tuple[str, str]:
    """Split a text into the name of a kind and an address."""
    head, colon, rest = text.partition(":")
    if rest.startswith("//"):
        by_scheme = [kind for kind, found in REGISTRY.items() if head in found.schemes]
        by_scheme += [one.name for one in entry_points(group=GROUP, name=head) if head not in REGISTRY]
        return (by_scheme or [ParquetStore.kind])[0], text
    if not colon or not _KIND.fullmatch(head) or (is_uri(text) and head not in REGISTRY):
        return ParquetStore.kind, text
    find_kind(head)
    return head, rest


def _load(point: EntryPoint) -> type[Store]:
    where = f"the entry point {point.name!r} of the group {GROUP} ({point.value})"
    try:
        found = point.load()
    except Exception as error:  # The code of another package may raise anything.
        raise QueryError("STORE_PLUGIN", f"{where} cannot be loaded: {error}") from error
    if not isinstance(found, type) or not issubclass(found, Store) or not is_dataclass(found):
        raise QueryError("STORE_PLUGIN", f"{where} must name a subclass of Store that is a dataclass")
    return found


def _list_parameters(kind: type[Store]) -> dict[str, "Field[Any]"]:
    return {one.name: one for one in fields(kind) if one.init}  # type: ignore[arg-type]


def _is_required(parameter: "Field[Any]") -> bool:
    return parameter.default is MISSING and parameter.default_factory is MISSING


def _read_type(kind: type[Store], name: str) -> type:
    """Read the declared type of a parameter. Types of which a text cannot be read count as text."""
    declared = get_type_hints(kind)[name]
    return declared if declared in _TYPES else str


def _fits(value: object, kind: type) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _read_value(text: str, kind: type) -> object:
    """Read the value of a parameter; text that is no such value is returned, and refused with its name."""
    if kind is bool:
        return {"true": True, "false": False}.get(text, text)
    try:
        return kind(text)
    except ValueError:
        return text
