// Shows each query: its state, its figures, and the panels of each of its joins.

import { listChanges } from "/page/changes.js";
import { drawGenerations } from "/page/drawing.js";
import { html, makePanel } from "/page/elements.js";
import {
  formatBytes, formatCount, formatEpochs, formatLag, formatSeconds, formatTime, formatWatermark,
} from "/page/format.js";
import { replaceAndKeepFocus } from "/page/keep_focus.js";
import { drawLine } from "/page/line_chart.js";
import { drawPhases } from "/page/phases.js";
import { showStreams } from "/page/streams.js";
import { drawUnits } from "/page/units.js";

export function showQueries(place, queries) {
  if (queries.length === 0) {
    place.replaceChildren(html("p", { class: "quiet" }, "No query has written metrics yet. ",
      "Start the service with a file of metrics: thetastream serve --metrics FILE."));
    return;
  }
  replaceAndKeepFocus(place, queries.map(showQuery));
}

function showQuery(query) {
  const words = query.state === "lost" ? "lost: its program is gone" : query.state;
  const when = query.ended === null ? "" : `at ${formatTime(query.ended)}`;
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
    showFigures(join, last),
    html("div", { class: "panels of-join" },
      makePanel("Throughput, tuples per second",
        drawLine(join.epochs, computeRate, formatCount, "throughput in tuples per second")),
      makePanel("Lag behind the clock", drawLine(join.epochs, (epoch) => epoch.lag_s, formatSeconds, "lag")),
      makePanel("State", drawLine(join.epochs, (epoch) => epoch.state_bytes, formatBytes, "state in bytes")),
      makePanel("Time of an epoch by phase", drawPhases(join.epochs)),
      makePanel("Load and state of each unit", drawUnits(join.last.units)),
      makePanel("Plan: the units of the model", drawGenerations(join.generations, join.last)),
      makePanel("Streams in the last epoch", showStreams(join.last.streams)),
      makePanel("Changes while the query runs", listChanges(join))));
}

function computeRate(epoch) {
  return epoch.tuples / Math.max(epoch.seconds, 0.001);
}

function showFigures(join, last) {
  // Spark closes a run with an epoch without tuples, whose figures say nothing.
  const busy = join.epochs.findLast((epoch) => epoch.tuples > 0) ?? last;
  const counted = formatEpochs(join.epochs.length);
  const total = (key) => formatCount(sum(join.epochs, key));
  const found = {
    "Epoch": formatCount(last.epoch), "Tuples/s": formatCount(computeRate(busy)), "Epoch time": formatSeconds(busy.seconds),
    "Lag": formatLag(busy.lag_s), "Watermark": formatWatermark(join.last.watermark), "Matches": formatCount(busy.matched),
    "Stored tuples": formatCount(last.held), "State": formatBytes(last.state_bytes),
    [`Tuples in ${counted}`]: total("tuples"), [`Matches in ${counted}`]: total("matched"),
    [`Late in ${counted}`]: total("late"), [`Shed in ${counted}`]: total("shed"),
  };
  return html("dl", { class: "tiles" }, ...Object.entries(found).map(([name, text]) =>
    html("div", {}, html("dt", {}, name), html("dd", { "data-figure": name }, text))));
}

function sum(epochs, key) {
  return epochs.reduce((total, epoch) => total + epoch[key], 0);
}
