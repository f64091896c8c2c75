// Draws a figure of each epoch as a line, and writes its greatest value and the times of the first and the last epoch.

import { html, svg } from "/page/elements.js";
import { formatEpochs, formatTime } from "/page/format.js";

const WIDTH = 400, HEIGHT = 120, TOP = 16, BOTTOM = 100;

export function drawLine(epochs, read, write, what) {
  const known = epochs.filter((epoch) => read(epoch) !== null);
  if (known.length === 0) return html("p", { class: "quiet" }, "Nothing is known yet.");
  const values = known.map(read);
  const greatest = Math.max(...values, 0), least = Math.min(...values, 0);
  const range = greatest - least || 1;
  // The only epoch is drawn as a level line.
  const drawn = values.length === 1 ? [values[0], values[0]] : values;
  const points = drawn.map((value, n) => {
    const x = (n / (drawn.length - 1)) * WIDTH;
    return `${x.toFixed(1)},${(BOTTOM - ((value - least) / range) * (BOTTOM - TOP)).toFixed(1)}`;
  });
  const label = `${what}: ${write(values.at(-1))} now, ${write(greatest)} at most in ${formatEpochs(known.length)}`;
  return svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: TOP, y2: TOP }),
    svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: BOTTOM, y2: BOTTOM }),
    svg("polygon", { class: "area-first", points: `0,${BOTTOM} ${points.join(" ")} ${WIDTH},${BOTTOM}` }),
    svg("polyline", { class: "line-first", points: points.join(" ") }),
    svg("text", { x: 0, y: TOP - 4 }, write(greatest)),
    svg("text", { x: 0, y: HEIGHT - 6 }, formatTime(known[0].began)),
    svg("text", { x: WIDTH, y: HEIGHT - 6, "text-anchor": "end" }, formatTime(known.at(-1).began)));
}
