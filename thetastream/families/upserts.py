"""Plans the units that turn a stream of upserts into changes (``thetastream.engine.latest``)."""

from dataclasses import dataclass
from functools import partial

from thetastream.core.columns import HASH, SIGN
from thetastream.core.columns import UPSERT_KEY as KEY
from thetastream.core.columns import VERSION_GONE as GONE
from thetastream.core.columns import VERSION_ORDER as ORDER
from thetastream.core.condition import SUBINDEXES_PER_WINDOW, Domain, Key, SideSpec
from thetastream.core.identity import Part
from thetastream.engine.latest import LatestSpec
from thetastream.lowering.domains import quote
from thetastream.lowering.identity import MODEL, Reading, identify_model, identify_streams
from thetastream.lowering.lower import SHORTEST_PERIOD_US, write_change_type
from thetastream.lowering.physical import SidePlan
from thetastream.lowering.query import Stream
from thetastream.lowering.statistics import choose_n_units
from thetastream.models.matrix import Matrix
from thetastream.runtime.flow import Choice, Fitted, Flow, Output, UnitStage, list_block_columns

ORDER_SOURCE, GONE_SOURCE = "order of the upsert", "upsert deletes"
"""Columns of the input with the values of ``sequence`` and ``deleted``."""


@dataclass(frozen=True)
class Upserts:
    """A stream of upserts, as the user describes it."""

    stream: Stream
    """The stream, with the columns of the row only."""
    key: tuple[str, ...]
    """The columns that identify a row."""
    sequence: str | None = None
    """The SQL text by which the rows of a key are ordered. The stream has its values as ``ORDER_SOURCE``."""
    deleted: str | None = None
    """The SQL text that says whether the key has no row any more. The stream has its values as
    ``GONE_SOURCE``."""

    def flow(self, partitions: int) -> Flow:
        """Describe how upserts become changes, for a number of shuffle partitions."""
        stream = self.stream
        columns = {carried.field: carried.block_column for carried in stream.carried}
        hashed = f"xxhash64({', '.join(f'{quote(stream.alias)}.{quote(name)}' for name in self.key)})"
        computed = [(KEY, hashed), (HASH, hashed)]
        computed += [] if self.sequence is None else [(ORDER, f"{quote(stream.alias)}.{quote(ORDER_SOURCE)}")]
        computed += [] if self.deleted is None else [(GONE, f"{quote(stream.alias)}.{quote(GONE_SOURCE)}")]
        time, period_us = None, None
        if stream.event_time is not None:
            time = Key(columns[stream.event_time], Domain.INT)
            period_us = max(SHORTEST_PERIOD_US, (stream.watermark_delay_us or 0) // SUBINDEXES_PER_WINDOW)
        spec = LatestSpec(
            SideSpec(
                stream.alias,
                tuple(carried.block_column for carried in stream.carried),
                tuple(name for name, _ in computed if name != HASH),
                (Key(KEY, Domain.INT),),
                time,
            ),
            tuple(columns[name] for name in self.key),
            choose_matrix(partitions),
            None if self.sequence is None else ORDER,
            None if self.deleted is None else GONE,
            period_us,
        )
        side = SidePlan(stream.alias, (), tuple(computed), stream.carried)
        meaning = repr((self.key, self.sequence, self.deleted))
        identity = {
            **identify_streams([side], [spec.side]),
            "the upserts": Part(meaning, f"by {', '.join(self.key)}"),
            MODEL: identify_model(spec.model, Reading(chosen_for=partitions)),
        }
        choice = Choice(partitions, partial(fit, spec))
        return Flow((side,), (spec.side,), (UnitStage(spec, describe_changes(side), choice),), identity)


def choose_matrix(partitions: int) -> Matrix:
    """Choose the units for a number of shuffle partitions. A tuple goes to one of them by its hash.

    >>> choose_matrix(4)
    Matrix(rows=4, columns=1)
    """
    return Matrix(choose_n_units(partitions), 1)


def fit(spec: LatestSpec, partitions: int) -> Fitted:
    """Return the same stream for another number of shuffle partitions."""
    model = choose_matrix(partitions)
    return Fitted(spec.with_model(model), identify_model(model, Reading(chosen_for=partitions)))


def describe_changes(side: SidePlan) -> Output:
    """Describe the changes that leave the units: the columns of the row, and the type of the change."""
    restored = (f"{one.from_block} AS {quote(one.field)}" for one in side.carried)
    return Output((*list_block_columns(side), f"{SIGN} tinyint"), (*restored, write_change_type()))
