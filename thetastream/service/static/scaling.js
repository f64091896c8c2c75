// Says how to change the units of a query: the command, with the sizes of the present model.

import { html } from "/page/elements.js";

const SIZES = ["units", "cores", "rows", "columns", "nodes", "workers"];

// Subgroups of a side have a plus between them.
const write = (size) => [size].flat().map((side) => [side].flat().join("+")).join(",");

export function showCommand(last) {
  const control = last.control ?? null;
  if (control === null) {
    return html("p", { class: "quiet" }, "The units do not change: the query runs without ", html("code", {}, "max_units"), ".");
  }
  const model = control.membership.at(-1).model;
  const sizes = SIZES.filter((name) => name in model).map((name) => `--${name} ${write(model[name])}`);
  return html("p", { class: "quiet" }, "To change the units: ",
    html("code", {}, ["thetastream scale CHECKPOINT", ...sizes].join(" ")));
}
