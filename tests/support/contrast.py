"""The contrast of every text on a page with what lies beneath it, as WCAG 2.2 defines it (1.4.3)."""

from typing import Any

LEAST = 4.5
"""The least contrast of a text of ordinary size."""

FIND_TEXTS = """() => {
  const parse = (colour) => {
    const [red, green, blue, alpha = 1] = (colour.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    return {rgb: [red, green, blue], alpha};
  };
  const over = (top, ground) => ground.map((value, i) => top.alpha * top.rgb[i] + (1 - top.alpha) * value);
  const luminance = (rgb) => {
    const linear = rgb
      .map((value) => value / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const paint = (element) => {
    const style = getComputedStyle(element);
    const isShape = element instanceof SVGElement;
    if (isShape && ["svg", "text"].includes(element.tagName)) return null;
    const colour = parse(isShape ? style.fill : style.backgroundColor);
    return {...colour, alpha: colour.alpha * Number(style.opacity)};
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    const owner = text.parentElement;
    if (!text.data.trim() || ["SCRIPT", "STYLE", "title", "OPTION"].includes(owner.tagName)) continue;
    if (owner.closest(".hidden, .skip")) continue;
    owner.scrollIntoView({block: "center", inline: "center"});
    const range = document.createRange();
    range.selectNodeContents(text);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const layers = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    const painted = layers.reverse().map(paint).filter(Boolean);
    const ground = painted.reduce((below, top) => over(top, below), [255, 255, 255]);
    const style = getComputedStyle(owner);
    const ink = over(parse(owner instanceof SVGElement ? style.fill : style.color), ground);
    const [light, dark] = [luminance(ink), luminance(ground)].sort((a, b) => b - a);
    found.push({text: text.data.trim(), contrast: (light + 0.05) / (dark + 0.05)});
  }
  return found;
}"""


def find_texts(page: Any) -> list[dict[str, Any]]:
    """List the visible texts of a page, each with its contrast."""
    return list(page.evaluate(FIND_TEXTS))
