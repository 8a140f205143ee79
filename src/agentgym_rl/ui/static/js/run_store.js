// The list of runs and their metrics, asked for again while the page is looked at.

import { get } from "./api.js";

const POLL_MS = 2500;

/** Order times (or whatever is written so that its text has its order); without one comes first. */
export function compare(a, b) {
  return (a ?? "") < (b ?? "") ? -1 : Number((a ?? "") > (b ?? ""));
}

/** Whether a run is the supervised beginning of another one. */
export function isWarmStart(run) {
  return /(^|\/)warm_start$/.test(run.run);
}

/** The runs below the folder that the server shows. */
class RunList {
  constructor() {
    this.runs = null;
    this.error = null;
    this.listeners = new Set();
    this.text = "";
    this.lastShown = null;
  }

  /** Ask now and from then on; a page in the background asks nothing. */
  start() {
    const ask = async () => {
      if (document.visibilityState === "visible") await this.refresh();
      setTimeout(ask, POLL_MS);
    };
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.refresh());
    return ask();
  }

  async refresh() {
    try {
      const { runs } = await get("runs");
      this.error = null;
      const text = JSON.stringify(runs);
      if (text !== this.text) this.runs = runs;
      this.text = text;
    } catch (error) {
      this.error = error;
    }
    this.#tell();
  }

  /** Call back after every answer; returns the way to stop. */
  subscribe(callback) {
    this.listeners.add(callback);
    if (this.runs || this.error) callback();
    return () => this.listeners.delete(callback);
  }

  /** Call back when a run has other steps than at the last answer; returns the way to stop. */
  onSteps(run, callback) {
    let known;
    return this.subscribe(() => {
      const steps = this.find(run)?.steps;
      if (known !== undefined && steps !== known) callback();
      known = steps;
    });
  }

  find(run) {
    return this.runs?.find((item) => item.run === run) ?? null;
  }

  /** The run that a view without a choice shows: the last one looked at, one that is running, or the one written to last. */
  preferred() {
    const last = this.find(this.lastShown);
    if (last) return last;
    const begun = (this.runs ?? []).filter((run) => run.status !== "empty" && !isWarmStart(run));
    const latest = (runs) => runs.toSorted((a, b) => compare(b.updated_at, a.updated_at))[0];
    return latest(begun.filter((run) => run.status === "running")) ?? latest(begun) ?? this.runs?.[0] ?? null;
  }

  #tell() {
    for (const callback of [...this.listeners]) callback();
  }
}

/** The curves of one run: only the metrics that were asked for, and only the steps that are new. */
export class Curves {
  constructor(run) {
    this.run = run;
    this.latest = Promise.resolve();
    this.told = 0;
    this.reset();
  }

  reset() {
    this.steps = [];
    this.values = {};
    this.evals = {};
  }

  /**
   * Bring the metrics up to date; returns whether anything changed. Calls wait for each other, or
   * two would add the same steps. `numSteps` is how far the run is, as the list of runs tells.
   */
  refresh(names, { numSteps = null, signal } = {}) {
    const next = this.latest.then(() => this.#refresh(names, { numSteps, signal }));
    this.latest = next.catch(() => false);
    return next;
  }

  async #refresh(names, { numSteps, signal }) {
    const isAgain = numSteps !== null && numSteps < this.told; // a run that was resumed makes steps anew
    const isNew = numSteps !== this.told;
    this.told = numSteps ?? this.told;
    if (isAgain) this.reset();
    const isWanted = names.some((name) => /^eval\/.+\/success_rate$/.test(name));
    if (isWanted && (isNew || !this.hasEvals)) {
      this.evals = (await get("eval_curves", { run: this.run }, { signal })).curves;
      this.hasEvals = true;
    }
    const missing = names.filter((name) => !(name in this.values));
    const known = Object.keys(this.values);
    let changed = false;
    if (known.length && numSteps !== this.steps.at(-1)) changed = await this.#extend(known, signal);
    if (missing.length) {
      const { steps, values } = await get("metrics", { run: this.run, names: missing.join(",") }, { signal });
      const isSame = !known.length || (steps.length === this.steps.length && steps.at(-1) === this.steps.at(-1));
      if (!isSame) {
        this.reset();
        return this.#refresh(names, { numSteps: null, signal });
      }
      this.steps = steps;
      for (const name of missing) this.values[name] = values[name] ?? steps.map(() => null);
      changed = true;
    }
    return changed || isAgain;
  }

  async #extend(names, signal) {
    const last = this.steps.at(-1);
    const { steps, values } = await get("metrics", { run: this.run, names: names.join(","), after: last }, { signal });
    if (!steps.length) return false;
    for (const name of names) this.values[name].push(...(values[name] ?? steps.map(() => null)));
    this.steps.push(...steps);
    return true;
  }

  /** Return [first step, last step, horizon] of each stage in which the horizon stayed the same. */
  stages() {
    const limits = this.values["rollout/max_rounds"] ?? [];
    const stages = [];
    limits.forEach((limit, index) => {
      const step = this.steps[index];
      if (limit === null) return;
      if (stages.at(-1)?.[2] === limit) stages.at(-1)[1] = step;
      else stages.push([step, step, limit]);
    });
    return stages;
  }
}

export const runList = new RunList();
