// One run: its facts, its evaluations, its resolved configuration.

import { get } from "../api.js";
import { showCluster } from "../cluster_panel.js";
import { badge, copyable, empty, field, figure, present, select } from "../components.js";
import { fill, h, setText } from "../dom.js";
import { ago, number, percent } from "../format.js";
import { interval } from "../interval.js";
import { href, joined } from "../route.js";
import { runList } from "../run_store.js";

const TONES = { running: "live", finished: "good", stopped: "warn", failed: "bad", crashed: "bad" };

function facts(run) {
  const success = run.latest?.["rollout/success_rate"];
  return h("section", { class: "panel run-facts-panel" },
    h("div", { class: "figures" },
      figure("status", badge(run.status, TONES[run.status])),
      figure("steps", run.target_steps ? `${number(run.steps)} / ${number(run.target_steps)}` : number(run.steps)),
      figure("episodes", number(run.num_episodes)),
      figure("success, last step", percent(success)),
      run.recipe ? figure("recipe", run.recipe, { title: run.recipe }) : null,
      figure("environment", run.env || "–"),
      figure("algorithm", run.algorithm || "–"),
      figure("model", run.model || "–", { title: run.model }),
      figure("written", ago(run.updated_at))),
    h("div", { class: "row" },
      h("a", { class: "button", href: href("runs", { sel: joined([run.run]) }) }, "Curves"),
      h("a", { class: "button", href: href("episodes", { run: run.run }) }, "Episodes"),
      h("a", { class: "button", href: href("diagnosis", { run: run.run }) }, "Diagnosis"),
      h("a", { class: "button", href: href("time", { run: run.run }) }, "Time")),
    run.error ? h("p", { class: "run-problem text" }, badge("error", "bad"), " ", run.error) : null,
    run.problem ? h("p", { class: "run-problem text" }, badge("problem", "warn"), " ", run.problem) : null);
}

function reportRow(report, run) {
  const { overall = {} } = report;
  const categories = Object.keys(report.categories ?? {});
  const episodes = report.step === undefined || report.step === null ? null : href("episodes", { run, phase: "eval", step_min: report.step, step_max: report.step });
  return h("tr", {},
    h("td", { class: "number", "data-label": "step" }, report.step ?? "–"),
    h("td", {}, report.env ?? "–"),
    h("td", {}, report.split ?? "–"),
    h("td", {}, interval(overall)),
    h("td", { class: "number", "data-label": "reward" }, number(overall.reward_mean, 3)),
    h("td", { class: "number", "data-label": "rounds" }, number(overall.rounds_mean, 3)),
    h("td", { class: "number", "data-label": "horizon" }, report.max_rounds ?? "–"),
    h("td", { class: "number", "data-label": "episodes" }, number(overall.episodes)),
    h("td", { class: "faint", "data-label": "categories" }, categories.length > 1 ? number(categories.length) : categories[0] ?? ""),
    h("td", { class: "row-links" }, h("a", { class: "link", href: href("evaluations", { sel: joined([`${run}@${report.step ?? 0}@${report.env ?? ""}`]) }) }, "In full"), episodes ? [" · ", h("a", { class: "link", href: episodes }, "Episodes")] : null));
}

function reports(answer, run) {
  const found = answer.reports.toSorted((a, b) => (a.step ?? 0) - (b.step ?? 0));
  if (!found.length) return empty("No evaluation yet", "Evaluations of the run appear here: set eval.every in its recipe, or run agentgym eval.");
  const heads = ["step", "environment", "split", "success, 95% interval", "reward", "rounds", "horizon", "episodes", "categories", "links"];
  return h("table", { class: "table cards" },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col", class: ["links", "environment", "split", "success, 95% interval", "categories"].includes(head) ? "" : "number" }, head)))),
    h("tbody", {}, found.map((report) => reportRow(report, run))));
}

/** The settings that two runs do not share. */
function differences({ differing, num_settings: total }, { run, with: other }) {
  if (!differing.length) return h("p", { class: "eval-facts muted" }, `All ${number(total)} settings are the same.`);
  const cell = (value, name) => h("td", { class: "mono difference-value", "data-label": name }, value ?? h("span", { class: "faint" }, "not set"));
  return h("div", { class: "scroll-x", tabIndex: 0, role: "region", "aria-label": "Settings that differ" }, h("table", { class: "table cards differences" },
    h("thead", {}, h("tr", {}, ["setting", run, other].map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, differing.map(({ key, here, there }) => h("tr", {}, h("td", { class: "mono is-title" }, key), cell(here, run), cell(there, other))))));
}

export default {
  title: "Run",
  needsRun: true,
  mount(root, { params: first, signal, set }) {
    let params = first;
    const head = h("div", {});
    const cluster = h("section", { class: "panel", hidden: true, "aria-label": "Processes" });
    const evaluation = h("section", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", {}, "Evaluations")));
    const table = h("div", { class: "scroll-x", tabIndex: 0, role: "region", "aria-label": "Evaluations of the run" });
    evaluation.append(table);
    const configFile = h("span", { class: "muted" });
    const config = h("section", { class: "panel" }, h("div", { class: "panel-head" }, h("h2", {}, "Configuration"), configFile));
    const toml = h("div", {});
    config.append(toml);
    const again = h("section", { class: "panel", hidden: true }, h("div", { class: "panel-head" }, h("h2", {}, "Run it again"), h("span", { class: "muted" }, "the same recipe and seed, in a new folder")));
    const command = h("div", { class: "eval-facts" });
    again.append(command);
    const difference = h("section", { class: "panel" });
    const choice = h("div", { class: "grow" });
    const table2 = h("div", {});
    difference.append(h("div", { class: "panel-head" }, h("h2", {}, "Difference"), choice), table2);
    fill(root, h("div", { class: "pad stack" }, head, cluster, evaluation, again, difference, config));
    let others = null;
    const drawChoice = () => {
      const names = (runList.runs ?? []).map((run) => run.run).filter((name) => name !== params.run);
      const next = JSON.stringify([names, params.with]);
      difference.hidden = !names.length;
      if (next === others) return;
      others = next;
      const hadFocus = choice.contains(document.activeElement);
      fill(choice, field("to the configuration of", select("Compare with", [["", "choose a run"], ...names.map((name) => [name, name])], params.with ?? "", (other) => set({ with: other }))));
      if (hadFocus) choice.querySelector("select").focus();
    };
    const drawDifference = () => {
      if (!params.with) fill(table2);
      else present(table2, () => get("config_difference", { run: params.run, other: params.with }, { signal }), (answer) => differences(answer, params), { signal });
    };
    drawDifference();
    let key = null;
    const stop = runList.subscribe(() => {
      const run = runList.find(params.run);
      drawChoice();
      evaluation.hidden = config.hidden = !run && Boolean(runList.runs);
      difference.hidden ||= config.hidden;
      if (config.hidden) fill(head, empty("No such run", `There is no run called “${params.run}” in this folder.`, h("a", { class: "button", href: "#/runs" }, "All runs")));
      const next = JSON.stringify(run);
      if (!run || next === key) return;
      key = next;
      fill(head, facts(run));
      // What the panel cannot read, the table of evaluations says.
      showCluster(cluster, params.run, { signal }).catch((error) => { if (!error.type && error.name !== "AbortError") throw error; });
      present(table, () => get("reports", { run: params.run }, { signal }), (answer) => reports(answer, params.run), { signal });
    });
    present(toml, () => get("config", { run: params.run }, { signal }), (answer) => {
      again.hidden = !answer.command;
      if (answer.command) fill(command, copyable(answer.command));
      setText(configFile, answer.file === "config.toml" ? "config.toml, resolved" : answer.file);
      return h("pre", { class: "toml text mono", tabIndex: 0, "aria-label": answer.file }, answer.toml);
    }, { signal });
    return {
      update(next) {
        params = next;
        drawChoice();
        drawDifference();
      },
      dispose: stop,
    };
  },
};
