// Makes elements of HTML and SVG. Text is always set as text, so that a value can never become markup.

const SVG = "http://www.w3.org/2000/svg";

export function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function makePanel(title, ...children) {
  return html("section", { class: "panel" }, html("h4", {}, title), ...children);
}
