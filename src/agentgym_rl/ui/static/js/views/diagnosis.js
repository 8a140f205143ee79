// Diagnosis: what may be wrong with a run, in words, and the charts that show it.

import { get } from "../api.js";
import { empty, present, problemLine, readingLine } from "../components.js";
import { fill, h, icon } from "../dom.js";
import { duration, number, percent, words } from "../format.js";
import { stepAxis } from "../curve_board.js";
import { Chart, plotText } from "../plot.js";
import { go, href } from "../route.js";
import { runList } from "../run_store.js";
import { lineColor, seriesColor } from "../theme.js";

const SIGNS = { bad: "warn", warn: "warn", info: "info", good: "check" };
const FORMATS = { share: percent, seconds: duration, tokens: number, number };

class DiagnosisView {
  constructor(root, context) {
    this.context = context;
    this.params = context.params;
    this.charts = [];
    this.body = h("div", { class: "pad stack" });
    fill(root, this.body);
    this.stop = runList.onSteps(this.params.run, () => this.load());
    this.load();
  }

  load() {
    const { run } = this.params;
    return present(this.body, () => get("diagnosis", { run }, { signal: this.context.signal }), (answer) => this.draw(answer), { signal: this.context.signal, label: "Looking at the run" });
  }

  /** Ask again as long as episodes are still being read. */
  again(index) {
    clearTimeout(this.timer);
    if (index && index.parts_read < index.parts) this.timer = setTimeout(() => this.load(), 800);
  }

  draw(answer) {
    this.dispose();
    if (!answer.steps?.length) return empty("Nothing to diagnose yet", "The first step of the run has not ended.");
    this.again(answer.index);
    return [
      problemLine(answer),
      readingLine(answer.index),
      h("section", { "aria-label": "Findings", class: "findings" }, answer.findings.length
        ? answer.findings.map((finding) => this.finding(finding))
        : h("div", { class: "finding is-good" }, icon("check", 17), h("div", {}, h("h2", {}, "Nothing stands out"), h("p", { class: "muted" }, "No sign of a collapse, a reward hack or growing replies was found.")))),
      h("div", { class: "board-grid" }, (answer.charts ?? []).map((chart) => this.card(chart, answer.steps))),
    ];
  }

  finding({ severity, title, text, steps }) {
    const range = steps?.length ? [Math.min(...steps), Math.max(...steps)] : null;
    return h("article", { class: `finding is-${severity}` }, icon(SIGNS[severity] ?? "info", 17),
      h("div", { class: "grow" }, h("h2", {}, title), h("p", { class: "text" }, text)),
      range ? h("a", { class: "button small", href: href("episodes", { run: this.params.run, phase: "train", step_min: range[0], step_max: range[1] }) },
        range[0] === range[1] ? `Episodes of step ${range[0]}` : `Episodes of steps ${range[0]}–${range[1]}`) : null);
  }

  card({ title, text, unit, series }, steps) {
    const isPresent = series.filter(({ values }) => values.some((value) => value !== null));
    const chart = new Chart({ height: 190, onclick: (point) => go("episodes", { run: this.params.run, phase: "train", step_min: point.x, step_max: point.x }) });
    const format = FORMATS[unit] ?? number;
    this.charts.push(chart);
    chart.update(() => ({
      traces: isPresent.map(({ name, values }, index) => ({ x: steps, y: values, name: plotText(words(name)), mode: steps.length < 3 ? "lines+markers" : "lines", line: { color: lineColor(index), width: 1.7 }, connectgaps: true })),
      layout: { xaxis: stepAxis([steps[0], steps.at(-1)]), yaxis: { tickformat: unit === "share" ? ".0%" : "", hoverformat: unit === "share" ? ".1%" : ".4~g", rangemode: "tozero" } },
      label: `${title}: ${isPresent.map(({ name, values }) => `${words(name)} ${format(values.findLast((value) => value !== null))}`).join(", ") || "no values"}`,
    }));
    return h("figure", { class: "card" },
      h("figcaption", { class: "card-head tall" }, h("div", { class: "grow" }, h("span", { class: "card-title" }, title), text ? h("p", { class: "faint card-text" }, text) : null)),
      isPresent.length > 1 ? h("ul", { class: "board-legend in-card" }, isPresent.map(({ name }, index) => h("li", {}, h("i", { style: { background: seriesColor(index) } }), words(name)))) : null,
      isPresent.length ? chart.node : h("p", { class: "state" }, "The run did not store this."));
  }

  dispose() {
    clearTimeout(this.timer);
    for (const chart of this.charts) chart.dispose();
    this.charts = [];
  }
}

export default {
  title: "Diagnosis",
  needsRun: true,
  mount(root, context) {
    const view = new DiagnosisView(root, context);
    return {
      update: () => {},
      dispose() {
        view.stop();
        view.dispose();
      },
    };
  },
};
