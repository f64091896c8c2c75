// Shows each query: its state, its figures, and the panels of each of its joins.

import { listChanges } from "/page/changes.js";
import { drawGenerations } from "/page/drawing.js";
import { html, makePanel } from "/page/elements.js";
import {
  formatBacklog, formatBytes, formatCount, formatLag, formatMinute, formatSeconds, formatShare, formatSince, formatTime,
  formatWatermark, isReplayed,
} from "/page/format.js";
import { replaceAndKeepFocus } from "/page/keep_focus.js";
import { drawLine } from "/page/line_chart.js";
import { drawPhases } from "/page/phases.js";
import { showCommand } from "/page/scaling.js";
import { showStreams } from "/page/streams.js";
import { nameUnits } from "/page/unit_names.js";
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
  const when = query.ended === null ? `since ${formatMinute(query.since)}` : `at ${formatTime(query.ended)}`;
  const again = query.restarts === 0 ? "" : `, restarted ${query.restarts === 1 ? "once" : `${query.restarts} times`}`;
  return html("article", { class: "card", "aria-label": `Query ${query.name}` },
    html("header", {},
      html("h3", {}, query.name),
      html("span", { class: "state", "data-state": query.state }, words),
      html("span", { class: "quiet" }, when, again, query.host ? ` on ${query.host}` : "")),
    query.error === null ? null : html("p", { class: "bad" }, query.error),
    ...query.joins.map((join) => showJoin(join, query)));
}

// An outer, semi, anti or nearest join may have a part of its condition that Spark evaluates. Its pairs then pass second
// units, which decide the tuples.
const SECOND = "the units", CONDITION = "the condition", KIND = "the kind of join";

// The units of such joins count the pairs that they find. Results are others: tuples, or some of the pairs.
const PAIRS_FOUND = "Pairs found";

function nameJoin(join, query) {
  if (SECOND in join.words) return { title: "Answers, from the pairs that pass the whole condition", matches: PAIRS_FOUND };
  const isFirst = query.joins.some((other) => SECOND in other.words && other.words[CONDITION] === join.words[CONDITION]);
  if (isFirst) return { title: "Pairs, before the part of the condition that Spark evaluates", matches: PAIRS_FOUND };
  const matches = KIND in join.words ? PAIRS_FOUND : "Matches";
  return { title: query.joins.length > 1 ? `Join ${join.join}` : null, matches };
}

function showJoin(join, query) {
  const last = join.epochs.at(-1), name = nameJoin(join, query);
  const names = nameUnits(join.generations, join.streams);
  const draw = (what, read, write) => drawLine(`${query.name}/${join.join}/${what}`, join.epochs, read, write, what);
  return html("div", {},
    name.title === null ? null : html("h4", {}, name.title),
    ...join.findings.map((text) => html("p", { class: "finding" }, text)),
    html("dl", { class: "words" }, ...Object.entries(join.words).flatMap(([name, text]) => [
      html("dt", {}, name.replace(/^the /, "")), html("dd", {}, html("code", {}, text))])),
    showFigures(join, last, name.matches, query.state),
    html("div", { class: "panels of-join" },
      makePanel("Input, tuples per second", draw("input in tuples per second", computeRate, formatCount)),
      makePanel(`Output, ${name.matches.toLowerCase()} per second`,
        draw(`output in ${name.matches.toLowerCase()} per second`, computeOutput, formatCount)),
      makePanel("Lag behind the clock", join.epochs.some((epoch) => isReplayed(epoch.lag_s))
        ? html("p", { class: "quiet" }, "Event times are more than a day old, as in replayed data.")
        : draw("lag", (epoch) => epoch.lag_s, formatSeconds)),
      makePanel("State", draw("state in bytes", (epoch) => epoch.state_bytes, formatBytes)),
      makePanel("Time of an epoch by phase", drawPhases(join.epochs)),
      makePanel("Load and state of each unit", drawUnits(join.units, names)),
      makePanel("Plan: the units of the model", drawGenerations(join.generations, join.last, names), showCommand(join.last)),
      makePanel(`Streams, ${formatSince(join.totals)}`, showStreams(join.streams)),
      makePanel("Changes while the query runs", listChanges(join))));
}

function computeRate(epoch) {
  return epoch.tuples / Math.max(epoch.seconds, 0.001);
}

function computeOutput(epoch) {
  return epoch.matched / Math.max(epoch.seconds, 0.001);
}

// The value that a share of the values does not exceed.
function findPercentile(values, share) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(Math.ceil(share * sorted.length) - 1, 0)];
}

function showFigures(join, last, matches, state) {
  // Spark closes a run with an epoch without tuples, whose figures say nothing.
  const busy = join.epochs.findLast((epoch) => epoch.tuples > 0) ?? last;
  const counted = formatSince(join.totals);
  const seconds = join.epochs.filter((epoch) => epoch.tuples > 0 || epoch === busy).map((epoch) => epoch.seconds);
  const percentiles = [0.5, 0.95, 0.99].map((share) => formatSeconds(findPercentile(seconds, share))).join(", ");
  const endedS = last.began === null ? null : Date.parse(last.began) / 1000 + last.seconds;
  const age = endedS === null ? "none" : `${formatSeconds(Math.max(Date.now() / 1000 - endedS, 0))} ago`;
  const total = (key) => formatCount(join.totals[key]);
  const found = {
    "Epoch": formatCount(last.epoch), "Last checkpoint": state === "running" ? age : formatTime(last.began),
    "Tuples/s": formatCount(computeRate(busy)), [`${matches}/s`]: formatCount(computeOutput(busy)),
    "Epoch time": formatSeconds(busy.seconds), "Epoch p50, p95, p99": percentiles, "Units busy": formatShare(busy.busy),
    "Lag": formatLag(busy.lag_s), "Backlog": formatBacklog(join.last.backlog),
    "Watermark": formatWatermark(join.last.watermark), [matches]: formatCount(busy.matched),
    "Stored tuples": formatCount(last.held), "State": formatBytes(last.state_bytes),
    [`Tuples ${counted}`]: total("tuples"), [`${matches} ${counted}`]: total("matched"),
    [`Late ${counted}`]: total("late"), [`Shed ${counted}`]: total("shed"),
  };
  return html("dl", { class: "tiles" }, ...Object.entries(found).map(([name, text]) =>
    html("div", {}, html("dt", {}, name), html("dd", { "data-figure": name }, text))));
}
