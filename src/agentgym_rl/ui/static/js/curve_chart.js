// One chart of the board: which lines a metric has for the runs shown, over which axis.

import { count, isShare, metricValue } from "./format.js";
import { faded, plotText } from "./plot.js";
import { color, lineColor } from "./theme.js";

export const HORIZON = "rollout/max_rounds";
export const AXES = [["step", "steps"], ["time", "time"], ["tokens", "tokens"]];
const SUMMED = { time: "time/step_s", tokens: "rollout/tokens" };

/** The metrics that an axis needs besides those that are shown. */
export function neededFor(axis) {
  return axis in SUMMED ? [SUMMED[axis]] : [];
}

/** Return a curve smoothed by an exponential mean without bias at its start; gaps stay gaps. */
export function smoothed(values, weight) {
  let mean = 0;
  let total = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return mean / total;
  });
}

/** Return where on the axis each step of a run lies: its number, or what was spent up to its end. */
export function placesOf(curves, axis) {
  if (!(axis in SUMMED)) return { steps: curves.steps, at: (step) => step };
  let total = 0;
  const steps = (curves.values[SUMMED[axis]] ?? []).map((value) => (total += value ?? 0));
  const at = (step) => {
    const index = curves.steps.findLastIndex((other) => other <= step);
    return index < 0 ? 0 : steps[index];
  };
  return { steps, at };
}

/** Whether a run has anything to show of a metric. */
export function hasValues(curves, name) {
  return Boolean(curves && (curves.evals[name] || curves.values[name]?.some((value) => value !== null)));
}

/** The last value of a metric. */
export function lastOf(curves, name) {
  return (curves.evals[name]?.values ?? curves.values[name]).findLast((value) => value !== null);
}

/** Return {traces, layout, label} of a metric for several runs. */
export function chartOf(name, series, { smoothing, span, axis = "step", isLog = false }) {
  const unit = unitOf(series, axis);
  const traces = series.flatMap((one) => (one.curves.evals[name] ? evaluationTraces(one, name, axis) : tracesOf(name, one, { smoothing, axis })));
  if (name === "rollout/rounds_mean") {
    for (const { run, index, curves } of series) {
      traces.push({
        x: placesOf(curves, axis).steps, y: curves.values[HORIZON] ?? [], name: plotText(`horizon · ${run}`), mode: "lines", line: { color: lineColor(index), width: 1, dash: "dot", shape: "hv" }, hoverinfo: "skip",
      });
    }
  }
  for (const trace of traces) trace.x = trace.x.map((value) => value / unit.scale);
  const label = `${name}: ${series.map(({ run, curves }) => `${run} ${metricValue(name, lastOf(curves, name))} after ${count(curves.evals[name]?.steps.at(-1) ?? curves.steps.at(-1), "step")}`).join(", ") || "no values"}`;
  const xaxis = axis === "step" ? stepAxis(span) : { title: { text: unit.name, font: { size: 10.5 }, standoff: 4 }, rangemode: "tozero", tickformat: axis === "tokens" ? "~s" : "", hoverformat: axis === "tokens" ? ",d" : ".3~g" };
  const margin = axis === "step" ? {} : { margin: { b: 38 } };
  return { traces, layout: { yaxis: yAxis(name, series, isLog), xaxis, ...margin, ...stagesOf(series, axis, unit) }, label };
}

function unitOf(series, axis) {
  if (axis === "tokens") return { name: "tokens generated", scale: 1 };
  if (axis !== "time") return { name: "step", scale: 1 };
  const most = Math.max(0, ...series.map(({ curves }) => placesOf(curves, axis).steps.at(-1) ?? 0));
  if (most > 3 * 3600) return { name: "hours of steps and their evaluations", scale: 3600 };
  return most > 300 ? { name: "minutes of steps and their evaluations", scale: 60 } : { name: "seconds of steps and their evaluations", scale: 1 };
}

/** The evaluations of a run from step 0 on, on a band that is their 95% interval. */
function evaluationTraces({ run, index, curves }, name, axis) {
  const { steps, values, low, high } = curves.evals[name];
  const { at } = placesOf(curves, axis);
  const x = steps.map(at);
  const edge = { x, mode: "lines", line: { width: 0, color: lineColor(index) }, hoverinfo: "skip", showlegend: false };
  const text = values.map((value, place) => `${metricValue(name, value)} [${metricValue(name, low[place])}, ${metricValue(name, high[place])}]`);
  return [
    { ...edge, y: high, name: "" },
    { ...edge, y: low, name: "", fill: "tonexty", fillcolor: faded(lineColor(index), 0.16) },
    { x, y: values, name: plotText(run), mode: "lines+markers", line: { color: lineColor(index), width: 1.7 }, marker: { size: 5, color: lineColor(index) }, text, hovertemplate: "%{text}" },
  ];
}

function tracesOf(name, { run, index, curves }, { smoothing, axis }) {
  const values = curves.values[name];
  const places = placesOf(curves, axis).steps;
  const isSparse = values.filter((value) => value !== null).length < values.length * 0.7 || values.length < 3;
  const points = isSparse ? places.map((place, at) => [place, values[at]]).filter(([, value]) => value !== null) : null;
  const x = points ? points.map(([place]) => place) : places;
  const y = points ? points.map(([, value]) => value) : values;
  const line = { color: lineColor(index), width: 1.7 };
  if (isSparse || smoothing === 0) return [{ x, y, name: plotText(run), mode: isSparse ? "lines+markers" : "lines", line, marker: { size: 5, color: lineColor(index) } }];
  return [
    { x, y, name: plotText(run), mode: "lines", line: { ...line, width: 1, color: faded(lineColor(index), 0.28) }, hoverinfo: "skip", showlegend: false },
    { x, y: smoothed(y, smoothing), name: plotText(run), mode: "lines", line },
  ];
}

function yAxis(name, series, isLog) {
  const values = series.flatMap(({ curves }) => curves.evals[name]?.values ?? curves.values[name]).filter((value) => value !== null);
  const most = Math.max(...values);
  const least = Math.min(...values);
  const isFlat = values.length > 0 && most === least;
  const formats = isShare(name) ? { tickformat: ".0%", hoverformat: ".1%" } : { tickformat: "~s", hoverformat: ".4~g" };
  if (Math.abs(most) < 1000 && !isShare(name)) formats.tickformat = Math.abs(most) < 1e-3 && most !== 0 ? ".0e" : "";
  if (isLog && least >= 0 && most > 0) return { ...formats, type: "log", autorange: true, nticks: 4 };
  return isFlat ? { ...formats, range: most === 0 ? [-0.05, 1] : [Math.min(0, most * 1.3), Math.max(0, most * 1.3)] } : { ...formats, autorange: true };
}

/** Return an axis of steps from the first to the last, with a mark on whole steps only. */
export function stepAxis([first, last]) {
  const length = last - first;
  if (!Number.isFinite(length)) return {};
  const margin = Math.max(length * 0.01, length === 0 ? 0.5 : 0);
  return { range: [first - margin, last + margin], dtick: length <= 8 ? Math.max(1, Math.ceil(length / 6)) : null, tick0: first, nticks: 6 };
}

/** Return shapes and words for the stages of the horizon of the first run that has more than one. */
function stagesOf(series, axis, { scale }) {
  const staged = series.find(({ curves }) => curves.stages().length > 1);
  if (!staged) return { shapes: [], annotations: [] };
  const stages = staged.curves.stages();
  const { at } = placesOf(staged.curves, axis);
  const half = axis === "step" ? 0.5 : 0;
  const start = (step) => (axis === "step" ? step : at(step - 1) / scale);
  const shapes = stages.filter((_, index) => index % 2 === 1).map(([first, last]) => ({
    type: "rect", xref: "x", yref: "paper", x0: start(first) - half, x1: at(last) / scale + half, y0: 0, y1: 1, line: { width: 0 }, fillcolor: faded(color("--series-7"), 0.11), layer: "below",
  }));
  const annotations = stages.map(([first, , limit]) => ({
    x: start(first), y: 1, xref: "x", yref: "paper", xanchor: "left", yanchor: "top", text: `≤${limit}`, hovertext: `horizon: at most ${limit} rounds`, showarrow: false, font: { size: 9.5, color: color("--faint") },
  }));
  return { shapes, annotations };
}
