// Writes numbers, sizes and times for people.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function formatCount(n) {
  return Math.abs(n) < 100000 ? WHOLE.format(n) : SHORT.format(n);
}

export function formatEpochs(n) {
  return n === 1 ? "1 epoch" : `${formatCount(n)} epochs`;
}

// The file of metrics may begin after the query, for example because somebody has moved an older one away.
export function formatSince(totals) {
  return totals.since === 0 ? "since the start" : `since epoch ${formatCount(totals.since)}`;
}

export function formatBytes(n) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (n >= size) return `${(n / size).toFixed(1)} ${unit}`;
  }
  return `${n} B`;
}

export function formatSeconds(s) {
  if (s === null || s === undefined) return "none";
  if (Math.abs(s) < 120) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
  if (Math.abs(s) < 7200) return `${(s / 60).toFixed(0)} min`;
  if (Math.abs(s) < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${formatCount(s / 86400)} days`;
}

// A larger lag is that of replayed data, whose event times say nothing about a delay.
const LONGEST_LAG_S = 86400;
// The watermark of a query whose input has ended.
const END = "9999-12-31T23:59:59.999Z";

export function isReplayed(s) {
  return s > LONGEST_LAG_S;
}

export function formatLag(s) {
  return isReplayed(s) ? "replayed data" : formatSeconds(s);
}

// Sources of files do not report how much they have not read yet.
export function formatBacklog(found) {
  const parts = Object.entries(found ?? {}).map(([what, n]) => (what === "bytes" ? formatBytes(n) : `${formatCount(n)} ${what}`));
  return parts.length === 0 ? "not reported" : parts.join(", ");
}

export function formatWatermark(iso) {
  if (!iso) return "none";
  return iso === END ? "end of the input" : `${formatInstant(iso)} UTC`;
}

export function formatShare(share) {
  return share === null ? "none" : `${(100 * share).toFixed(0)} %`;
}

export function formatTime(iso) {
  return iso ? `${new Date(iso).toISOString().slice(11, 19)} UTC` : "";
}

export function formatMinute(iso) {
  return iso ? `${new Date(iso).toISOString().slice(0, 16).replace("T", " ")} UTC` : "";
}

export function formatInstant(iso) {
  return iso ? new Date(iso).toISOString().replace("T", " ").replace(/\.?0*Z$/, "") : "";
}
