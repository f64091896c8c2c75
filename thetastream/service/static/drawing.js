// Draws each model whose units hold tuples. The filled area of a unit shows how many tuples the unit stores, compared
// with the unit that stores most.

import { html, svg } from "/page/elements.js";
import { formatCount } from "/page/format.js";

const STEP = 50, RADIUS = 17, MARGIN = 22, MOST_UNITS = 60;

export function drawGenerations(generations, last, names) {
  if ("tables" in last) {
    return html("p", { class: "quiet" }, "Each tuple is looked up in an index of the table. No unit stores tuples.");
  }
  if (generations.length === 0) {
    return html("p", { class: "quiet" },
      "The query runs with an earlier version of Thetastream, which does not report its plan.");
  }
  const held = new Map(last.units.map((unit) => [unit.unit, unit.held]));
  const leaving = last.control === null || last.control === undefined ? {} : last.control.leaving;
  return html("div", {}, ...generations.map((one, n) => html("figure", {},
    drawGeneration(one, held, leaving, names),
    html("figcaption", { class: "quiet" }, html("code", {}, one.model),
      n < generations.length - 1 ? " answers until its tuples have expired" : " stores new tuples"))));
}

function drawGeneration(generation, held, leaving, names) {
  const shown = generation.units.slice(0, MOST_UNITS);
  const x = (unit) => MARGIN + unit.column * STEP, y = (unit) => MARGIN + unit.row * STEP;
  const width = Math.max(...shown.map(x)) + MARGIN, height = Math.max(...shown.map(y)) + MARGIN;
  const fullest = Math.max(...held.values(), 1);
  const left = shown[0].role;
  const lines = generation.lines.filter(([from, to]) => from < shown.length && to < shown.length)
    .map(([from, to]) => svg("line", { class: "way", x1: x(shown[from]), y1: y(shown[from]),
      x2: x(shown[to]), y2: y(shown[to]) }));
  const circles = shown.map((unit) => {
    const side = unit.role === left ? "unit" : "unit-right";
    const share = (held.get(unit.unit) ?? 0) / fullest;
    const text = `unit ${unit.unit}: ${names.get(unit.unit).role}; ${formatCount(held.get(unit.unit) ?? 0)} stored tuples`;
    return svg("g", {}, svg("title", {}, text),
      svg("circle", { class: `unit ${side} ${unit.unit in leaving ? "unit-leaving" : ""}`,
        cx: x(unit), cy: y(unit), r: RADIUS }),
      svg("circle", { class: `${side}-load`, cx: x(unit), cy: y(unit), r: RADIUS * Math.sqrt(share) }),
      svg("text", { class: "unit-name", x: x(unit), y: y(unit) + 4 }, String(unit.unit)));
  });
  const hidden = generation.units.length - shown.length;
  return html("div", { class: "scroll" },
    svg("svg", { class: "drawing", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${generation.model} with ${generation.units.length} units` }, ...lines, ...circles),
    hidden > 0 ? html("p", { class: "quiet" }, `and ${hidden} more units`) : null);
}
