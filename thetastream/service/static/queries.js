// Shows each query: its state, its figures, and the panels of each of its joins.

import { changes } from "/page/changes.js";
import { drawing } from "/page/drawing.js";
import { html, panel } from "/page/elements.js";
import { bytes, clock, count, seconds } from "/page/format.js";
import { replaceAndKeepFocus } from "/page/keep_focus.js";
import { lineChart } from "/page/line_chart.js";
import { phases } from "/page/phases.js";
import { streams } from "/page/streams.js";
import { units } from "/page/units.js";

export function showQueries(place, queries) {
  if (queries.length === 0) {
    place.replaceChildren(html("p", { class: "quiet" }, "No query has written metrics yet. ",
      "Give the service a file: thetastream serve --metrics FILE."));
    return;
  }
  replaceAndKeepFocus(place, queries.map(showQuery));
}

function showQuery(query) {
  const words = query.state === "lost" ? "lost: its program is gone" : query.state;
  const when = query.ended === null ? "" : `at ${clock(query.ended)}`;
  return html("article", { class: "card", "aria-label": `Query ${query.name}` },
    html("header", {},
      html("h3", {}, query.name),
      html("span", { class: "state", "data-state": query.state }, words),
      html("span", { class: "quiet" }, when, query.host ? ` on ${query.host}` : "")),
    query.error === null ? null : html("p", { class: "bad" }, query.error),
    ...query.joins.map((join) => showJoin(join, query.joins.length > 1)));
}

function showJoin(join, isOneOfSeveral) {
  const last = join.epochs.at(-1);
  return html("div", {},
    isOneOfSeveral ? html("h4", {}, `Join ${join.join}`) : null,
    html("dl", { class: "words" }, ...Object.entries(join.words).flatMap(([name, text]) => [
      html("dt", {}, name.replace(/^the /, "")), html("dd", {}, html("code", {}, text))])),
    tiles(join, last),
    html("div", { class: "panels of-join" },
      panel("Throughput, tuples per second", lineChart(join.epochs, rate, count, "throughput in tuples per second")),
      panel("Lag behind the clock", lineChart(join.epochs, (epoch) => epoch.lag_s, seconds, "lag")),
      panel("State", lineChart(join.epochs, (epoch) => epoch.state_bytes, bytes, "state in bytes")),
      panel("Time of an epoch by phase", phases(join.epochs)),
      panel("Load and state of each unit", units(join.last.units)),
      panel("Plan: the units of the model", drawing(join.generations, join.last)),
      panel("Streams in the last epoch", streams(join.last.streams)),
      panel("Changes while the query runs", changes(join))));
}

function rate(epoch) {
  return epoch.tuples / Math.max(epoch.seconds, 0.001);
}

function tiles(join, last) {
  const late = sum(join.epochs, "late"), shed = sum(join.epochs, "shed");
  const found = {
    "Epoch": count(last.epoch), "Tuples/s": count(rate(last)), "Epoch time": seconds(last.seconds),
    "Lag": seconds(last.lag_s), "Matches": count(last.matched), "Stored tuples": count(last.held),
    "State": bytes(last.state_bytes), [`Late in ${join.epochs.length} epochs`]: count(late),
    [`Shed in ${join.epochs.length} epochs`]: count(shed),
  };
  return html("dl", { class: "tiles" }, ...Object.entries(found).map(([name, text]) =>
    html("div", {}, html("dt", {}, name), html("dd", { "data-figure": name }, text))));
}

function sum(epochs, key) {
  return epochs.reduce((total, epoch) => total + epoch[key], 0);
}
