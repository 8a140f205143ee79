// Colours of tokens: what each way of colouring means, its scale and its legend.

import { theme } from "./theme.js";
import { number, signed } from "./format.js";

// Three fixed points of each scale: low, middle, high. Text of the theme is readable on all of them.
const RAMPS = {
  light: { warm: ["#ffffff", "#ffe3b8", "#ffb58f"], two: ["#ffb3a8", "#ffffff", "#a9c6ff"], cool: ["#ffffff", "#d5e3ff", "#a9c6ff"] },
  dark: { warm: ["#15181b", "#5a3a12", "#8a3a12"], two: ["#8a2f28", "#15181b", "#28549c"], cool: ["#15181b", "#1f3a66", "#28549c"] },
};

/** The ways of colouring, in the order of their keys 1 to 5. */
export const MODES = {
  mask: { label: "Loss mask", text: "which tokens are learned from" },
  logprob: { label: "Log-prob", text: "the engine's log-probability: the warmer, the more surprising" },
  difference: { label: "Engine − learner", text: "log-probability of the engine minus that of the learner" },
  advantage: { label: "Advantage", text: "what the update does: blue more likely, red less likely" },
  entropy: { label: "Entropy", text: "how open the choice was, in nats" },
};

/** Return the values that a way of colouring needs; null where the run did not store them. */
export function valuesOf(sample, mode) {
  return sample[mode] ?? null;
}

/** Return {color(value), low, high, stops} of a way of colouring for one sample. */
export function scaleOf(sample, mode) {
  const ramps = RAMPS[theme()];
  if (mode === "mask") return { color: (value) => (value ? ramps.cool[2] : null) };
  const values = (valuesOf(sample, mode) ?? []).filter((value, index) => value !== null && sample.mask[index]);
  if (mode === "logprob") return linear(ramps.warm, 0, -Math.max(1, -quantile(values, 0.02)), number);
  if (mode === "entropy") return linear(ramps.warm, 0, Math.max(0.1, quantile(values, 0.98)), number);
  const most = quantile(values.map(Math.abs), 0.98) || 1;
  return linear(ramps.two, -most, most, signed);
}

function linear(ramp, low, high, format) {
  const color = (value) => {
    if (value === null || value === undefined) return null;
    const share = Math.max(0, Math.min(1, (value - low) / (high - low)));
    return share <= 0.5 ? mix(ramp[0], ramp[1], share * 2) : mix(ramp[1], ramp[2], share * 2 - 1);
  };
  return { color, stops: ramp, low: format(low, 3), high: format(high, 3) };
}

function quantile(values, share) {
  if (!values.length) return 0;
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

function mix(from, to, share) {
  const a = Number.parseInt(from.slice(1), 16);
  const b = Number.parseInt(to.slice(1), 16);
  const channel = (shift) => Math.round(((a >> shift) & 255) * (1 - share) + ((b >> shift) & 255) * share);
  return `rgb(${channel(16)}, ${channel(8)}, ${channel(0)})`;
}
