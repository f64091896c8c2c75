"""Reports of units about what each stream brought, as files that the source of an idle stream reads.

    folder/<name of the idle stream>/<query>-<join>-<unit>.json      the last epoch that brought tuples

A report is a hint for the run that writes it and is never read again after a restart. What follows from it
is kept in the offsets of the source.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from thetastream.core.folder import Folder
from thetastream.engine.counters import Arrived
from thetastream.lowering.query import Stream


@dataclass(frozen=True)
class IdleReports:
    """Where units report, and about which streams. It is pickled and sent to the workers."""

    streams: tuple[Stream, ...]
    """The streams of the user. Those with an ``idle_mark`` may be idle."""

    def write(
        self,
        query: str,
        join: str,
        unit: int,
        watermark_us: int | None,
        arrived: Mapping[str, Arrived],
    ) -> None:
        """Report what a unit received in an epoch. Nothing is written if it received nothing."""
        if not any(one.timely or one.late for one in arrived.values()):
            return
        for mark in {stream.idle_mark for stream in self.streams if stream.idle_mark is not None}:
            brought = [
                (
                    f"{join}.{stream.alias}",
                    stream.idle_mark == mark,
                    one.timely + one.late,
                    one.newest_us,
                    stream.watermark_delay_us,
                )
                for stream in self.streams
                if (one := arrived.get(stream.alias)) is not None and stream.watermark_delay_us is not None
            ]
            text = json.dumps({"watermark_us": watermark_us, "brought": brought})
            folder = Folder(*mark)
            folder.make(is_private=True)
            folder.write(f"{query}-{join}-{unit}.json", text.encode())


def list_idle_reports(streams: Sequence[Stream]) -> IdleReports | None:
    """Return what units report; None if no stream may be idle."""
    if not any(stream.idle_mark for stream in streams):
        return None
    # Units need no columns of the streams.
    return IdleReports(tuple(replace(stream, types=(), carried=()) for stream in streams))
