// Shows the tuples and the lag of each stream in the last epoch.

import { html } from "/page/elements.js";
import { formatCount, formatInstant, formatLag } from "/page/format.js";

const COLUMNS = ["Stream", "In time", "Late", "Shed", "Lag", "Latest event time, UTC"];

export function showStreams(found) {
  const rows = Object.entries(found).map(([alias, stream]) => {
    const newest = stream.newest_us === null ? "none" : formatInstant(stream.newest_us / 1000);
    const counts = [stream.timely, stream.late, stream.shed].map(formatCount);
    const cells = [...counts, formatLag(stream.lag_s), newest];
    return html("tr", {}, html("th", { scope: "row" }, alias), ...cells.map((text, n) =>
      html("td", { class: n < 4 ? "number" : null }, text)));
  });
  return html("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Streams in the last epoch" },
    html("table", {},
      html("thead", {}, html("tr", {}, ...COLUMNS.map((name, n) =>
        html("th", { scope: "col", class: n > 0 && n < 5 ? "number" : null }, name)))),
      html("tbody", {}, ...rows)));
}
