// Runs overview: the list of runs, and the curves of those that are ticked, laid over each other.

import { get } from "../api.js";
import { badge, failure, loading, noRuns } from "../components.js";
import { CurveBoard, DEFAULT_METRICS } from "../curve_board.js";
import { AXES } from "../curve_chart.js";
import { fill, h, icon, setText } from "../dom.js";
import { ago, count, percent } from "../format.js";
import { href, joined, listOf } from "../route.js";
import { compare, isWarmStart, runList } from "../run_store.js";
import { seriesColor } from "../theme.js";

const MAX_DEFAULT_RUNS = 2;
/** How most runs stand: the list says it by a dot only. */
const QUIET = new Set(["finished", "stored", "empty"]);

/** Return how far a run is; an evaluation has episodes and no steps. */
export function progressOf(run) {
  if (run.target_steps) return `${run.steps} of ${run.target_steps} steps`;
  return run.steps || !run.num_episodes ? count(run.steps, "step") : count(run.num_episodes, "episode");
}

/**
 * Return the runs as they lie in folders: {run, inner: runs inside it}, such as its warm start, or
 * {folder, inner: such entries} for a folder of several runs, such as a study. Keeps the order.
 */
export function nested(runs) {
  const entries = new Map(runs.map((run) => [run.run, { run, inner: [] }]));
  const above = (name) => name.slice(0, Math.max(0, name.lastIndexOf("/")));
  const tops = runs.filter((run) => {
    const parent = entries.get(above(run.run));
    parent?.inner.push(run);
    return !parent || parent.inner.length === 0;
  });
  const folders = new Map();
  for (const run of tops) folders.set(above(run.run), (folders.get(above(run.run)) ?? 0) + 1);
  const listed = [];
  const heads = new Map();
  for (const run of tops) {
    const folder = above(run.run);
    const entry = entries.get(run.run);
    if (!folder || folders.get(folder) < 2) {
      listed.push(entry);
      continue;
    }
    if (!heads.has(folder)) {
      heads.set(folder, { folder, inner: [] });
      listed.push(heads.get(folder));
    }
    heads.get(folder).inner.push(entry);
  }
  return listed;
}

class RunsView {
  constructor(root, context) {
    this.context = context;
    this.params = context.params;
    this.root = root;
    this.rows = new Map();
    this.names = new Map();
    this.closed = new Set();
    this.board = new CurveBoard(context.set);
    this.list = h("ul", { class: "run-rows" });
    this.filter = h("input", { type: "search", "aria-label": "Filter runs", placeholder: "Filter runs", value: this.params.filter ?? "", oninput: () => context.set({ filter: this.filter.value }, { replace: true }) });
    this.heading = h("span", { class: "muted" });
    this.layout = h("div", { class: "overview" },
      h("aside", { class: "run-list", "aria-label": "Runs" }, h("div", { class: "run-list-head" }, this.filter, this.heading), this.list),
      this.board.node);
    fill(context.slot, h("span", { class: "grow only-wide" }), this.board.tools);
    fill(root, loading("Looking for runs"));
    this.stop = runList.subscribe(() => this.refresh());
  }

  /** The runs whose curves are shown: those of the address, or those that are running and the latest ones.
   *  A warm start often has more steps than its run, whose curves it would press to the edge. */
  get selected() {
    if (this.params.sel !== undefined) return listOf(this.params.sel === "none" ? "" : this.params.sel);
    const begun = runList.runs.filter((run) => run.steps > 0 || run.status === "running");
    const trained = begun.filter((run) => !isWarmStart(run));
    const latest = (trained.some((run) => run.steps > 0) ? trained : begun).toSorted((a, b) => isWarmStart(a) - isWarmStart(b) || (b.status === "running") - (a.status === "running") || compare(b.updated_at, a.updated_at));
    return latest.slice(0, MAX_DEFAULT_RUNS).map((run) => run.run);
  }

  get metrics() {
    return this.params.metrics === undefined ? DEFAULT_METRICS : listOf(this.params.metrics);
  }

  update(params) {
    this.params = params;
    this.refresh();
  }

  async refresh() {
    if (!runList.runs) {
      if (runList.error) fill(this.root, failure(runList.error, () => runList.refresh()));
      return;
    }
    if (!runList.runs.length) {
      fill(this.root, noRuns());
      return;
    }
    if (!this.layout.isConnected) fill(this.root, this.layout);
    const selected = this.selected;
    this.drawList(selected);
    await this.learnNames(selected);
    if (this.context.signal.aborted) return;
    const known = new Set(selected.flatMap((run) => this.names.get(run)?.names ?? []));
    this.board.show({
      runs: selected, known: [...known].toSorted(), metrics: this.metrics, search: this.params.q ?? "",
      smoothing: Number(this.params.smooth ?? 0.6), axis: AXES.some(([name]) => name === this.params.x) ? this.params.x : "step", isLog: this.params.log === "1", focus: this.params.focus ?? null, signal: this.context.signal,
    });
  }

  /** Learn the metrics of each run, again when it went on by a step. */
  async learnNames(selected) {
    await Promise.all(selected.map(async (run) => {
      const steps = runList.find(run)?.steps ?? 0;
      if (this.names.get(run)?.steps === steps) return;
      try {
        const { names } = await get("metric_names", { run }, { signal: this.context.signal });
        this.names.set(run, { names, steps });
      } catch (error) {
        if (error.name !== "AbortError") this.names.set(run, { names: [], steps });
      }
    }));
  }

  drawList(selected) {
    const wanted = (this.params.filter ?? "").toLowerCase();
    const runs = runList.runs.filter((run) => `${run.run} ${run.env} ${run.algorithm} ${run.model}`.toLowerCase().includes(wanted))
      .toSorted((a, b) => compare(b.started_at, a.started_at) || compare(a.run, b.run));
    setText(this.heading, count(runs.length, "run"));
    const nodes = nested(runs).flatMap((entry) => this.entry(entry, selected, Boolean(wanted)));
    if (nodes.length !== this.list.children.length || nodes.some((node, index) => this.list.children[index] !== node)) fill(this.list, nodes);
  }

  /** Return the rows of a run with those inside it, or of a study: its head, and its runs if it is open. */
  entry({ folder, run, inner }, selected, isOpen) {
    if (run) return [this.row(run, selected), ...inner.map((one) => this.row(one, selected, { within: run.run, isPart: true }))];
    const runs = inner.flatMap((one) => [one.run, ...one.inner]);
    const isShown = isOpen || !this.closed.has(folder);
    const rows = isShown ? inner.flatMap((one) => [this.row(one.run, selected, { within: folder }), ...one.inner.map((other) => this.row(other, selected, { within: one.run.run, depth: 2, isPart: true }))]) : [];
    return [this.groupHead(folder, inner.map((one) => one.run), runs.length, selected, isShown), ...rows];
  }

  groupHead(folder, runs, numRuns, selected, isShown) {
    const names = runs.map((run) => run.run);
    const ticked = names.filter((name) => selected.includes(name)).length;
    const key = JSON.stringify([names, ticked, numRuns, isShown]);
    const known = this.rows.get(`${folder}/`);
    if (known?.key === key) return known.node;
    const node = known?.node ?? h("li", { class: "run-group" });
    const hadFocus = node.contains(document.activeElement) ? document.activeElement.tagName : null;
    const check = h("input", { type: "checkbox", class: "run-check", "aria-label": `Show the curves of all runs in ${folder}`, checked: ticked === names.length, indeterminate: ticked > 0 && ticked < names.length, onchange: (event) => this.toggleAll(names, event.target.checked) });
    fill(node, h("label", { class: "run-tick" }, check), h("button", { type: "button", class: "group-toggle", "aria-expanded": String(isShown), onclick: () => this.fold(folder, isShown) },
      icon(isShown ? "down" : "forward", 13), h("b", { class: "clip", title: folder }, folder), h("span", { class: "faint number" }, count(numRuns, "run"))));
    if (hadFocus) node.querySelector(hadFocus.toLowerCase())?.focus();
    this.rows.set(`${folder}/`, { key, node });
    return node;
  }

  fold(folder, isShown) {
    if (isShown) this.closed.add(folder);
    else this.closed.delete(folder);
    this.drawList(this.selected);
  }

  toggleAll(names, isShown) {
    const others = this.selected.filter((run) => !names.includes(run));
    this.context.set({ sel: joined(isShown ? [...others, ...names] : others) || "none" });
  }

  /** Return the run's row, the same element as long as nothing in it changed. */
  row(run, selected, { within = null, depth = 1, isPart = false } = {}) {
    const position = selected.indexOf(run.run);
    const when = ago(run.updated_at);
    const key = JSON.stringify([run, position, when, within]);
    const known = this.rows.get(run.run);
    if (known?.key === key) return known.node;
    const node = known?.node ?? h("li", {});
    node.className = `run-row ${within ? `is-inside depth-${depth}` : ""} ${isPart ? "is-part" : ""}`;
    const label = within ? run.run.slice(within.length + 1) : run.run;
    const hadFocus = node.contains(document.activeElement) ? document.activeElement.className : null;
    const success = run.latest?.["rollout/success_rate"];
    const progress = run.target_steps ? Math.min(1, run.steps / run.target_steps) : 0;
    fill(node,
      h("label", { class: "run-tick" }, h("input", { type: "checkbox", class: "run-check", "aria-label": `Show the curves of ${run.run}`, checked: position >= 0, style: position >= 0 ? { "accent-color": seriesColor(position) } : {}, onchange: (event) => this.toggle(run.run, event.target.checked) })),
      h("div", { class: "grow" },
        h("div", { class: "run-line" },
          h("a", { class: "run-link clip", href: href("run", { run: run.run }), title: run.run }, label),
          h("span", { class: `dot dot-${run.status}`, title: run.status }),
          QUIET.has(run.status) ? h("span", { class: "visually-hidden" }, run.status) : null),
        h("div", { class: "run-facts run-what faint" },
          h("span", { class: "clip" }, [run.env, run.algorithm ?? run.model].filter(Boolean).join(" · ") || "–"),
          success === undefined || success === null ? null : h("span", { class: "number run-success", title: "success rate of the last step" }, percent(success))),
        h("div", { class: "run-facts faint" },
          h("span", { class: "clip" }, QUIET.has(run.status) ? null : [h("b", { class: `status-${run.status}` }, run.status), " · "], h("span", { class: "number" }, progressOf(run))),
          h("span", { class: "run-when" }, when)),
        run.status === "running" ? h("div", { class: "progress", role: "progressbar", "aria-label": `Steps of ${run.run}`, "aria-valuenow": Math.round(progress * 100), "aria-valuemin": 0, "aria-valuemax": 100 }, h("span", { style: { width: `${progress * 100}%` } })) : null,
        run.error ? h("div", { class: "run-problem", title: run.error }, h("span", { class: "clip" }, run.error)) : null,
        run.problem ? h("div", { class: "run-problem", title: run.problem }, badge("problem", "warn"), " ", h("span", { class: "clip" }, run.problem)) : null));
    if (hadFocus) node.querySelector(`.${hadFocus.split(" ")[0]}`)?.focus();
    this.rows.set(run.run, { key, node });
    return node;
  }

  toggle(run, isShown) {
    const others = this.selected.filter((item) => item !== run);
    this.context.set({ sel: joined(isShown ? [...others, run] : others) || "none" });
  }

  move(change) {
    const checks = [...this.list.querySelectorAll(".run-check")];
    const index = checks.indexOf(document.activeElement);
    checks[Math.max(0, Math.min(checks.length - 1, index < 0 ? 0 : index + change))]?.focus();
  }
}

export default {
  title: "Runs",
  needsRun: false,
  mount(root, context) {
    const view = new RunsView(root, context);
    return {
      update: (params) => view.update(params),
      keys: [
        { keys: "j", label: "Next run (Space ticks it)", run: () => view.move(1) },
        { keys: "k", label: "Previous run", run: () => view.move(-1) },
        { keys: "/", label: "Search metrics", run: () => view.board.search.focus() },
        { keys: "Escape", label: "All charts again", run: () => context.set({ focus: "" }) },
      ],
      dispose() {
        view.stop();
        view.board.dispose();
      },
    };
  },
};
