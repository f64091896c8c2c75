// Replaces the children of an element. A new part with the label of an old part gets its focus and scroll position.

const LABELLED = "[aria-label][tabindex]";

export function replaceAndKeepFocus(place, children) {
  const focused = place.contains(document.activeElement) ? describe(place, document.activeElement) : null;
  const scrolled = [...place.querySelectorAll(LABELLED)].map((part) => [describe(place, part), part.scrollLeft]);
  place.replaceChildren(...children);
  for (const part of place.querySelectorAll(LABELLED)) {
    const key = describe(place, part);
    part.scrollLeft = scrolled.find(([known]) => known === key)?.[1] ?? 0;
    if (key === focused) part.focus({ preventScroll: true });
  }
}

function describe(place, part) {
  const labels = [];
  for (let one = part; one !== place; one = one.parentElement) labels.push(one.getAttribute("aria-label") ?? "");
  return labels.join("/");
}
