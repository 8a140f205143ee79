// Time: where each second of a training step went.

import { get } from "../api.js";
import { empty, figure, present, problemLine, segmented } from "../components.js";
import { fill, h } from "../dom.js";
import { count, duration, number, percent, words } from "../format.js";
import { Chart, plotText } from "../plot.js";
import { href, integerOf } from "../route.js";
import { runList } from "../run_store.js";
import { color, lineColor, seriesColor } from "../theme.js";

class TimeView {
  constructor(root, context) {
    this.context = context;
    this.params = context.params;
    this.chart = new Chart({ height: 330, onclick: (point) => context.set({ step: point.x }) });
    this.summary = h("section", { class: "panel time-table", "aria-label": "Parts" });
    this.tools = h("div", { class: "row" });
    this.layout = h("div", { class: "stack" }, this.tools, h("figure", { class: "card" }, this.chart.node), this.summary);
    this.body = h("div", { class: "pad" });
    fill(root, this.body);
    this.stop = runList.onSteps(this.params.run, () => this.load());
    this.load();
  }

  load() {
    return present(this.body, () => get("time", { run: this.params.run }, { signal: this.context.signal }), (answer) => {
      this.answer = answer;
      if (!answer.steps.length) return empty("No time to show yet", "Times appear when the first step of the run has ended.");
      this.draw();
      return [problemLine(answer), this.layout];
    }, { signal: this.context.signal, label: "Reading the times" });
  }

  update(params) {
    this.params = params;
    if (this.answer?.steps.length) this.draw();
  }

  get isShare() {
    return this.params.unit === "share";
  }

  draw() {
    const { steps, total } = this.answer;
    const step = this.params.step === undefined ? null : integerOf(this.params.step, { fallback: steps.at(-1) });
    const at = step === null ? -1 : steps.indexOf(step);
    const whole = total.reduce((sum, value) => sum + (value ?? 0), 0);
    const hadFocus = this.tools.contains(document.activeElement);
    fill(this.tools, segmented("Unit", [["", "seconds"], ["share", "share of the step"]], this.params.unit ?? "", (unit) => this.context.set({ unit })),
      h("div", { class: "grow" }), h("div", { class: "figures compact" }, figure("steps", number(steps.length)), figure("total", duration(whole)), figure("mean per step", duration(whole / steps.length))));
    if (hadFocus) this.tools.querySelector("input:checked")?.focus();
    this.chart.update(() => this.bars(step));
    fill(this.summary, this.table(at, step));
  }

  bars(step) {
    const { steps, parts, total } = this.answer;
    const { isShare } = this;
    const traces = parts.map((part, index) => ({
      type: "bar", name: plotText(words(part.name)), x: steps, y: part.seconds.map((value, at) => (isShare && value !== null ? value / (total[at] || 1) : value)), marker: { color: lineColor(index), line: { width: 0 } },
      hovertemplate: isShare ? "%{y:.1%}" : "%{y:.3~g} s",
    }));
    const mark = step === null ? [] : [{ type: "rect", xref: "x", yref: "paper", x0: step - 0.5, x1: step + 0.5, y0: 0, y1: 1, line: { color: color("--text"), width: 1 }, fillcolor: "rgba(0,0,0,0)" }];
    return {
      traces,
      layout: { barmode: "stack", bargap: steps.length > 60 ? 0.05 : 0.25, shapes: mark, yaxis: { tickformat: isShare ? ".0%" : "", ticksuffix: isShare ? "" : " s", nticks: 7 }, xaxis: { title: { text: "step", font: { size: 11 } }, dtick: steps.length < 20 ? 1 : null }, margin: { b: 36 } },
      label: `Time of ${count(steps.length, "step")}: ${parts.map((part) => `${words(part.name)} ${duration(sum(part.seconds))}`).join(", ")}`,
    };
  }

  table(at, step) {
    const { steps, parts, total } = this.answer;
    const whole = sum(total);
    const isChosen = at >= 0;
    const row = (name, swatch, seconds, isLast = false) => h("tr", { class: isLast ? "is-total" : "" },
      h("td", {}, h("i", { class: "swatch", style: swatch === null ? {} : { background: seriesColor(swatch) } }), words(name)),
      h("td", { class: "number" }, duration(sum(seconds))),
      h("td", { class: "number" }, percent(sum(seconds) / (whole || 1))),
      h("td", { class: "number" }, duration(sum(seconds) / steps.length)),
      isChosen ? h("td", { class: "number" }, duration(seconds[at])) : null,
      isChosen ? h("td", { class: "number" }, percent((seconds[at] ?? 0) / (total[at] || 1))) : null);
    return [
      h("div", { class: "panel-head" }, h("h2", {}, "Where the time went"), h("span", { class: "grow" }),
        isChosen ? h("a", { class: "button small", href: href("episodes", { run: this.params.run, phase: "train", step_min: step, step_max: step }) }, `Episodes of step ${step}`) : h("span", { class: "muted" }, "click a bar to look at its step")),
      h("div", { class: "scroll-x", tabIndex: 0, role: "region", "aria-label": "Seconds of each part" }, h("table", { class: "table" },
        h("thead", {}, h("tr", {}, ["part", "total", "share", "mean per step", ...(isChosen ? [`step ${step}`, "share"] : [])].map((name, index) => h("th", { scope: "col", class: index ? "number" : "" }, name)))),
        h("tbody", {}, parts.map((part, index) => row(part.name, index, part.seconds)), row("whole step", null, total, true)))),
    ];
  }

  step(change) {
    const { steps } = this.answer ?? { steps: [] };
    if (!steps.length) return;
    const at = steps.indexOf(integerOf(this.params.step, { fallback: steps.at(-1) }));
    const next = this.params.step === undefined ? steps.length - 1 : Math.max(0, Math.min(steps.length - 1, at + change));
    this.context.set({ step: steps[next] }, { replace: true });
  }
}

function sum(values) {
  return values.reduce((total, value) => total + (value ?? 0), 0);
}

export default {
  title: "Time",
  needsRun: true,
  mount(root, context) {
    const view = new TimeView(root, context);
    return {
      update: (params) => view.update(params),
      keys: [
        { keys: "ArrowRight", label: "Next step", run: () => view.step(1) },
        { keys: "ArrowLeft", label: "Previous step", run: () => view.step(-1) },
        { keys: "Escape", label: "All steps again", run: () => context.set({ step: "" }) },
      ],
      dispose() {
        view.stop();
        view.chart.dispose();
      },
    };
  },
};
