// The board of curves on the runs overview: which metrics are shown, smoothed how, for which runs.

import { empty, iconButton } from "./components.js";
import { fill, h, icon, setText } from "./dom.js";
import { count, isShare, metricValue } from "./format.js";
import { Chart, faded, plotText } from "./plot.js";
import { Curves, runList } from "./run_store.js";
import { color, lineColor, seriesColor } from "./theme.js";

export const DEFAULT_METRICS = [
  "rollout/success_rate", "rollout/*/success_rate", "rollout/reward_mean", "rollout/rounds_mean", "eval/*", "train/kl", "train/entropy", "rollout/tokens_per_s",
  "rollout/episodes_failed", "rollout/invalid_action_rate", "train/loss", "rollout/env/*", "rollout/reward/*",
];
const MAX_OF_A_KIND = 12;
const HORIZON = "rollout/max_rounds";
const MAX_SEARCHED = 60;

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

/** Return the metrics to show: those searched for, or the chosen ones, where "eval/*" and "rollout/*\/success_rate" (of each environment) stand for all of a kind. */
export function chosenMetrics(known, { metrics, search }) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length) return known.filter((name) => words.every((word) => name.toLowerCase().includes(word))).slice(0, MAX_SEARCHED);
  const isKnown = new Set(known);
  const named = metrics.flatMap((name) => (name.includes("/*") ? known.filter((other) => isOfKind(other, name)).slice(0, MAX_OF_A_KIND) : [name]));
  const shown = named.filter((name) => isKnown.has(name));
  return shown.length || metrics !== DEFAULT_METRICS ? shown : known.slice(0, 12);
}

/** Whether "eval/*" (of which success alone is shown) or another such word stands for a metric. */
function isOfKind(name, kind) {
  const [before, after] = kind.split("*");
  if (after) return name.startsWith(before) && name.endsWith(after) && name.split("/").length === kind.split("/").length && !/^rollout\/(env|reward)\//.test(name);
  return name.startsWith(kind.slice(0, -1)) && (kind !== "eval/*" || name.endsWith("/success_rate"));
}

export class CurveBoard {
  constructor(set) {
    this.set = set;
    this.curves = new Map();
    this.cards = new Map();
    this.search = h("input", { type: "search", class: "metric-search", "aria-label": "Search metrics", placeholder: "Search metrics, e.g. entropy", oninput: () => set({ q: this.search.value }, { replace: true }) });
    this.smooth = h("input", { type: "range", min: "0", max: "0.98", step: "0.02", "aria-label": "Smoothing", oninput: () => set({ smooth: this.smooth.value }, { replace: true }) });
    this.smoothText = h("output", { class: "number smooth-value" });
    this.summary = h("span", { class: "muted board-summary", role: "status" });
    this.legend = h("ul", { class: "board-legend", "aria-label": "Runs shown" });
    this.grid = h("div", { class: "board-grid" });
    this.tools = h("div", { class: "board-tools" }, this.search,
      h("label", { class: "row smooth" }, h("span", { class: "muted" }, "Smoothing"), this.smooth, this.smoothText), this.summary);
    this.node = h("section", { class: "board", "aria-label": "Curves" }, this.legend, this.grid);
  }

  async show(state) {
    this.state = state;
    if (document.activeElement !== this.search) this.search.value = state.search;
    this.smooth.value = String(state.smoothing);
    setText(this.smoothText, state.smoothing.toFixed(2));
    const names = state.focus ? [state.focus] : chosenMetrics(state.known, state);
    setText(this.summary, state.search ? count(names.length, "metric") : "");
    this.#drawLegend();
    const key = JSON.stringify([names, state.focus]);
    if (key !== this.shownNames || !names.length) this.#place(names);
    this.shownNames = key;
    const changed = await this.#load([...new Set([...names, HORIZON])]);
    const look = JSON.stringify([state.runs, state.smoothing, key]);
    if (!state.signal.aborted && (changed || look !== this.look)) {
      this.look = look;
      for (const name of names) this.#draw(name);
    }
  }

  dispose() {
    for (const card of this.cards.values()) card.chart.dispose();
  }

  async #load(names) {
    const results = await Promise.all(this.state.runs.map(async (run) => {
      if (!this.curves.has(run)) this.curves.set(run, new Curves(run));
      try {
        return await this.curves.get(run).refresh(names, { numSteps: runList.find(run)?.steps ?? null, signal: this.state.signal });
      } catch (error) {
        if (error.name === "AbortError" || error.type) return false; // the list of runs tells of it
        throw error;
      }
    }));
    return results.some(Boolean);
  }

  #drawLegend() {
    const key = this.state.runs.join("\n");
    if (key === this.legendKey) return;
    this.legendKey = key;
    fill(this.legend, this.state.runs.map((run, index) => h("li", {}, h("i", { style: { background: seriesColor(index) } }), run)));
  }

  /** Say why there is no curve. */
  #nothing() {
    const { runs, search } = this.state;
    if (!runs.length) return empty("No run is ticked", "Tick runs in the list to lay their curves over each other.");
    const there = runs.map((run) => runList.find(run)).filter(Boolean);
    if (!there.length) return empty("No such run", `There is no run called “${runs.join("”, “")}” in this folder.`);
    if (search) return empty("No such metric", "No metric of these runs has all of these words in its name.");
    return there.some((run) => run.status === "live")
      ? empty("No metrics yet", "These runs have written no metrics yet: the first step is on its way.")
      : empty("No metrics", "These runs have episodes or reports, but no metrics of training.");
  }

  #place(names) {
    for (const [name, card] of this.cards) {
      if (names.includes(name)) continue;
      card.chart.dispose();
      this.cards.delete(name);
    }
    this.grid.classList.toggle("is-focused", Boolean(this.state.focus));
    if (!names.length) {
      fill(this.grid, this.#nothing());
      return;
    }
    fill(this.grid, names.map((name) => this.#card(name).node));
  }

  #card(name) {
    const isFocused = this.state.focus === name;
    const known = this.cards.get(name);
    if (known && known.isFocused === isFocused) return known;
    known?.chart.dispose();
    const chart = new Chart({ height: isFocused ? 480 : 186 });
    const latest = h("span", { class: "card-latest number" });
    const isPinned = this.state.metrics.includes(name);
    const pin = iconButton("star", isPinned ? `Do not keep ${name} on the board` : `Keep ${name} on the board`, () => this.#pin(name), { className: "bare card-pin" });
    pin.setAttribute("aria-pressed", String(isPinned));
    const node = h("figure", { class: "card", "data-metric": name },
      h("figcaption", { class: "card-head" }, h("span", { class: "card-title clip", title: name }, h("span", { class: "faint" }, name.slice(0, name.lastIndexOf("/") + 1)), name.slice(name.lastIndexOf("/") + 1)), latest,
        h("span", { class: "card-buttons" }, pin,
          isFocused ? iconButton("close", "All charts again", () => this.set({ focus: "" }), { className: "bare" })
            : iconButton("expand", `Enlarge ${name}`, () => this.set({ focus: name }), { className: "bare" }))),
      chart.node);
    const card = { node, chart, latest, isFocused };
    this.cards.set(name, card);
    return card;
  }

  #pin(name) {
    const { metrics } = this.state;
    const next = metrics.includes(name) ? metrics.filter((other) => other !== name) : [name, ...metrics];
    this.cards.get(name)?.chart.dispose();
    this.cards.delete(name);
    this.shownNames = null;
    this.look = null;
    this.set({ metrics: next.join(",") || "none" });
  }

  /** Return the first and the last step of all runs shown: every chart has the same axis. */
  #span() {
    const steps = this.state.runs.map((run) => this.curves.get(run)?.steps ?? []).filter((list) => list.length);
    return [Math.min(...steps.map((list) => list[0])), Math.max(...steps.map((list) => list.at(-1)))];
  }

  #draw(name) {
    const card = this.cards.get(name);
    if (!card) return;
    const { runs, smoothing } = this.state;
    const series = runs.map((run, index) => ({ run, index, curves: this.curves.get(run) })).filter(({ curves }) => curves?.values[name]?.some((value) => value !== null));
    const last = series.map(({ curves }) => curves.values[name].findLast((value) => value !== null));
    fill(card.latest, last.slice(0, 2).map((value, position) => h("b", { style: { color: seriesColor(series[position].index) } }, metricValue(name, value))));
    const span = this.#span();
    card.chart.update(() => chartOf(name, series, { smoothing, span }));
  }
}

function chartOf(name, series, { smoothing, span }) {
  const traces = series.flatMap(({ run, index, curves }) => tracesOf(name, { run, index, curves, smoothing }));
  if (name === "rollout/rounds_mean") {
    for (const { run, index, curves } of series) {
      traces.push({
        x: curves.steps, y: curves.values[HORIZON] ?? [], name: plotText(`horizon · ${run}`), mode: "lines", line: { color: lineColor(index), width: 1, dash: "dot", shape: "hv" }, hoverinfo: "skip",
      });
    }
  }
  const label = `${name}: ${series.map(({ run, curves }) => `${run} ${metricValue(name, curves.values[name].findLast((value) => value !== null))} after ${count(curves.steps.at(-1), "step")}`).join(", ") || "no values"}`;
  const layout = { yaxis: yAxis(name, series), xaxis: stepAxis(span), ...stagesOf(series) };
  return { traces, layout, label };
}

function tracesOf(name, { run, index, curves, smoothing }) {
  const values = curves.values[name];
  const isSparse = values.filter((value) => value !== null).length < values.length * 0.7 || values.length < 3;
  const points = isSparse ? curves.steps.map((step, at) => [step, values[at]]).filter(([, value]) => value !== null) : null;
  const x = points ? points.map(([step]) => step) : curves.steps;
  const y = points ? points.map(([, value]) => value) : values;
  const line = { color: lineColor(index), width: 1.7 };
  if (isSparse || smoothing === 0) return [{ x, y, name: plotText(run), mode: isSparse ? "lines+markers" : "lines", line, marker: { size: 5, color: lineColor(index) } }];
  return [
    { x, y, name: plotText(run), mode: "lines", line: { ...line, width: 1, color: faded(lineColor(index), 0.28) }, hoverinfo: "skip" },
    { x, y: smoothed(y, smoothing), name: plotText(run), mode: "lines", line },
  ];
}

function yAxis(name, series) {
  const values = series.flatMap(({ curves }) => curves.values[name]).filter((value) => value !== null);
  const most = Math.max(...values);
  const least = Math.min(...values);
  const isFlat = values.length > 0 && most === least;
  const formats = isShare(name) ? { tickformat: ".0%", hoverformat: ".1%" } : { tickformat: "~s", hoverformat: ".4~g" };
  if (Math.abs(most) < 1000 && !isShare(name)) formats.tickformat = Math.abs(most) < 1e-3 && most !== 0 ? ".0e" : "";
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
function stagesOf(series) {
  const staged = series.find(({ curves }) => curves.stages().length > 1);
  if (!staged) return { shapes: [], annotations: [] };
  const stages = staged.curves.stages();
  const shapes = stages.filter((_, index) => index % 2 === 1).map(([first, last]) => ({
    type: "rect", xref: "x", yref: "paper", x0: first - 0.5, x1: last + 0.5, y0: 0, y1: 1, line: { width: 0 }, fillcolor: faded(color("--series-7"), 0.11), layer: "below",
  }));
  const annotations = stages.map(([first, , limit]) => ({
    x: first, y: 1, xref: "x", yref: "paper", xanchor: "left", yanchor: "top", text: `≤${limit}`, hovertext: `horizon: at most ${limit} rounds`, showarrow: false, font: { size: 9.5, color: color("--faint") },
  }));
  return { shapes, annotations };
}
