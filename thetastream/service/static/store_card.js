// The card of one store. It asks for rows only when the store has a new snapshot.

import { ask } from "/page/connection.js";
import { html, makePanel } from "/page/elements.js";
import { formatInstant } from "/page/format.js";
import { Question } from "/page/question.js";
import { flatten } from "/page/rows.js";
import { ScatterPlot } from "/page/scatter_plot.js";
import { makeTable } from "/page/table.js";

const SHOWN_SNAPSHOTS = 8, SHOWN_ROWS = 10, PLOTTED_ROWS = 1000;

export class StoreCard {
  constructor(name, store) {
    this.path = `/stores/${encodeURIComponent(name)}/snapshots`;
    this.last = 0;
    this.snapshots = [];
    this.newest = html("span", { class: "quiet" });
    this.list = html("div", {});
    this.rows = html("div", {});
    this.plot = new ScatterPlot(name, store);
    this.question = new Question(name);
    const keys = store.keys.length ? `, looked up by ${store.keys.join(", ")}` : "";
    this.element = html("article", { class: "card", "aria-label": `Store ${name}` },
      html("header", {}, html("h3", {}, name), html("span", { class: "quiet" }, `${store.kind}${keys}`), this.newest),
      html("div", { class: "panels" },
        makePanel("Snapshots", this.list),
        makePanel("Two columns of the latest snapshot", this.plot.element)),
      makePanel("Latest results", this.rows),
      makePanel("Ask in SQL: the table is called results", this.question.element));
  }

  async refresh() {
    const found = await ask(`${this.path}?after=${this.last}`);
    if (found.length === 0) {
      if (this.last === 0) this.list.replaceChildren(html("p", { class: "quiet" }, "There is no snapshot yet."));
      return;
    }
    this.snapshots = [...this.snapshots, ...found].slice(-SHOWN_SNAPSHOTS);
    const newest = found.at(-1);
    const rows = (await ask(`${this.path}/${newest.number}?first=${PLOTTED_ROWS}`)).map((row) => flatten(row));
    this.last = newest.number;
    this.newest.textContent = `latest snapshot: ${newest.number}`;
    this.list.replaceChildren(makeTable(this.snapshots.toReversed().map((one) => ({
      snapshot: one.number, "at, UTC": formatInstant(one.at), rows: one.rows, reason: one.reason })), "Snapshots"));
    this.rows.replaceChildren(makeTable(rows.slice(0, SHOWN_ROWS), "Latest results"));
    this.plot.show(rows);
  }
}
