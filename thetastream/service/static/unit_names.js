// Names units by their number and the stream that they store, as in "0 orders".

const SIDES = { left: 0, right: 1 };

export function nameUnits(generations, streams) {
  const aliases = Object.keys(streams);
  const names = new Map();
  for (const unit of generations.flatMap((one) => one.units)) {
    const alias = aliases.length === 2 ? aliases[SIDES[unit.role]] : undefined;
    names.set(unit.unit, { role: alias === undefined ? unit.role : `stores ${alias}`, alias: alias ?? "" });
  }
  return names;
}
