"""Names what has ended a query where Spark has only a Java stack: a disk, a checkpoint, a process.

    the exception says                              condition
    no space is left, or a folder is read-only      DISK_FULL, READ_ONLY_FOLDER
    a file of the checkpoint cannot be read         CHECKPOINT_DAMAGED
    the process of a source is gone                 SOURCE_ENDED
    another driver has written to the checkpoint    CHECKPOINT_IN_USE

Most of these exceptions name no path, and often nothing at all. The classes in the stack then say which
folder or which file it is.
"""

import re
from typing import NamedTuple

from thetastream.core.errors import StateError, ThetastreamError
from thetastream.core.folder import AGAIN

_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large")
_READ_ONLY = re.compile(
    r"Read-only file system|\(Permission denied\)|: Permission denied|java\.nio\.file\.AccessDeniedException"
)
_PATH = re.compile(
    r"(?:FileNotFoundException|FileSystemException|AccessDeniedException|mkdir of|Mkdirs failed to create"
    r"|writing rows to|While \w+(?: \w+){0,3}):? (?:file:)?(/[^\s:()]+)"
)


class _Place(NamedTuple):
    """A folder into which Spark writes, the classes that write there, and what to do about it."""

    name: str
    classes: re.Pattern[str]
    hint: str


_PLACES = (
    _Place(
        "Spark's local files (spark.local.dir)",
        re.compile(r"DiskBlock|ShuffleWriter|IndexShuffleBlockResolver|DiskStore|SpillWriter|SpillReader"),
        "Make room there, or start the session with another folder. Start the query again: it continues "
        "from its checkpoint, and nothing is lost",
    ),
    _Place(
        "the files of the sink",
        re.compile(
            r"FileFormatWriter|FileFormatDataWriter|FileBatchWrite|ManifestFileCommitProtocol|SinkLog"
        ),
        AGAIN,
    ),
    _Place(
        "the checkpoint",
        re.compile(
            r"CheckpointFileManager|MetadataLog|StreamMetadata|OffsetSeqLog|CommitLog|execution\.streaming\.state"
            r"|RocksDB|STREAMING_CHECKPOINT_LOG_WRITE_FAILURE|StateStore"
        ),
        AGAIN,
    ),
)


class _Log(NamedTuple):
    """A kind of file of a checkpoint, the classes that read it, and what to do if it is damaged."""

    name: str
    classes: re.Pattern[str]
    hint: str


_RESTORE = "Restore the checkpoint, or begin with a new checkpoint and a new place for the results"
_LOGS = (
    _Log("metadata", re.compile(r"StreamMetadata|CHECKPOINT_MISSING_METADATA_FILE"), _RESTORE),
    _Log(
        "commits",
        re.compile(r"\bCommitLog|CommitMetadata"),
        "If it is the newest file of commits, remove it and its checksum (.4.crc for the file 4): its epoch "
        f"runs again with the same input, and a store takes its rows once. Otherwise, r{_RESTORE[1:]}",
    ),
    _Log("sources", re.compile(r"FileStreamSource|CompactibleFileStreamLog"), _RESTORE),
    _Log(
        "state",
        re.compile(r"execution\.streaming\.(?:state|stateful)|RocksDB|STATE_STORE|STATE_DIR"),
        _RESTORE,
    ),
    _Log(
        "offsets",
        re.compile(r"OffsetSeq|perform latestOffset|BATCH_METADATA_NOT_FOUND|batch \d+ doesn't exist"),
        _RESTORE,
    ),
)
_DAMAGE = re.compile(
    r"json4s|Json(?:EOF|Parse|Mapping)Exception|JSONDecodeError|Incomplete log file|MALFORMED_LOG_FILE"
    r"|Log file was malformed|INVALID_LOG_VERSION|CHECKSUM_VERIFICATION_FAILED|ChecksumException|ZipException"
    r"|CANNOT_LOAD_STATE_STORE|BATCH_METADATA_NOT_FOUND|MISSING_METADATA_FILE|MISSING_STATE_DIRECTORY"
    r"|MalformedInputException|NumberFormatException|batch \d+ doesn't exist|Corruption:"
    r"|(?:FileNotFoundException|NoSuchFileException)\b[^\n]*/(?:offsets|commits|sources|state)/"
)
_FILE = re.compile(r"(?:file:)?/[^\s:'\"]*?/((?:offsets|commits|sources/\d+|state/\d+)/[^\s:,'\"]*\w)")
_SOURCE = re.compile(r"PythonStreamingSourceRunner")
_PIPE = re.compile(r"EOFException|Broken pipe|Connection reset|Socket closed")
_PLAN = re.compile(r"=== Streaming Query ===.*?(?=\n\tat |\nCaused by|\Z)", re.DOTALL)
"""The plan of a query, which has names of classes too."""
_REASON = re.compile(r"terminated with exception: ([^\n]*?)(?: SQLSTATE: \w+)*\s*(?:\n|$)")


def find_cause(text: str) -> ThetastreamError | None:
    r"""Find what has ended a query in the text and the stack of an exception of Spark.

    >>> text = "Caused by: java.io.EOFException\n\tat x.PythonStreamingSourceRunner.latestOffset"
    >>> str(find_cause(text))[:82]
    '[SOURCE_ENDED] a Python process that reads a source of the query has ended without'
    """
    text = _PLAN.sub("", text)
    if "CONCURRENT_STREAM_LOG_UPDATE" in text:
        what = "another driver has continued the query from this checkpoint, so this driver has ended"
        hint = "Nothing is lost. Run one driver for each checkpoint"
        return ThetastreamError("CHECKPOINT_IN_USE", f"{what}. {hint}")
    if found := _find_last(_FULL, text):
        what = f"the disk is full ({found[0]})"
        return StateError("DISK_FULL", _describe_place(text, found.start(), what))
    if found := _find_last(_READ_ONLY, text):
        return StateError("READ_ONLY_FOLDER", _describe_place(text, found.start(), "nothing can be written"))
    if _DAMAGE.search(text):
        log = next((one for one in _LOGS if one.classes.search(text)), None)
        return None if log is None else StateError("CHECKPOINT_DAMAGED", _describe_damage(text, log))
    if _SOURCE.search(text) and _PIPE.search(text) and "Traceback" not in text:
        what = "a Python process that reads a source of the query has ended without an error"
        why = "somebody has killed it, or the operating system has, because memory ran out"
        hint = "Nothing is lost. Start the query again: it continues from its checkpoint"
        return StateError("SOURCE_ENDED", f"{what}: {why}. {hint}")
    return None


def _find_last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Find the last match, which is the one of the innermost exception."""
    return next(reversed([*pattern.finditer(text)]), None)


def _describe_place(text: str, start: int, what: str) -> str:
    """Describe the folder into which the first frames behind ``start`` write."""
    place = _find_place(text[start:]) or _find_place(text)
    path = _PATH.search(text)
    where = "a folder of the query" if place is None else place.name
    where += f", {path[1]}" if path else ""
    return f"Spark writes {where}, and {what}. {AGAIN if place is None else place.hint}"


def _find_place(stack: str) -> _Place | None:
    found = [(match.start(), place) for place in _PLACES if (match := place.classes.search(stack))]
    return min(found)[1] if found else None


def _describe_damage(text: str, log: _Log) -> str:
    file, reason = _FILE.search(text), _REASON.search(text)
    which = f"the file {file[1]}" if file else f"a file of {log.name}"
    why = f" ({reason[1].rstrip('.')})" if reason and reason[1] not in ("", "null") else ""
    find = "" if file else "`thetastream inspect CHECKPOINT` names it. "
    return (
        f"Spark cannot read {which} of the checkpoint{why}: it is lost, cut off or altered. {find}{log.hint}"
    )
