// Draws how many tuples each unit received and stores. Bars of different lengths show skew.

import { html, svg } from "/page/elements.js";
import { formatBytes, formatCount } from "/page/format.js";

const WIDTH = 400, LINE = 30, NAME = 76, VALUE = 150, LETTERS = 9;

export function drawUnits(found, names) {
  if (found.length === 0) return html("p", { class: "quiet" }, "No unit has reported yet.");
  const mostReceived = findGreatest(found, "received"), mostHeld = findGreatest(found, "held");
  const nameOf = (unit) => `${unit.unit} ${names.get(unit.unit)?.alias ?? ""}`.trim();
  const lines = found.flatMap((unit, n) => [
    svg("text", { x: 0, y: n * LINE + 18 }, svg("title", {}, nameOf(unit)), shorten(nameOf(unit))),
    ...drawBar("bar", n * LINE + 4, unit.received / mostReceived),
    ...drawBar("bar-state", n * LINE + 15, unit.held / mostHeld),
    svg("text", { x: WIDTH - VALUE + 8, y: n * LINE + 12 }, `${formatCount(unit.received)} received`),
    svg("text", { x: WIDTH - VALUE + 8, y: n * LINE + 24 }, `${formatCount(unit.held)} stored, ${formatBytes(unit.state_bytes)}`),
  ]);
  const height = found.length * LINE;
  const total = found.reduce((sum, unit) => sum + unit.received, 0);
  const busiest = found.find((unit) => unit.received === mostReceived);
  const skew = busiest === undefined ? "no unit received a tuple"
    : `unit ${nameOf(busiest)} received most, ${((mostReceived * found.length) / total).toFixed(2)} times the mean`;
  return html("div", { class: "scroll" },
    svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, width: "100%", role: "img",
      "aria-label": `load and state of ${found.length} units: ${skew}` }, ...lines),
    html("p", { class: "quiet" }, `In the last epoch with tuples, ${skew}.`));
}

function shorten(name) {
  return name.length > LETTERS + 2 ? `${name.slice(0, LETTERS)}…` : name;
}

function drawBar(name, y, share) {
  const width = WIDTH - NAME - VALUE;
  return [svg("rect", { class: "track", x: NAME, y, width, height: 8, rx: 2 }),
    svg("rect", { class: name, x: NAME, y, width: width * share, height: 8, rx: 2 })];
}

function findGreatest(found, key) {
  return Math.max(...found.map((unit) => unit[key]), 1);
}
