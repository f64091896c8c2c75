// A box for questions in SQL to a store, with the rows of the answer as a table and a plot.

import { TokenNeeded, ask } from "/page/connection.js";
import { html } from "/page/elements.js";
import { formatCount } from "/page/format.js";
import { flatten, listPlottable } from "/page/rows.js";
import { ScatterPlot } from "/page/scatter_plot.js";
import { makeTable } from "/page/table.js";

const SHOWN_ROWS = 100;

export class Question {
  constructor(name) {
    this.path = `/stores/${encodeURIComponent(name)}/query`;
    this.name = name;
    this.text = html("textarea", { rows: "3", spellcheck: "false", "aria-label": `Question to ${name} in SQL` });
    this.text.value = "SELECT count(*) AS n FROM results";
    this.button = html("button", {}, "Ask");
    this.said = html("p", { class: "quiet", role: "status" });
    this.answer = html("div", {});
    this.element = html("form", { class: "question" }, this.text, this.button, this.said, this.answer);
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.element.requestSubmit();
    });
  }

  async ask() {
    this.button.disabled = true;
    this.say("The service answers");
    const began = performance.now();
    try {
      const rows = (await ask(this.path, { sql: this.text.value })).map((row) => flatten(row));
      this.show(rows, Math.round(performance.now() - began));
    } catch (error) {
      this.answer.replaceChildren();
      this.say(error instanceof TokenNeeded ? "The service needs its token" : error.message, "bad");
    }
    this.button.disabled = false;
  }

  show(rows, ms) {
    const shown = rows.length > SHOWN_ROWS ? `, of which the first ${SHOWN_ROWS} are shown` : "";
    this.say(`${formatCount(rows.length)} ${rows.length === 1 ? "row" : "rows"} in ${ms} ms${shown}`);
    this.answer.replaceChildren(makeTable(rows.slice(0, SHOWN_ROWS), `Answer of ${this.name}`));
    if (listPlottable(rows).length < 2) return;
    const plot = new ScatterPlot(`the answer of ${this.name}`);
    plot.show(rows);
    this.answer.prepend(plot.element);
  }

  say(text, kind = "quiet") {
    this.said.className = kind;
    this.said.textContent = text;
  }
}
