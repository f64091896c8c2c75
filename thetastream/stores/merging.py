"""Merges small files of a store into large ones, so that a reader opens fewer files.

In the merged file, the rows of each snapshot have their own row groups, so that any snapshot can still be
read. Rows that no snapshot has yet are not merged.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby

import pyarrow as pa

from thetastream.core.folder import Folder
from thetastream.stores.description import Description
from thetastream.stores.history import CommittedRows
from thetastream.stores.parquet_reader import read_file
from thetastream.stores.parquet_stage import open_writer, write_groups
from thetastream.stores.sealed_file import SealedFile
from thetastream.stores.sorted_stage import sort_by_keys
from thetastream.stores.staged import BoundsFinder, Staged

PREFIX = "merged-"
"""The beginning of the names of merged files."""


def plan_merges(held: Sequence[CommittedRows], target: int) -> Iterator[list[CommittedRows]]:
    """Yield lists of consecutive small files, which have ``target`` bytes together.

    Each list has at least two files. Files of half the target and more are not merged. A list before such a
    file, and the last list, may have fewer bytes.
    """
    waiting: list[CommittedRows] = []
    for one in held:
        is_small = one.snapshot is not None and one.staged.groups is None and 2 * one.staged.nbytes < target
        if is_small:
            waiting.append(one)
        if not is_small or sum(each.staged.nbytes for each in waiting) >= target:
            if len(waiting) > 1:
                yield waiting
            waiting = []
    if len(waiting) > 1:
        yield waiting


def merge(folder: Folder, held: Sequence[CommittedRows], description: Description) -> list[CommittedRows]:
    """Write the rows of several files into one; return its rows, snapshot by snapshot."""
    name, merged, group = f"{PREFIX}{uuid.uuid4().hex}.parquet", [], 0
    by_snapshot = sorted(held, key=lambda one: (one.snapshot or 0, one.query))
    file, writer = SealedFile(folder, name), None
    for (snapshot, query), parts in groupby(by_snapshot, key=lambda one: (one.snapshot, one.query)):
        table = pa.concat_tables(read_file(folder, one.staged) for one in parts)
        if description.keys:
            table = sort_by_keys(table, description.keys)
        writer = writer or open_writer(file, description, table)
        bounds, before, first = BoundsFinder(description.bounded), file.tell(), group
        group += write_groups(writer, table)
        bounds.add(table)
        place = first, group
        staged = Staged(name, len(table), file.tell() - before, bounds.bounds, place)
        merged.append(CommittedRows(staged, query, snapshot))
    file.begin_tail()
    if writer is not None:
        writer.close()
    seal = asdict(file.end())
    return [replace(one, staged=replace(one.staged, seal=seal)) for one in merged]
