// Shows the tuples that each stream has brought, its lag and its watermark.

import { html } from "/page/elements.js";
import { formatCount, formatInstant, formatLag } from "/page/format.js";

const COLUMNS = ["Stream", "In time", "Late", "Shed", "Lag", "Latest event time, UTC", "Watermark, UTC"];
const NUMBERS = 4;

export function showStreams(found) {
  const write = (us) => (us === null ? "none" : formatInstant(us / 1000));
  const rows = Object.entries(found).map(([alias, stream]) => {
    const counts = [stream.timely, stream.late, stream.shed].map(formatCount);
    const cells = [...counts, formatLag(stream.lag_s), write(stream.newest_us), write(stream.watermark_us)];
    return html("tr", {}, html("th", { scope: "row" }, alias), ...cells.map((text, n) =>
      html("td", { class: n < NUMBERS ? "number" : null }, text)));
  });
  return html("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Streams" },
    html("table", {},
      html("thead", {}, html("tr", {}, ...COLUMNS.map((name, n) =>
        html("th", { scope: "col", class: n > 0 && n <= NUMBERS ? "number" : null }, name)))),
      html("tbody", {}, ...rows)));
}
