// Draws a figure of each epoch as a line, with its greatest value and half of it, and the times of some epochs. The
// pointer, or an arrow key, shows the value of an epoch.

import { html, svg } from "/page/elements.js";
import { formatEpochs, formatTime } from "/page/format.js";
import { makePointable } from "/page/pointed.js";

const WIDTH = 400, HEIGHT = 120, TOP = 16, BOTTOM = 100;

export function drawLine(key, epochs, read, write, what) {
  const known = epochs.filter((epoch) => read(epoch) !== null);
  if (known.length === 0) return html("p", { class: "quiet" }, "Nothing is known yet.");
  const values = known.map(read);
  const greatest = Math.max(...values, 0), least = Math.min(...values, 0);
  const range = greatest - least || 1;
  const x = (n) => (known.length === 1 ? WIDTH / 2 : (n / (known.length - 1)) * WIDTH);
  const y = (value) => BOTTOM - ((value - least) / range) * (BOTTOM - TOP);
  // The only epoch is drawn as a level line.
  const drawn = values.length === 1 ? [[0, y(values[0])], [WIDTH, y(values[0])]] : values.map((value, n) => [x(n), y(value)]);
  const points = drawn.map((point) => point.map((one) => one.toFixed(1)).join(",")).join(" ");
  const label = `${what}: ${write(values.at(-1))} now, ${write(greatest)} at most in ${formatEpochs(known.length)}`;
  const line = svg("line", { class: "mark", y1: TOP, y2: BOTTOM });
  const dot = svg("circle", { class: "mark-dot", r: 3.5 });
  const middle = known[Math.floor((known.length - 1) / 2)];
  const half = (greatest + least) / 2;
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    ...[TOP, (TOP + BOTTOM) / 2, BOTTOM].map((at) => svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: at, y2: at })),
    svg("polygon", { class: "area-first", points: `0,${BOTTOM} ${points} ${WIDTH},${BOTTOM}` }),
    svg("polyline", { class: "line-first", points }),
    svg("text", { x: 0, y: TOP - 4 }, write(greatest)),
    range > 1e-9 && greatest !== least ? svg("text", { x: 0, y: (TOP + BOTTOM) / 2 - 4 }, write(half)) : null,
    svg("text", { x: 0, y: HEIGHT - 6 }, formatTime(known[0].began)),
    known.length > 2 ? svg("text", { x: WIDTH / 2, y: HEIGHT - 6, "text-anchor": "middle" }, formatTime(middle.began)) : null,
    svg("text", { x: WIDTH, y: HEIGHT - 6, "text-anchor": "end" }, formatTime(known.at(-1).began)), line, dot);
  const readout = html("p", { class: "quiet readout" });
  const frame = html("div", { class: "chart-frame", tabindex: "0", role: "group",
    "aria-label": `${what}; arrow keys choose an epoch` }, drawing, readout);
  makePointable(frame, drawing, key, known.map((epoch, n) => ({ epoch: epoch.epoch, x: x(n) })), (n) => {
    for (const part of [line, dot]) part.toggleAttribute("hidden", n === null);
    readout.textContent = n === null ? ""
      : `epoch ${known[n].epoch}, ${formatTime(known[n].began)}: ${write(values[n])}`;
    if (n === null) return;
    for (const end of ["x1", "x2"]) line.setAttribute(end, x(n));
    dot.setAttribute("cx", x(n));
    dot.setAttribute("cy", y(values[n]));
  });
  return frame;
}
