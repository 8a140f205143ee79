// Diagnosis: what may be wrong with a run, in words, and the charts that show it.

import { get } from "../api.js";
import { empty, present, problemLine, readingLine } from "../components.js";
import { fill, h, icon } from "../dom.js";
import { count, duration, number, percent, signed, words } from "../format.js";
import { stepAxis } from "../curve_chart.js";
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
    this.phase = answer.phase ?? "train";
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

  finding({ severity, title, text, steps, look, episodes, groups }) {
    const { run } = this.params;
    const range = steps?.length ? [Math.min(...steps), Math.max(...steps)] : null;
    const when = range && (range[0] === range[1] ? `step ${range[0]}` : `steps ${range[0]}–${range[1]}`);
    const list = range ? { run, phase: this.phase, step_min: range[0], step_max: range[1], ...look } : null;
    const isNarrowed = Object.keys(look ?? {}).length > 0;
    return h("article", { class: `finding is-${severity}` }, icon(SIGNS[severity] ?? "info", 17),
      h("div", { class: "grow" }, h("h2", {}, title), h("p", { class: "text" }, text),
        episodes?.length || groups?.length ? h("ul", { class: "offenders", "aria-label": `Episodes that show it: ${title}` },
          (episodes ?? []).map((row) => this.offender(row)),
          (groups ?? []).map((row) => h("li", {}, h("a", { class: "link", href: href("group", { run, phase: this.phase, step: row.step, group: row.group }) }, row.goal || `${row.env} ${row.task_index}`),
            h("span", { class: "faint" }, ` step ${row.step}, group ${row.group}: all ${row.size} have the reward ${row.reward === null ? "none" : signed(row.reward)}`)))) : null),
      list ? h("a", { class: "button small", href: href("episodes", list) }, isNarrowed ? `All such episodes, ${when}` : `Episodes of ${when}`) : null);
  }

  /** One episode that shows what a finding says, with the number that makes it one. */
  offender(row) {
    const facts = [
      `step ${row.step}`, row.reward === null ? "no reward" : `reward ${signed(row.reward)}`, count(row.num_rounds, "round"),
      row.num_invalid ? `${number(row.num_invalid)} invalid` : null, row.num_repeats ? `${number(row.num_repeats)} repeated` : null, `${number(row.num_tokens)} tokens`,
    ];
    return h("li", {}, h("a", { class: "link", href: href("replay", { run: this.params.run, episode: row.episode }) }, row.goal || `${row.env} ${row.task_index}`),
      row.last_action ? h("span", { class: "mono" }, " → ", row.last_action) : null, h("span", { class: "faint" }, ` ${facts.filter(Boolean).join(" · ")}`), row.error ? h("div", { class: "faint clip", title: row.error }, row.error) : null);
  }

  card({ title, text, unit, series }, steps) {
    const isPresent = series.filter(({ values }) => values.some((value) => value !== null));
    const chart = new Chart({ height: 190, onclick: (point) => go("episodes", { run: this.params.run, phase: this.phase, step_min: point.x, step_max: point.x }) });
    const format = FORMATS[unit] ?? number;
    this.charts.push(chart);
    chart.update(() => ({
      traces: isPresent.map(({ name, values }, index) => ({ x: steps, y: values, name: plotText(words(name)), mode: steps.length < 3 ? "lines+markers" : "lines", line: { color: lineColor(index), width: name === "horizon" ? 1.2 : 1.7, dash: name === "horizon" ? "dot" : "solid" }, connectgaps: true })),
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
