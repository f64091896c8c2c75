"""Trades and quotes: which quote was the last one before a trade, and which trades does no quote explain?

as-of         { (t, q) : q is the latest quote of t's symbol in the minute before t }, or (t, NULL)
unexplained   { t : no quote of t's symbol in the 5 seconds before t has bid <= price <= ask }

The data are synthetic and seeded: the middle price of each symbol is a random walk, a quote puts a spread
around it, and a trade has a price inside the last quote. One trade in thirty has a price 1 to 3 % off, and
the quotes of one symbol are lost for three minutes. Both streams arrive out of order. DuckDB checks both
answers, the first one by its ASOF JOIN.
"""

import argparse
import os
import shutil
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from matplotlib.figure import Figure

import thetastream as th

SYMBOLS, MINUTES = 8, 20
QUOTES, TRADES = 24_000, 4_000
OFF = 30  # one trade in this many is off the market
LOST, LOST_MINUTES = "S5", (6, 9)  # the symbol whose quotes are lost, and when
SECOND = 1_000_000  # in microseconds, the unit of event times
LATEST = 2 * SECOND  # the longest that a tuple takes to arrive
EPOCHS = 8
SCHEMAS = {
    "t": "id BIGINT, symbol STRING, ts TIMESTAMP, price DOUBLE",
    "q": "id BIGINT, symbol STRING, ts TIMESTAMP, bid DOUBLE, ask DOUBLE",
}

# --- The data --------------------------------------------------------------------------------------------


def make_streams(rng):
    """Make trades and quotes in the order of arrival. Quotes of one symbol have different times."""
    names = np.array([f"S{n}" for n in range(SYMBOLS)])
    times = np.sort(rng.choice(MINUTES * 60 * SECOND, QUOTES, replace=False))
    symbol = rng.integers(0, SYMBOLS, QUOTES)
    middle = np.empty(QUOTES)
    for number in range(SYMBOLS):
        mine = symbol == number
        middle[mine] = 100 * (number + 1) * np.exp(np.cumsum(rng.normal(0, 2e-4, mine.sum())))
    half = middle * rng.uniform(2e-4, 8e-4, QUOTES)
    quotes = {
        "id": np.arange(QUOTES),
        "symbol": names[symbol],
        "ts": times,
        "bid": middle - half,
        "ask": middle + half,
    }
    origin = np.sort(rng.choice(QUOTES, TRADES, replace=False))  # the quote that each trade follows
    price = middle[origin] + half[origin] * rng.uniform(-1, 1, TRADES)
    is_off = rng.random(TRADES) < 1 / OFF
    price[is_off] *= 1 + rng.choice([-1, 1], is_off.sum()) * rng.uniform(0.01, 0.03, is_off.sum())
    trades = {
        "id": np.arange(TRADES),
        "symbol": names[symbol[origin]],
        "ts": times[origin] + rng.integers(0, SECOND, TRADES),
        "price": price,
    }
    start, end = (minute * 60 * SECOND for minute in LOST_MINUTES)
    is_kept = (quotes["symbol"] != LOST) | (times < start) | (times >= end)
    quotes = {name: values[is_kept] for name, values in quotes.items()}
    return {"t": shuffle(rng, trades), "q": shuffle(rng, quotes)}


def shuffle(rng, columns):
    """Put tuples in the order of arrival. A last tuple an hour later moves the watermark past all others."""
    arrival = np.argsort(columns["ts"] + rng.integers(0, LATEST, len(columns["ts"])))
    table = pa.table({name: values[arrival] for name, values in columns.items()})
    end = {"id": [-1], "symbol": ["-"], "ts": [(MINUTES + 60) * 60 * SECOND]}
    last = {name: end.get(name, [0.0]) for name in columns}
    table = pa.concat_tables([table, pa.table(last, schema=table.schema)])
    at = table.schema.get_field_index("ts")
    return table.set_column(at, "ts", table["ts"].cast(pa.timestamp("us", "UTC")))


def write_replay(table, folder):
    """Cut a stream into files, one for each epoch. Spark reads them by modification time."""
    folder.mkdir(parents=True)
    cuts = [*np.linspace(0, len(table) - 1, EPOCHS + 1).astype(int), len(table)]
    for number, (start, end) in enumerate(pairwise(cuts), 1):
        path = folder / f"{number}.parquet"
        pq.write_table(table.slice(start, end - start), path)
        os.utime(path, (number, number))


# --- The joins, and their check --------------------------------------------------------------------------


def join(spark, out):
    """Find both answers with streaming joins."""

    def stream(name):
        files = spark.readStream.schema(SCHEMAS[name]).option("maxFilesPerTrigger", 1)
        return files.parquet(str(out / "replay" / name)).withWatermark("ts", "3 seconds")

    streams = {name: stream(name) for name in SCHEMAS}
    before = "q.symbol = t.symbol AND q.ts <= t.ts"
    as_of = th.join(
        streams,
        on=before,
        within="1 minute",
        how=th.Nearest(1, by="t.ts - q.ts", keep_unmatched=True),
    )
    unexplained = th.join(
        streams,
        on=f"{before} AND t.price BETWEEN q.bid AND q.ask",
        within="5 seconds",
        how="anti",
    )
    pairs = write(spark, as_of.selectExpr("t.id AS trade", "q.id AS quote"), out / "as_of")
    alone = write(spark, unexplained.selectExpr("t.id AS trade"), out / "unexplained")
    return [row for row in pairs if row[0] >= 0], [row for row in alone if row[0] >= 0]


def write(spark, results, folder):
    """Run a query until its input ends; return its rows in order."""
    sink = results.writeStream.format("parquet").option("path", str(folder / "rows"))
    query = sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    found = spark.read.parquet(str(folder / "rows")).toArrow()
    return in_order(zip(*(column.to_pylist() for column in found.columns), strict=True))


def in_order(rows):
    """Sort rows; NULL comes last."""
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


def check(tables):
    """Find the same answers with DuckDB, over all tuples at once."""
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    as_of = connection.execute(
        "SELECT t.id, CASE WHEN q.ts >= t.ts - INTERVAL 1 MINUTE THEN q.id END "
        "FROM t ASOF LEFT JOIN q ON q.symbol = t.symbol AND q.ts <= t.ts WHERE t.id >= 0"
    )
    pairs = in_order(as_of.fetchall())
    unexplained = connection.execute(
        "SELECT id FROM t WHERE id >= 0 AND NOT EXISTS (SELECT 1 FROM q WHERE q.symbol = t.symbol "
        "AND q.ts BETWEEN t.ts - INTERVAL 5 SECONDS AND t.ts AND t.price BETWEEN q.bid AND q.ask)"
    )
    return pairs, in_order(unexplained.fetchall())


# --- The picture -----------------------------------------------------------------------------------------


def draw(tables, pairs, alone, path):
    """Draw the symbol whose quotes are lost: its quotes, and its trades by what the joins say of them."""
    of_symbol = {}
    for name, table in tables.items():
        mine = table.filter(pc.equal(table["symbol"], LOST)).sort_by("ts")
        of_symbol[name] = {column: mine[column].to_numpy() for column in mine.column_names if column != "ts"}
        of_symbol[name]["minute"] = mine["ts"].cast(pa.int64()).to_numpy() / (60 * SECOND)
    trades, quotes = of_symbol["t"], of_symbol["q"]
    has_no_quote = np.isin(trades["id"], [trade for trade, quote in pairs if quote is None])
    is_unexplained = np.isin(trades["id"], [trade for (trade,) in alone]) & ~has_no_quote

    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = figure.subplots()
    # A line would cross the minutes without quotes.
    after = np.flatnonzero(np.diff(quotes["minute"]) > 1) + 1
    cuts = [0, *after, len(quotes["minute"])]
    for start, end in pairwise(cuts):
        minute, bid, ask = (quotes[name][start:end] for name in ("minute", "bid", "ask"))
        axes.fill_between(
            minute, bid, ask, step="post", color="#9ecae1", label="bid to ask" if not start else None
        )
    for is_shown, color, label in (
        (~is_unexplained & ~has_no_quote, "#777777", "a quote of the last 5 seconds explains it"),
        (is_unexplained, "#d62728", "no quote of the last 5 seconds does"),
        (has_no_quote, "#9467bd", "no quote in the minute before"),
    ):
        axes.plot(trades["minute"][is_shown], trades["price"][is_shown], ".", color=color, label=label)
    axes.set(xlabel="minutes", ylabel="price", title=f"Quotes and trades of {LOST}")
    axes.legend(ncols=2)
    figure.savefig(path, dpi=80)
    return path


def main():
    """Run the joins and DuckDB, and compare them; return 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/trades"), help="where results go (out/trades)")
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    tables = make_streams(np.random.default_rng(5))
    for name, table in tables.items():
        write_replay(table, out / "replay" / name)
    print(f"{SYMBOLS} symbols, {MINUTES} minutes: {TRADES:,} trades, {len(tables['q']) - 1:,} quotes,")
    print(f"out of order by up to {LATEST // SECOND} seconds.\n")
    spark = th.local_session(2, "trades")
    pairs, alone = join(spark, out)
    wanted_pairs, wanted_alone = check(tables)
    far = sum(quote is None for _, quote in pairs)
    print(f"as-of join   {len(pairs):,} trades, {far} of them without a quote in the minute before")
    print(f"DuckDB       ASOF JOIN: {'the same' if pairs == wanted_pairs else 'DIFFERENT'}")
    print(f"anti join    {len(alone):,} trades that no quote of the last 5 seconds explains")
    print(f"DuckDB       NOT EXISTS: {'the same' if alone == wanted_alone else 'DIFFERENT'}")
    print(f"picture      {draw(tables, pairs, alone, out / 'trades.png')}")
    return 0 if (pairs, alone) == (wanted_pairs, wanted_alone) else 1


if __name__ == "__main__":
    raise SystemExit(main())
