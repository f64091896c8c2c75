// Makes a table of rows. A wide table scrolls in its own frame, also by keyboard, so that the page stays as wide as the
// screen.

import { html } from "/page/elements.js";
import { formatInstant } from "/page/format.js";
import { isTime } from "/page/rows.js";

export function makeTable(rows, label) {
  if (rows.length === 0) return html("p", { class: "quiet" }, "The snapshot has no rows.");
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const isNumber = (name) => rows.every((row) => row[name] === null || typeof row[name] === "number");
  const align = Object.fromEntries(names.map((name) => [name, isNumber(name) ? "number" : null]));
  return html("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    html("table", {},
      html("thead", {}, html("tr", {}, ...names.map((name) =>
        html("th", { scope: "col", class: align[name] }, name)))),
      html("tbody", {}, ...rows.map((row) => html("tr", {}, ...names.map((name) =>
        html("td", { class: align[name] }, write(row[name]))))))));
}

function write(value) {
  if (value === null || value === undefined) return "NULL";
  if (isTime(value)) return formatInstant(value);
  if (typeof value === "number") return String(Number.isInteger(value) ? value : Number(value.toPrecision(7)));
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
