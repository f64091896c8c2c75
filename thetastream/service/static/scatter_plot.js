// A plot of two columns that the user chooses. The choices stay when the plot shows new rows.

import { html, svg } from "/page/elements.js";
import { formatInstant } from "/page/format.js";
import { isTime, listPlottable, toNumber } from "/page/rows.js";

const WIDTH = 400, HEIGHT = 220, LEFT = 6, BOTTOM = 190, TOP = 12, RIGHT = 394;

export class ScatterPlot {
  // `store` has the column of time, the keys and the types of columns, if the rows are those of a store.
  constructor(name, store = { time: null, keys: [], columns: {} }) {
    this.store = store;
    this.across = html("select", {});
    this.up = html("select", {});
    this.place = html("div", {});
    this.rows = [];
    for (const choice of [this.across, this.up]) choice.addEventListener("change", () => this.draw());
    this.name = name;
    this.element = html("div", {},
      html("div", { class: "choices" },
        html("label", {}, "Across", this.across), html("label", {}, "Up", this.up)), this.place);
  }

  show(rows) {
    this.rows = rows;
    const names = listPlottable(rows);
    const [across, up] = this.choose(names);
    offer(this.across, names, across);
    offer(this.up, names, up);
    this.draw();
  }

  // A measure over time says more than one key over another, and whole numbers are often numbers of things.
  choose(names) {
    const { time, keys, columns } = this.store;
    const across = names.includes(time) ? time : names[0];
    const others = names.filter((name) => name !== across);
    const plain = others.filter((name) => !keys.includes(name));
    const up = plain.find((name) => /^(double|float|halffloat|decimal)/.test(columns[name]))
      ?? plain.find((name) => this.rows.some((row) => typeof row[name] === "number")) ?? plain[0] ?? others[0];
    return [across, up ?? across];
  }

  draw() {
    const [across, up] = [this.across.value, this.up.value];
    const points = this.rows.map((row) => [toNumber(row[across]), toNumber(row[up])])
      .filter((point) => point.every(Number.isFinite));
    if (points.length === 0) {
      this.place.replaceChildren(html("p", { class: "quiet" }, "The snapshot has no numbers or times to plot."));
      return;
    }
    const x = makeScale(points.map((point) => point[0]), LEFT, RIGHT);
    const y = makeScale(points.map((point) => point[1]), BOTTOM, TOP);
    const write = (name, value) => (isTime(this.rows.find((row) => row[name] !== null)?.[name])
      ? formatInstant(value) : value.toLocaleString("en", { maximumFractionDigits: 3 }));
    this.place.replaceChildren(svg("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: "100%", role: "img",
      "aria-label": `${points.length} results of ${this.name}: ${up} over ${across}` },
      svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: BOTTOM + 6, y2: BOTTOM + 6 }),
      svg("line", { class: "grid", x1: 0, x2: 0, y1: TOP, y2: BOTTOM + 6 }),
      ...points.map((point) => svg("circle", { class: "dot", cx: x.place(point[0]), cy: y.place(point[1]), r: 3 })),
      svg("text", { x: 4, y: TOP - 2 }, `${up}: ${write(up, y.least)} to ${write(up, y.greatest)}`),
      svg("text", { x: RIGHT, y: HEIGHT - 6, "text-anchor": "end" },
        `${across}: ${write(across, x.least)} to ${write(across, x.greatest)}`)));
  }
}

function offer(choice, names, first) {
  const chosen = names.includes(choice.value) ? choice.value : first;
  choice.replaceChildren(...names.map((name) => html("option", { value: name }, name)));
  choice.value = chosen ?? "";
}

function makeScale(values, from, to) {
  const least = Math.min(...values), greatest = Math.max(...values), range = greatest - least;
  const place = (value) => (range === 0 ? (from + to) / 2 : from + ((value - least) / range) * (to - from));
  return { least, greatest, place };
}
