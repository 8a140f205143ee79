// The board of curves on the runs overview: which metrics are shown, smoothed how, for which runs.

import { empty, iconButton, segmented } from "./components.js";
import { showDialog } from "./dialog.js";
import { fill, h, setText } from "./dom.js";
import { AXES, HORIZON, chartOf, hasValues, lastOf, neededFor } from "./curve_chart.js";
import { saveCsv, savePng } from "./chart_files.js";
import { count, metricValue } from "./format.js";
import { Chart } from "./plot.js";
import { Curves, runList } from "./run_store.js";
import { seriesColor } from "./theme.js";

export const DEFAULT_METRICS = [
  "rollout/success_rate", "rollout/*/success_rate", "rollout/reward_mean", "rollout/rounds_mean", "eval/*", "train/kl", "train/entropy", "rollout/tokens_per_s",
  "rollout/episodes_failed", "rollout/invalid_action_rate", "train/loss", "rollout/env/*", "rollout/reward/*",
];
const MAX_OF_A_KIND = 12;
const MAX_SEARCHED = 60;

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
    this.axis = h("div", { class: "row" });
    this.log = h("input", { type: "checkbox", onchange: () => set({ log: this.log.checked ? "1" : "" }, { replace: true }) });
    this.summary = h("span", { class: "muted board-summary", role: "status" });
    this.legend = h("ul", { class: "board-legend", "aria-label": "Runs shown" });
    this.grid = h("div", { class: "board-grid" });
    this.tools = h("div", { class: "board-tools" }, this.search,
      h("label", { class: "row smooth" }, h("span", { class: "muted" }, "Smoothing"), this.smooth, this.smoothText),
      this.axis, h("label", { class: "row log-scale" }, this.log, h("span", { class: "muted" }, "log")), this.summary);
    this.node = h("section", { class: "board", "aria-label": "Curves" }, this.legend, this.grid);
  }

  async show(state) {
    this.state = state;
    if (document.activeElement !== this.search) this.search.value = state.search;
    this.smooth.value = String(state.smoothing);
    setText(this.smoothText, state.smoothing.toFixed(2));
    this.#drawAxis();
    const names = state.focus ? [state.focus] : chosenMetrics(state.known, state);
    setText(this.summary, state.search ? count(names.length, "metric") : "");
    this.#drawLegend();
    const key = JSON.stringify([names, state.focus]);
    if (key !== this.shownNames || !names.length) this.#place(names);
    this.shownNames = key;
    const changed = await this.#load([...new Set([...names, HORIZON, ...neededFor(state.axis)])]);
    const look = JSON.stringify([state.runs, state.smoothing, state.axis, state.isLog, key]);
    if (!state.signal.aborted && (changed || look !== this.look)) {
      this.look = look;
      for (const name of names) this.#draw(name);
    }
  }

  /** Offer what curves are laid over: drawn anew only when it changes, so that the focus stays. */
  #drawAxis() {
    const { axis, isLog } = this.state;
    this.log.checked = isLog;
    if (this.shownAxis === axis) return;
    this.shownAxis = axis;
    const hadFocus = this.axis.contains(document.activeElement);
    fill(this.axis, segmented("Horizontal axis", AXES, axis, (chosen) => this.set({ x: chosen === "step" ? "" : chosen })));
    if (hadFocus) this.axis.querySelector("input:checked")?.focus();
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
    return there.some((run) => run.status === "running")
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
      h("figcaption", { class: "card-head" }, h("span", { class: "card-title metric-title", title: name }, h("span", { class: "faint clip" }, name.slice(0, name.lastIndexOf("/") + 1)), h("span", { class: "clip" }, name.slice(name.lastIndexOf("/") + 1))), latest,
        h("span", { class: "card-buttons" }, pin,
          iconButton("save", `Save ${name} as a table or a picture`, () => this.#save(name), { className: "bare" }),
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

  /** Save what a chart shows: its numbers, or its picture. */
  #save(name) {
    const card = this.cards.get(name);
    const button = (label, save) => h("button", { type: "button", class: "button", onclick: () => { dialog.close(); save(); } }, label);
    const dialog = showDialog(`Save ${name}`, h("div", { class: "row save-choices" },
      button("Numbers (CSV)", () => this.#load([...new Set([name, ...neededFor("time"), ...neededFor("tokens")])]).then(() => saveCsv(name, this.#series(name)))), button("Picture (PNG)", () => savePng(name, card.chart))));
  }

  /** Return the first and the last step of all runs shown: every chart has the same axis. */
  #span() {
    const steps = this.state.runs.flatMap((run) => {
      const curves = this.curves.get(run);
      return [curves?.steps ?? [], ...Object.values(curves?.evals ?? {}).map((one) => one.steps)];
    }).filter((list) => list.length);
    return [Math.min(...steps.map((list) => list[0])), Math.max(...steps.map((list) => list.at(-1)))];
  }

  #series(name) {
    return this.state.runs.map((run, index) => ({ run, index, curves: this.curves.get(run) })).filter(({ curves }) => hasValues(curves, name));
  }

  #draw(name) {
    const card = this.cards.get(name);
    if (!card) return;
    const { smoothing, axis, isLog } = this.state;
    const series = this.#series(name);
    const last = series.map(({ curves }) => lastOf(curves, name));
    fill(card.latest, last.slice(0, 2).map((value, position) => h("b", { style: { color: seriesColor(series[position].index) } }, metricValue(name, value))));
    const span = this.#span();
    card.chart.update(() => chartOf(name, series, { smoothing, span, axis, isLog }));
  }
}
