// Reads rows of results. A struct becomes columns such as a.price, and a text in the form of a time can become a number.

const TIME = /^\d{4}-\d\d-\d\d(T[\d:.]+([+-]\d\d:\d\d|Z)?)?$/;

export function flatten(row, prefix = "") {
  // An object without a prototype has no other meaning for a column "__proto__".
  const flat = Object.create(null);
  for (const [name, value] of Object.entries(row)) {
    const isStruct = value !== null && typeof value === "object" && !Array.isArray(value);
    Object.assign(flat, isStruct ? flatten(value, `${prefix}${name}.`) : { [prefix + name]: value });
  }
  return flat;
}

export function isTime(value) {
  return typeof value === "string" && TIME.test(value);
}

export function toNumber(value) {
  if (typeof value === "number") return value;
  return isTime(value) ? Date.parse(value) : NaN;
}

export function listPlottable(rows) {
  const names = new Set(rows.flatMap((row) => Object.keys(row)));
  return [...names].filter((name) => rows.some((row) => Number.isFinite(toNumber(row[name]))));
}
