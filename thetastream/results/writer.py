"""The writer of an epoch: which checkpoint its query continues from, and which input the epoch reads.

    offsets/<epoch>            "v1", a line of metadata, and then one line per source
    sources/<source>/<number>  the files that Spark's source of files has read

Spark writes the offsets of an epoch into its checkpoint before the epoch runs, so an epoch that runs again
has the same offsets. An epoch of another copy of the checkpoint has the same number and other offsets.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import pyarrow as pa

from thetastream.core.folder import Folder, hide_secrets, split_path

PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class Writer:
    """What a store needs to know of the query that commits an epoch.

    Parameters
    ----------
    checkpoint : str, optional
        The checkpoint of the query, as a path or URI. None if it is not known.
    is_beside_others : bool
        Whether the query may add to the results of other queries.
    """

    checkpoint: str | None = None
    is_beside_others: bool = False

    @property
    def place(self) -> str | None:
        """The checkpoint without user, password and options, as messages name it."""
        return None if self.checkpoint is None else hide_secrets(self.checkpoint)

    def read_query(self) -> str | None:
        """Read the identifier of the query; None if the checkpoint is new or cannot be read."""
        try:
            return str(json.loads(self._folder.read("metadata"))["id"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
            return None

    def compute_digest(self, epoch: int) -> str | None:
        """Compute a digest of the input of an epoch; None if the checkpoint cannot be read.

        It contains the offsets and the watermark. It does not contain the time at which the epoch began, and
        no settings.
        """
        found = self._read_offsets(epoch)
        if found is None:
            return None
        metadata, sources = found
        read = [self._list_files(number, line) for number, line in enumerate(sources)]
        text = json.dumps([metadata.get("batchWatermarkMs"), sources, read])
        return sha256(text.encode()).hexdigest()[:32]

    def reads_no_input(self, epoch: int) -> bool:
        """Whether an epoch only gave the state another number of partitions, so that it reached no sink."""
        found, before = self._read_offsets(epoch), self._read_offsets(epoch - 1)
        if found is None or before is None:
            return False
        n_partitions = (one[0].get("conf", {}).get(PARTITIONS) for one in (found, before))
        return found[1] == before[1] and len(set(n_partitions)) == 2

    @cached_property
    def _folder(self) -> Folder:
        if self.checkpoint is None:
            raise OSError("the checkpoint is not known")
        return Folder(*split_path(self.checkpoint))

    def _read_offsets(self, epoch: int) -> tuple[dict[str, Any], list[str]] | None:
        """Read the metadata of an epoch, and the line of each source."""
        try:
            lines = self._folder.read(f"offsets/{epoch}").decode().splitlines()
            metadata = json.loads(lines[1])
        except (OSError, ValueError, IndexError, pa.ArrowException):
            return None
        return (metadata, lines[2:]) if isinstance(metadata, dict) else None

    def _list_files(self, source: int, line: str) -> list[str]:
        """List what the source of files has read last. The offset of this source is only a number."""
        try:
            number = json.loads(line)["logOffset"]
        except (ValueError, KeyError, TypeError):
            return []
        for name in (f"{number}", f"{number}.compact"):
            try:
                lines = self._folder.read(f"sources/{source}/{name}").decode().splitlines()
                return sorted(one for one in lines[1:] if json.loads(one)["batchId"] == number)
            except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
                continue
        return []


UNKNOWN_WRITER = Writer()
"""The writer of an epoch whose checkpoint is not known."""
