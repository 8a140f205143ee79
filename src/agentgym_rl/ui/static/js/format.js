// Numbers, times and names as people read them.

const MISSING = "–";
const group = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Return a number with about `digits` significant digits: 0.3125, 12.5, 1,482, 2.4e-7. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return MISSING;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1000 || Number.isInteger(value)) return size >= 1e9 ? minus(value.toExponential(2)) : minus(group.format(value));
  if (size < 1e-3) return minus(value.toExponential(Math.min(digits - 1, 2)));
  return minus(String(Number(value.toPrecision(digits))));
}

/** Return a number with its sign: +1, 0, −0.25. */
export function signed(value, digits = 3) {
  return value > 0 ? `+${number(value, digits)}` : number(value, digits);
}

/** Return a share of one as a percentage: 0.3125 is "31.3%". */
export function percent(value) {
  if (value === null || value === undefined) return MISSING;
  const hundredths = value * 100;
  return `${minus(hundredths.toFixed(Math.abs(hundredths) >= 99.95 || hundredths === 0 ? 0 : 1))}%`;
}

/** Return a duration: "12 ms", "3.2 s", "4 min 05 s", "2 h 10 min". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return MISSING;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return "<1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/** Return how long ago a time, as in "2026-01-31T12:00:00Z", was. */
export function ago(time, now = Date.now()) {
  if (!time) return MISSING;
  const seconds = Math.max(0, (now - Date.parse(time)) / 1000);
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return time.slice(0, 10);
}

/** Return "1 round" or "3 rounds". */
export function count(number_, word) {
  return `${group.format(number_ ?? 0)} ${word}${number_ === 1 ? "" : "s"}`;
}

/** Whether a metric is a share of one, shown in percent. */
export function isShare(metric) {
  return /_rate$|_fraction$|(^|\/)share_/.test(metric);
}

/** Return a metric's value in the unit that its name tells. */
export function metricValue(metric, value) {
  if (value === null || value === undefined) return MISSING;
  if (isShare(metric)) return percent(value);
  if (/_s$/.test(metric) && !/per_s$/.test(metric)) return duration(value);
  return number(value);
}

/** Return "max rounds" for "max_rounds". */
export function words(name) {
  return String(name ?? "").replaceAll("_", " ");
}

function minus(text) {
  return text.replace(/^-/, "−");
}
