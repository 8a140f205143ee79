// One run: its facts, its evaluations, its resolved configuration.

import { get } from "../api.js";
import { badge, empty, figure, present } from "../components.js";
import { fill, h, setText } from "../dom.js";
import { ago, count, number, percent } from "../format.js";
import { href, joined } from "../route.js";
import { runList } from "../run_store.js";

const TONES = { live: "live", finished: "good", stopped: "warn", empty: "quiet" };

function facts(run) {
  const success = run.latest?.["rollout/success_rate"];
  return h("section", { class: "panel run-facts-panel" },
    h("div", { class: "figures" },
      figure("status", badge(run.status, TONES[run.status])),
      figure("steps", run.target_steps ? `${number(run.steps)} / ${number(run.target_steps)}` : number(run.steps)),
      figure("episodes", number(run.num_episodes)),
      figure("success, last step", percent(success)),
      figure("environment", run.env || "–"),
      figure("algorithm", run.algorithm || "–"),
      figure("model", run.model || "–", { title: run.model }),
      figure("written", ago(run.updated_at))),
    h("div", { class: "row" },
      h("a", { class: "button", href: href("runs", { sel: joined([run.run]) }) }, "Curves"),
      h("a", { class: "button", href: href("episodes", { run: run.run }) }, "Episodes"),
      h("a", { class: "button", href: href("diagnosis", { run: run.run }) }, "Diagnosis"),
      h("a", { class: "button", href: href("time", { run: run.run }) }, "Time")),
    run.problem ? h("p", { class: "run-problem text" }, badge("problem", "warn"), " ", run.problem) : null);
}

function reportRow(report, run) {
  const { overall = {} } = report;
  const categories = Object.keys(report.categories ?? {});
  const episodes = report.step === undefined || report.step === null ? null : href("episodes", { run, phase: "eval", step_min: report.step, step_max: report.step });
  return h("tr", {},
    h("td", { class: "number" }, report.step ?? "–"),
    h("td", {}, report.env ?? "–"),
    h("td", {}, report.split ?? "–"),
    h("td", { class: "number" }, h("b", {}, percent(overall.success_rate))),
    h("td", { class: "number faint" }, overall.success_low === undefined ? "" : `${percent(overall.success_low)} – ${percent(overall.success_high)}`),
    h("td", { class: "number" }, number(overall.reward_mean, 3)),
    h("td", { class: "number" }, number(overall.rounds_mean, 3)),
    h("td", { class: "number" }, report.max_rounds ?? "–"),
    h("td", { class: "number" }, number(overall.episodes)),
    h("td", { class: "faint" }, categories.length > 1 ? count(categories.length, "task") : categories[0] ?? ""),
    h("td", {}, episodes ? h("a", { class: "link", href: episodes }, "Episodes") : null));
}

function reports(answer, run) {
  const found = answer.reports.toSorted((a, b) => (a.step ?? 0) - (b.step ?? 0));
  if (!found.length) return empty("No evaluation yet", "Evaluations of the run appear here: set eval.every in its recipe, or run agentgym eval.");
  const heads = ["step", "environment", "split", "success", "95% interval", "reward", "rounds", "horizon", "episodes", "tasks", ""];
  return h("table", { class: "table" },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col", class: ["", "environment", "split", "tasks"].includes(head) ? "" : "number" }, head)))),
    h("tbody", {}, found.map((report) => reportRow(report, run))));
}

export default {
  title: "Run",
  needsRun: true,
  mount(root, { params, signal }) {
    const head = h("div", {});
    const evaluation = h("section", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", {}, "Evaluations")));
    const table = h("div", { class: "scroll-x" });
    evaluation.append(table);
    const configFile = h("span", { class: "muted" });
    const config = h("section", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", {}, "Configuration"), configFile));
    const toml = h("div", {});
    config.append(toml);
    fill(root, h("div", { class: "pad stack" }, head, evaluation, config));
    let key = null;
    const stop = runList.subscribe(() => {
      const run = runList.find(params.run);
      evaluation.hidden = config.hidden = !run && Boolean(runList.runs);
      if (config.hidden) fill(head, empty("No such run", `There is no run called “${params.run}” in this folder.`, h("a", { class: "button", href: "#/runs" }, "All runs")));
      const next = JSON.stringify(run);
      if (!run || next === key) return;
      key = next;
      fill(head, facts(run));
      present(table, () => get("reports", { run: params.run }, { signal }), (answer) => reports(answer, params.run), { signal });
    });
    present(toml, () => get("config", { run: params.run }, { signal }), (answer) => {
      setText(configFile, answer.file === "config.toml" ? "config.toml, resolved" : answer.file);
      return h("pre", { class: "toml text mono", tabIndex: 0, "aria-label": answer.file }, answer.toml);
    }, { signal });
    return { dispose: stop };
  },
};
