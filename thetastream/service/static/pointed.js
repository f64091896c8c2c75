// Remembers at which epoch the pointer or the keyboard points in each chart, because charts are drawn anew every second.

const epochs = new Map();

// Lets a chart point at its epochs. `places` has the epoch and the x of each drawn point; `show` marks one of them, and
// gets null if there is none to mark.
export function makePointable(frame, drawing, key, places, show) {
  const mark = (n) => {
    if (n === null) epochs.delete(key);
    else epochs.set(key, places[n].epoch);
    show(n);
  };
  const find = () => {
    const n = places.findIndex((place) => place.epoch === epochs.get(key));
    return n < 0 ? null : n;
  };
  frame.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
    const distances = places.map((place) => Math.abs(place.x - at.x));
    mark(distances.indexOf(Math.min(...distances)));
  });
  frame.addEventListener("pointerleave", () => mark(null));
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") mark(null);
    if (step === undefined) return;
    event.preventDefault();
    mark(Math.min(Math.max((find() ?? places.length) + step, 0), places.length - 1));
  });
  show(find());
}
