// Evaluations: all of them with their intervals, one in full, or two compared task by task.

import { get } from "../api.js";
import { badge, empty, field, figure, present, problemLine, segmented, select, stackedBar } from "../components.js";
import { fill, h, icon } from "../dom.js";
import { count, number, percent, signed, words } from "../format.js";
import { interval } from "../interval.js";
import { href, joined, listOf } from "../route.js";
import { runList } from "../run_store.js";
import { seriesColor } from "../theme.js";

const SIDES = ["A", "B"];
/** Of the reasons why episodes ended other than by success, which is green. */
const REASON_COLORS = [1, 6, 0, 3, 5, 7];
const SCORE_HEADS = [["success", ""], ["reward", "number"], ["rounds", "number"], ["invalid", "number"], ["episodes", "number"]];

/** The name of an evaluation in the address. */
export function nameOf({ run, step, env }) {
  return `${run}@${step}@${env}`;
}

function partsOf(name) {
  const [run, step, env] = name.split(/@(\d+)@/);
  return { run, step: Number(step), env };
}

/** What an evaluation is called: "quick, step 30", or the model and the folder that it is in. */
function titleOf({ run, step, is_of_training: isOfTraining }) {
  return isOfTraining ? `${run}, step ${step}` : run;
}

function largest(passAt) {
  const tried = Object.keys(passAt ?? {}).map(Number).filter((k) => k > 1);
  return tried.length ? Math.max(...tried) : null;
}

function passText(report) {
  const k = largest(report.pass_at);
  return k ? `${percent(report.pass_at[k].success_rate)} @${k}` : "";
}

/** The commands and links that lead on from an evaluation. */
function linksOf({ run, step, env }) {
  return [
    h("a", { class: "button small", href: href("episodes", { run, phase: "eval", step_min: step, step_max: step, env }) }, "Episodes"),
    h("a", { class: "button small", href: href("episodes", { run, phase: "eval", step_min: step, step_max: step, env, outcome: "failure" }) }, "Failures"),
  ];
}

class EvaluationsView {
  constructor(root, context) {
    this.context = context;
    this.params = context.params;
    this.tools = h("div", { class: "row eval-tools" });
    this.table = h("div", { class: "scroll-x eval-table", tabIndex: 0, role: "region", "aria-label": "List of evaluations" });
    this.detail = h("div", { class: "stack eval-detail", "aria-live": "polite" });
    this.list = h("section", { class: "panel" }, this.tools, this.table);
    this.body = h("div", { class: "pad stack" });
    fill(root, this.body);
    this.stop = runList.subscribe(() => this.watch());
    this.load();
  }

  load() {
    const { signal } = this.context;
    return present(this.body, () => get("evaluations", {}, { signal }), (answer) => {
      this.answer = answer;
      if (!answer.evaluations.length) return empty("No evaluation yet", "Evaluations of runs appear here: set eval.every in a recipe, or run in a terminal: agentgym eval runs/my-run");
      this.draw();
      return [problemLine(answer), this.detail, this.list];
    }, { signal, label: "Reading the evaluations" });
  }

  /** Ask again when a run has written something. */
  watch() {
    const state = (runList.runs ?? []).map((run) => `${run.run} ${run.updated_at}`).join("\n");
    if (this.state !== undefined && state !== this.state) this.load();
    this.state = state;
  }

  update(params) {
    this.params = params;
    if (this.answer?.evaluations.length) this.draw();
  }

  get chosen() {
    return listOf(this.params.sel).slice(0, 2);
  }

  /** The evaluations to list: of a training run the first and the last, unless all are wanted. */
  get shown() {
    const { env, steps } = this.params;
    const fitting = this.answer.evaluations.filter((report) => !env || report.env === env);
    if (steps === "all") return fitting;
    const ends = new Map();
    for (const report of fitting) {
      const key = `${report.run}\n${report.env}`;
      ends.set(key, [ends.get(key)?.[0] ?? report, report]);
    }
    const kept = new Set([...ends.values()].flat());
    return fitting.filter((report) => kept.has(report) || this.chosen.includes(nameOf(report)));
  }

  draw() {
    this.drawTools();
    const focused = this.table.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    const { shown } = this;
    const hasPass = shown.some((report) => largest(report.pass_at));
    fill(this.table, h("table", { class: "table cards" },
      h("caption", { class: "visually-hidden" }, "Tick one evaluation to see it in full, two to compare them"),
      h("thead", {}, h("tr", {}, [["compare", ""], ["evaluation", ""], ["environment", ""], ["success, 95% interval", ""], ...(hasPass ? [["pass@k", "number"]] : []), ["reward", "number"], ["rounds", "number"], ["horizon", "number"], ["episodes", "number"]].map(([name, className]) => h("th", { scope: "col", class: className }, name)))),
      h("tbody", {}, shown.map((report) => this.row(report, hasPass)))));
    if (focused) this.table.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
    this.drawDetail();
  }

  drawTools() {
    const envs = [...new Set(this.answer.evaluations.map((report) => report.env))];
    const hasMore = this.answer.evaluations.some((report) => report.is_of_training);
    const hadFocus = this.tools.contains(document.activeElement);
    fill(this.tools,
      h("h2", {}, "All evaluations"), h("span", { class: "muted" }, "Tick one to read it, two to compare them."), h("span", { class: "grow" }),
      envs.length > 1 ? field("Environment", select("Environment", [["", "any environment"], ...envs.map((env) => [env, env])], this.params.env ?? "", (env) => this.context.set({ env }))) : null,
      hasMore ? segmented("Steps of training runs", [["", "first and last"], ["all", "all steps"]], this.params.steps ?? "", (steps) => this.context.set({ steps })) : null);
    if (hadFocus) this.tools.querySelector("input:checked")?.focus();
  }

  row(report, hasPass) {
    const name = nameOf(report);
    const side = this.chosen.indexOf(name);
    const { overall } = report;
    return h("tr", { class: side >= 0 ? "is-chosen" : "" },
      h("td", {}, h("label", { class: "row eval-tick" },
        h("input", { type: "checkbox", "aria-label": `Choose ${titleOf(report)} on ${report.env}`, checked: side >= 0, onchange: (event) => this.tick(name, event.target.checked) }),
        side >= 0 && this.chosen.length > 1 ? badge(SIDES[side], "live") : null)),
      h("td", { class: "is-title" }, h("a", { class: "row-link", href: href("evaluations", { ...this.params, sel: joined([name]) }) }, titleOf(report)), report.model && report.model !== report.run ? h("span", { class: "faint" }, ` ${report.model}`) : null),
      h("td", {}, `${report.env} ${report.split}`),
      h("td", {}, interval(overall)),
      hasPass ? h("td", { class: "number", "data-label": "pass@k" }, passText(report)) : null,
      h("td", { class: "number", "data-label": "reward" }, number(overall.reward_mean, 3)),
      h("td", { class: "number", "data-label": "rounds" }, number(overall.rounds_mean, 3)),
      h("td", { class: "number", "data-label": "horizon" }, number(report.max_rounds)),
      h("td", { class: "number", "data-label": "episodes" }, number(overall.episodes), overall.failed ? h("span", { class: "row-invalid" }, ` ${overall.failed} failed`) : null));
  }

  tick(name, isChosen) {
    const others = this.chosen.filter((other) => other !== name);
    this.context.set({ sel: joined(isChosen ? [...others.slice(0, 1), name] : others) });
  }

  drawDetail() {
    const key = this.chosen.join("\n");
    if (key === this.detailKey) return;
    this.detailKey = key;
    if (!this.chosen.length) {
      fill(this.detail);
      return;
    }
    const { signal } = this.context;
    const ask = () => Promise.all(this.chosen.map((name) => get("evaluation", partsOf(name), { signal })));
    present(this.detail, async () => {
      const reports = await ask();
      if (reports.length < 2) return { reports };
      const [a, b] = this.chosen.map(partsOf);
      const places = { run_a: a.run, step_a: a.step, env_a: a.env, run_b: b.run, step_b: b.step, env_b: b.env };
      const found = await get("compare", places, { signal }).catch((error) => ({ refused: error }));
      return { reports, found };
    }, ({ reports, found }) => (found ? this.comparison(reports, found) : this.single(reports[0])), { signal });
  }

  single(report) {
    const of = this.answer.evaluations.find((other) => nameOf(other) === nameOf(report)) ?? report;
    const reasons = Object.entries(report.stop_reasons).map(([name, value], index) => ({ name, value: value ?? 0, color: name === "success" ? "var(--good)" : seriesColor(REASON_COLORS[index % REASON_COLORS.length]) }));
    const passed = Object.entries(report.pass_at);
    const { overall } = report;
    return h("section", { class: "panel", "aria-label": "One evaluation" },
      h("div", { class: "panel-head" }, h("h2", {}, titleOf(of)), h("span", { class: "muted" }, `${report.env}, ${report.split} tasks`), h("span", { class: "grow" }), linksOf(report),
        h("a", { class: "button small", href: href("run", { run: report.run }) }, "Run")),
      h("div", { class: "eval-facts stack" },
        h("div", { class: "figures" },
          figure("success", percent(overall.success_rate)), figure("95% interval", `${percent(overall.success_low)} to ${percent(overall.success_high)}`),
          figure("reward", number(overall.reward_mean, 3)), figure("rounds", `${number(overall.rounds_mean, 3)} of ${number(report.max_rounds)}`),
          figure("invalid actions", percent(overall.invalid_rate)), figure("tokens per reply", number(overall.reply_tokens_mean, 3)),
          figure("samples per task", number(report.samples_per_task)), figure("temperature", number(report.temperature))),
        report.success ? h("p", { class: "muted text" }, `Success: ${report.success}.`) : null,
        stackedBar("How episodes ended", reasons, number)),
      passed.length > 1 ? this.passTable(report, passed) : null,
      this.scores("category", report.categories, overall, report),
      Object.keys(report.levels).length > 1 ? this.scores("level", report.levels, null, report) : null);
  }

  passTable(report, passed) {
    const named = { best_by_reward: "the best by reward (no choice can do better)", best_by_logprob: "the one with the highest log-probability", majority: "the majority of the answers" };
    const row = (name, score) => h("tr", {}, h("td", { class: "is-title" }, name), h("td", {}, interval(score)), h("td", { class: "number", "data-label": "tasks" }, number(score.tasks)));
    return h("div", { class: "scroll-x", tabIndex: 0, role: "region", "aria-label": "Several samples" }, h("table", { class: "table cards scores" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, `of ${number(report.samples_per_task)} samples`), h("th", { scope: "col" }, "success, 95% interval"), h("th", { scope: "col", class: "number" }, "tasks"))),
      h("tbody", {}, passed.map(([k, score]) => row(`pass@${k}: any of ${k} succeeds`, score)),
        Object.entries(report.chosen).map(([name, score]) => row(named[name] ?? words(name), score)),
        Object.entries(report.reflection).map(([tries, score]) => row(`with reflection, ${tries} tries`, score)))));
  }

  scores(kind, scores, overall, { run, step, env }) {
    const entries = [...Object.entries(scores), ...(overall ? [["all", overall]] : [])];
    const place = { run, phase: "eval", step_min: step, step_max: step, env };
    const row = ([name, score], index) => h("tr", { class: overall && index === entries.length - 1 ? "is-total" : "" },
      h("td", { class: "is-title" }, kind === "category" && name in scores ? h("a", { class: "link", href: href("episodes", { ...place, category: name }) }, name || "–") : name || "–"),
      h("td", {}, interval(score)), h("td", { class: "number", "data-label": "reward" }, number(score.reward_mean, 3)), h("td", { class: "number", "data-label": "rounds" }, number(score.rounds_mean, 3)),
      h("td", { class: "number", "data-label": "invalid" }, percent(score.invalid_rate)), h("td", { class: "number", "data-label": "episodes" }, number(score.episodes)));
    return h("div", { class: "scroll-x", tabIndex: 0, role: "region", "aria-label": `By ${kind}` }, h("table", { class: "table cards scores" },
      h("thead", {}, h("tr", {}, [[kind, ""], ...SCORE_HEADS].map(([name, className]) => h("th", { scope: "col", class: className }, name === "success" ? "success, 95% interval" : name)))),
      h("tbody", {}, entries.map(row))));
  }

  comparison(reports, found) {
    const of = reports.map((report) => this.answer.evaluations.find((other) => nameOf(other) === nameOf(report)) ?? report);
    const head = h("div", { class: "panel-head" },
      h("h2", {}, "B against A"),
      SIDES.map((side, index) => h("span", { class: "eval-side" }, badge(side, "live"), " ", h("a", { class: "link", href: href("evaluations", { ...this.params, sel: joined([this.chosen[index]]) }) }, titleOf(of[index])))),
      h("span", { class: "grow" }),
      h("button", { type: "button", class: "button small", onclick: () => this.context.set({ sel: joined(this.chosen.toReversed()) }) }, icon("swap", 13), "Swap"));
    const said = found.refused
      ? h("p", { class: "notice text", role: "note" }, icon("warn", 15), found.refused.message)
      : this.verdict(found);
    return h("section", { class: "panel", "aria-label": "Comparison" }, head, said, this.sideBySide("category", reports),
      Object.keys(reports[0].levels).length > 1 ? this.sideBySide("level", reports) : null, found.refused ? null : this.changed(found, reports));
  }

  /** The test in words: what it found, on what, and how sure one may be. */
  verdict({ comparison, conditions }) {
    const points = (share) => `${signed(share * 100)} points`;
    const isShown = comparison.p < 0.05;
    const tone = !isShown ? "is-info" : comparison.difference > 0 ? "is-good" : "is-bad";
    return h("div", { class: "stack eval-facts" },
      conditions.length ? h("p", { class: "notice text", role: "note" }, icon("warn", 15), `Not under the same conditions, so a difference may say nothing of the models: ${conditions.join("; ")}`) : null,
      h("div", { class: `finding ${tone}` }, icon(isShown ? "check" : "info", 17), h("div", { class: "grow" },
        h("h3", { class: "verdict" }, comparison.verdict),
        h("p", {}, `On the ${count(comparison.tasks, "task")} that both have, A succeeds at ${percent(comparison.success_a)} and B at ${percent(comparison.success_b)}: a difference of ${points(comparison.difference)} (95% interval ${signed(comparison.low * 100)} to ${signed(comparison.high * 100)}). `
          + `B is better at ${count(comparison.only_b, "task")}, A at ${comparison.only_a}. If A and B were alike, a difference as large would come up ${comparison.p < 0.0005 ? "less than once in 2,000 times" : `in ${percent(comparison.p)} of such comparisons`} (p = ${number(comparison.p, 2)}; ${comparison.test}).`
          + (comparison.left_out ? ` ${count(comparison.left_out, "task")} without a completed episode on one side ${comparison.left_out === 1 ? "is" : "are"} left out.` : "")))));
  }

  sideBySide(kind, [a, b]) {
    const list = (report) => (kind === "category" ? { ...report.categories, all: report.overall } : report.levels);
    const names = [...new Set([...Object.keys(list(a)), ...Object.keys(list(b))])].filter((name) => name !== "all");
    const row = (name) => {
      const [left, right] = [list(a)[name], list(b)[name]];
      const change = left && right && left.success_rate !== null && right.success_rate !== null ? right.success_rate - left.success_rate : null;
      return h("tr", { class: name === "all" ? "is-total" : "" }, h("td", { class: "is-title", "data-label": name === "all" ? null : kind }, name || "–"), h("td", { "data-label": "A" }, left ? interval(left) : "–"), h("td", { "data-label": "B" }, right ? interval(right) : "–"),
        h("td", { "data-label": "points", class: `number ${change > 0 ? "is-better" : change < 0 ? "is-worse" : ""}` }, change === null ? "–" : signed(change * 100)));
    };
    return h("div", { class: "scroll-x", tabIndex: 0, role: "region", "aria-label": `Both by ${kind}` }, h("table", { class: "table cards both-scores" },
      h("thead", {}, h("tr", {}, [[kind, ""], ["A: success, 95% interval", ""], ["B: success, 95% interval", ""], ["points", "number"]].map(([name, className]) => h("th", { scope: "col", class: className }, name)))),
      h("tbody", {}, names.map(row), kind === "category" ? row("all") : null)));
  }

  /** The tasks that A and B do not do alike, with the way to look at both. */
  changed({ changed, num_changed: total }, reports) {
    if (!changed.length) return null;
    const link = (index, row) => {
      const { run, step, samples_per_task: samples } = reports[index];
      const side = index ? "b" : "a";
      const address = samples > 1 ? href("group", { run, phase: "eval", step, group: row[`group_${side}`] }) : href("replay", { run, episode: row[`episode_${side}`] });
      return h("a", { class: "link", href: address, "aria-label": `${percent(row[side])}: ${SIDES[index]} at ${row.task}` }, percent(row[side]));
    };
    return h("div", { class: "scroll-x", tabIndex: 0, role: "region", "aria-label": "Tasks that changed" },
      h("div", { class: "panel-head" }, h("h2", {}, "Where they differ"), h("span", { class: "muted" }, `${count(total, "task")}${total > changed.length ? `, the first ${changed.length} of them` : ""}; open a number to see what happened`)),
      h("table", { class: "table cards" },
        h("thead", {}, h("tr", {}, [["task", ""], ["goal", ""], ["A", "number"], ["B", "number"]].map(([name, className]) => h("th", { scope: "col", class: className }, name)))),
        h("tbody", {}, changed.map((row) => h("tr", {}, h("td", {}, row.task, row.category ? h("span", { class: "faint" }, ` ${row.category}`) : null), h("td", { class: "changed-goal" }, row.goal ?? ""),
          h("td", { class: "number", "data-label": "A" }, link(0, row)), h("td", { "data-label": "B", class: `number ${row.b > row.a ? "is-better" : "is-worse"}` }, link(1, row)))))));
  }
}

export default {
  title: "Evaluations",
  needsRun: false,
  mount(root, context) {
    const view = new EvaluationsView(root, context);
    const ticks = () => [...view.table.querySelectorAll("input[type=checkbox]")];
    const move = (change) => {
      const all = ticks();
      const index = all.indexOf(document.activeElement);
      all[Math.max(0, Math.min(all.length - 1, index < 0 ? 0 : index + change))]?.focus();
    };
    return {
      update: (params) => view.update(params),
      keys: [
        { keys: "j", label: "Next evaluation (Space ticks it)", run: () => move(1) },
        { keys: "k", label: "Previous evaluation", run: () => move(-1) },
        { keys: "x", label: "Untick all", run: () => context.set({ sel: "" }) },
      ],
      dispose: () => view.stop(),
    };
  },
};
