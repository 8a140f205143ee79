// A share with its 95% interval: as numbers, and drawn on a line from 0 to 1.

import { h } from "./dom.js";
import { percent } from "./format.js";

const share = (value) => `${(100 * Math.min(1, Math.max(0, value))).toFixed(2)}%`;

/** Return the success of a score with its interval. */
export function interval({ success_rate: rate, success_low: low, success_high: high, episodes }) {
  if (typeof rate !== "number" || episodes === 0) return h("span", { class: "faint" }, "–");
  const hasEnds = typeof low === "number" && typeof high === "number";
  return h("span", { class: "interval" },
    h("b", { class: "number" }, percent(rate)),
    h("span", { class: "interval-line", "aria-hidden": "true" },
      hasEnds ? h("i", { class: "interval-range", style: { left: share(low), width: share(high - low) } }) : null,
      h("i", { class: "interval-mark", style: { left: share(rate) } })),
    hasEnds ? h("span", { class: "faint number" }, `${percent(low)} – ${percent(high)}`) : null);
}
