// Draws the time of each of the last epochs as a bar with a part for each of Spark's phases. The legend names the
// longest phases.

import { html, svg } from "/page/elements.js";
import { formatSeconds } from "/page/format.js";

const WIDTH = 400, HEIGHT = 120, TOP = 16, SHOWN = 40, NAMED = 5;

export function drawPhases(epochs) {
  const shown = epochs.slice(-SHOWN);
  const totals = {};
  for (const epoch of shown) {
    for (const [name, ms] of Object.entries(epoch.phases_ms)) totals[name] = (totals[name] ?? 0) + ms;
  }
  const names = Object.keys(totals).sort((a, b) => totals[b] - totals[a]).slice(0, NAMED);
  const longest = Math.max(...shown.map((epoch) => epoch.seconds), 0.001);
  const step = WIDTH / Math.max(shown.length, 12);
  const bars = shown.flatMap((epoch, n) => {
    let bottom = HEIGHT;
    return split(epoch, names).map(([, ms], number) => {
      const height = (ms / 1000 / longest) * (HEIGHT - TOP);
      bottom -= height;
      return svg("rect", { class: `phase-${number + 1}`, x: n * step, y: bottom, width: step * 0.8, height });
    });
  });
  const last = shown.at(-1);
  const parts = split(last, names).map(([name, ms]) => `${name} ${formatSeconds(ms / 1000)}`);
  const label = `time of the last epoch: ${formatSeconds(last.seconds)}; ${parts.join(", ")}`;
  return html("div", {},
    svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
      svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: TOP, y2: TOP }),
      svg("text", { x: 0, y: TOP - 4 }, formatSeconds(longest)), ...bars),
    html("ul", { class: "legend" }, ...parts.map((text, number) => html("li", {},
      svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" },
        svg("rect", { class: `phase-${number + 1}`, width: 10, height: 10 })), text))));
}

function split(epoch, names) {
  const named = names.map((name) => [name, epoch.phases_ms[name] ?? 0]);
  const rest = epoch.seconds * 1000 - named.reduce((total, [, ms]) => total + ms, 0);
  return [...named, ["other", Math.max(0, rest)]];
}
