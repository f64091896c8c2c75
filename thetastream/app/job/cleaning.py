"""Removes files of a stopped query: messages that were read, temporary files and cached segments.

If the query will never run again, its mailboxes, control folders, reports and its checkpoint are removed too.
Nothing is removed while the query runs. A query on this machine holds a lock. A query on another machine
shows itself only by recent changes of its checkpoint.
"""

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from os import getuid
from pathlib import Path

import pyarrow as pa

from thetastream.app.job.checkpoint import Checkpoint, ControlPlace, MailboxPlace, lock
from thetastream.app.job.spec import is_local
from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import ThetastreamError
from thetastream.core.folder import Folder, split_path
from thetastream.runtime.control.files import LINKS, ControlFolder, ControlLinks, name_control
from thetastream.runtime.observe.running import is_marked
from thetastream.runtime.punctuations import PUNCTUATIONS
from thetastream.runtime.shed_loads import LOADS
from thetastream.runtime.state.segment_cache import choose_cache_root, list_stale
from thetastream.spark.sources.idle import REPORTS

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}")


@dataclass(frozen=True)
class ObsoletePath:
    """A file or a folder that a stopped query does not need any more."""

    what: str
    root: str
    name: str
    """A file or a folder inside ``root``."""
    nbytes: int

    @property
    def path(self) -> str:
        """The path or URI."""
        return f"{hide_secrets(self.root).rstrip('/')}/{self.name}"

    def remove(self) -> None:
        """Remove it."""
        Folder(self.root, self.name).remove()


def clean(
    found: Checkpoint,
    for_good: bool = False,
    dry_run: bool = False,
    min_age_s: float = 3600,
    mailbox: str | None = None,
    cache_folder: str | None = None,
) -> list[ObsoletePath]:
    """Remove the files of a stopped query that no restart needs, and return them.

    Parameters
    ----------
    found : Checkpoint
    for_good : bool
        Whether the query will never run again. If so, its mailboxes, its reports and its checkpoint are
        removed too.
    dry_run : bool
        If it is True, nothing is removed.
    min_age_s : float
        The checkpoint must not have changed for this many seconds.
    mailbox : str, optional
        The folder of mailboxes, if it is not the one that the checkpoint names.
    cache_folder : str, optional
        The folder of cached segments on this host, if the query names one.

    Raises
    ------
    ThetastreamError
        CHECKPOINT_IN_USE if the query runs, or may run; MAILBOX_UNUSABLE if its mailboxes cannot be opened.
    """
    if is_marked(found.query):
        what = f"{hide_secrets(found.path)} belongs to query {found.query}, which runs on this machine"
        raise ThetastreamError("CHECKPOINT_IN_USE", f"{what}; stop it first")
    age_s, path = time.time() - found.changed_ms / 1000, hide_secrets(found.path)
    if found.begun >= 0 and age_s < min_age_s:
        what = f"{path} must not have changed for {min_age_s:g} s; it changed {age_s:.0f} s ago"
        raise ThetastreamError(
            "CHECKPOINT_IN_USE", f"{what}, so its query may be running; wait, or give --min-age 0s"
        )
    with lock(found.path) if is_local(found.path) else nullcontext():
        try:
            leftovers = list(list_leftovers(found, for_good, mailbox, cache_folder))
        except (OSError, pa.ArrowException) as error:
            what = f"the mailboxes of {path} must be in a folder that can be opened; name it with --mailbox"
            raise ThetastreamError("MAILBOX_UNUSABLE", f"{what}: {error}") from None
        if not dry_run:
            for leftover in leftovers:
                leftover.remove()
    return leftovers


def list_leftovers(
    found: Checkpoint, for_good: bool, mailbox: str | None, cache_folder: str | None
) -> Iterator[ObsoletePath]:
    """Yield the files and folders that ``clean`` removes. The checkpoint and its log come last."""
    places = [join.mailbox for join in found.joins if join.mailbox is not None]
    roots = {root for place in places if (root := mailbox or place.root) is not None}
    roots |= {mailbox} if mailbox else set()
    for place in places:
        root = mailbox or place.root
        if root is not None:
            yield from _list_mailbox(root, place, for_good, found.committed == found.begun)
    if for_good:
        for join in found.joins:
            if join.control is not None:
                yield from _list_control(join.control, found.query)
        for root in sorted(roots | {f"{tempfile.gettempdir()}/thetastream-mailboxes-{getuid()}"}):
            yield from _list_reports(root, found.query)
            for name in Folder(root, "").list_files():
                if name.startswith(f"{LOADS}{found.query}-"):
                    yield _measure_leftover("loads for a shedder", root, name)
                elif name == f"{PUNCTUATIONS}{found.query}":
                    yield _measure_leftover("punctuations", root, name)
    for path in list_stale(choose_cache_root(cache_folder)):
        yield ObsoletePath("cached segment", str(path.parent), path.name, _measure(path))
    if for_good:
        yield _measure_leftover("checkpoint", *split_path(found.path))
        log = Path(f"{found.path.rstrip('/')}.log")
        if is_local(found.path) and log.is_file():
            yield ObsoletePath("log of the job", str(log.parent), log.name, log.stat().st_size)


def _list_mailbox(
    root: str, place: MailboxPlace, for_good: bool, is_committed: bool
) -> Iterator[ObsoletePath]:
    folder = Folder(root, place.name)
    names = folder.list_files()
    if not names:
        return
    if for_good:
        yield _measure_leftover("mailbox", root, place.name)
        return
    # The last epoch reads the messages of ``place.epoch``. It runs again if it is not committed.
    read = place.epoch if is_committed else place.epoch - 1
    for name in names:
        inside = f"{place.name}/{name}"
        if name.isdecimal() and int(name) <= read:
            yield _measure_leftover("messages that were read", root, inside)
        elif name.isdecimal():
            for file, (_, size) in folder.list_files(name).items():
                if _TEMPORARY.fullmatch(file):
                    yield ObsoletePath("temporary file", root, f"{inside}/{file}", size)


def _list_control(place: ControlPlace, query: str) -> Iterator[ObsoletePath]:
    """Yield the control folder of a join, and the link to it."""
    if ControlFolder(place.root, place.name).is_made:
        yield _measure_leftover("control folder", place.root, name_control(place.name))
    link = f"{query}-{place.join}"
    found = ControlLinks(place.root).list_files().get(link)
    if found is not None:
        yield ObsoletePath("link to a control folder", place.root, f"{LINKS}/{link}", found[1])


def _list_reports(root: str, query: str) -> Iterator[ObsoletePath]:
    """Yield the reports that the units of a query wrote about idle streams."""
    for name in Folder(root, "").list_files():
        if name.startswith(REPORTS):
            for file, (_, size) in Folder(root, name).list_files().items():
                if file.startswith(query):
                    yield ObsoletePath("report about an idle stream", root, f"{name}/{file}", size)


def _measure_leftover(what: str, root: str, name: str) -> ObsoletePath:
    return ObsoletePath(what, root, name, Folder(root, name).measure("")[1])


def _measure(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    return sum(file.lstat().st_size for file in files)
