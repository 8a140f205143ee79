// Play: choose an environment and a task, act by hand or let a model act, step by step.

import { get, post } from "../api.js";
import { badge, failure, field, figure, loading, present, select } from "../components.js";
import { part } from "../conversation.js";
import { fill, h, icon, setText } from "../dom.js";
import { count, number, signed } from "../format.js";
import { idleGuide, nextGuide } from "../play_guide.js";
import { integerOf } from "../route.js";
import { compare, isWarmStart, runList } from "../run_store.js";
import { stateOf } from "./replay.js";

/** Whether a run trains on an environment; several are written "babyai + textcraft". */
function isOn(run, env) {
  return (run.env ?? "").split(" + ").includes(env);
}

class PlayView {
  constructor(root, context) {
    this.context = context;
    this.params = context.params;
    this.body = h("div", { class: "play-body" });
    fill(root, this.body);
    present(this.body, () => get("envs", {}, { signal: context.signal }), (answer) => this.build(answer.envs), { signal: context.signal, label: "Looking for environments" })
      .then(() => this.envs && (this.drawIdle(), this.choose()));
  }

  build(envs) {
    this.envs = envs;
    this.setup = h("form", { class: "play-setup", "aria-label": "Choose a task", onsubmit: (event) => { event.preventDefault(); this.start(); } });
    this.talk = h("section", { class: "conversation play-talk", "aria-label": "What happened", "aria-live": "polite", tabIndex: 0 });
    this.state = h("div", { class: "state-body" });
    this.figures = h("div", { class: "figures play-figures" });
    this.moves = h("div", { class: "play-moves" });
    this.side = h("aside", { class: "state-pane panel", "aria-label": "State of the environment", tabIndex: 0 }, this.figures, this.state);
    // A page that is left or loaded again gives its episode back; one that the browser keeps, keeps it.
    addEventListener("pagehide", (event) => !event.persisted && this.close({ isLast: true }), { signal: this.context.signal });
    return [this.setup, h("div", { class: "replay-panes play-panes" }, h("div", { class: "play-main" }, this.talk, this.moves), this.side)];
  }

  get env() {
    return this.envs.find((env) => env.name === this.params.env) ?? this.envs.find((env) => !env.problem) ?? this.envs[0];
  }

  get split() {
    const { splits } = this.env;
    return splits.includes(this.params.split) ? this.params.split : splits[0];
  }

  /** Show the choice that the address tells, and the tasks it leaves. */
  async choose() {
    const key = `${this.env.name}|${this.split}`;
    if (key !== this.tasksKey) {
      this.tasksKey = key;
      this.tasks = null;
      this.tasksError = this.env.problem ? { message: this.env.problem } : null;
      this.drawSetup();
      try {
        if (!this.env.problem) this.tasks = await get("tasks", { env: this.env.name, split: this.split, limit: 500 }, { signal: this.context.signal });
      } catch (error) {
        if (error.name === "AbortError") return;
        this.tasksError = error;
      }
      if (key !== this.tasksKey) return;
    }
    this.drawSetup();
  }

  get task() {
    const first = this.tasks?.tasks[0]?.index ?? 0;
    return integerOf(this.params.task, { fallback: first, min: 0 });
  }

  drawSetup() {
    const hadFocus = this.setup.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    const tasks = this.tasks?.tasks ?? [];
    const options = tasks.map((task) => [task.index, [task.index, task.category, task.level && task.level !== task.category ? task.level : null].filter((text) => text !== null && text !== "").join(" · ")]);
    if (this.tasks && !tasks.some((task) => task.index === this.task)) options.unshift([this.task, String(this.task)]);
    fill(this.setup,
      field("Environment", select("Environment", this.envs.map((env) => [env.name, env.name]), this.env.name, (env) => this.context.set({ env, split: "", task: "" }))),
      field("Split", select("Split", this.env.splits, this.split, (split) => this.context.set({ split, task: "" }))),
      field(this.tasks ? `Task (${number(this.tasks.total)})` : "Task", select("Task", this.tasks ? options : [["", "…"]], this.task, (task) => this.context.set({ task }), { className: "play-task" })),
      h("button", { type: "button", class: "button", disabled: !tasks.length, onclick: () => this.random() }, "Any task"),
      h("button", { type: "submit", class: "button primary", disabled: !this.tasks, title: "Start the task (Enter)" }, icon("play", 13), this.play ? "Start again" : "Start"),
      this.tasksError ? h("span", { class: "play-problem text" }, this.tasksError.message) : h("span", { class: "muted clip grow", title: this.env.description }, this.env.description));
    if (hadFocus) this.setup.querySelector(`[aria-label="${CSS.escape(hadFocus)}"]`)?.focus();
  }

  drawIdle() {
    fill(this.talk, idleGuide(this.envs, this.env.name, (env) => this.context.set({ env, split: "", task: "" })));
    fill(this.state);
    fill(this.figures);
    fill(this.moves);
    this.side.classList.add("is-idle");
  }

  /** Choose any task; returns it. */
  random() {
    const { tasks } = this.tasks;
    const task = tasks[Math.floor(Math.random() * tasks.length)].index;
    this.context.set({ task });
    return task;
  }

  async start(task = this.task) {
    const { env, split } = this;
    this.close();
    fill(this.talk, loading("Starting"));
    const name = Symbol("start");
    this.starting = name;
    try {
      const answer = await post("play", { env: env.name, split, task_index: task }, { signal: this.context.signal });
      if (this.starting !== name) return;
      this.play = answer.play;
      this.told = answer.told;
      this.setup.classList.add("is-playing");
      this.round = 0;
      this.earned = 0;
      this.isOver = false;
      fill(this.talk, h("article", { class: "round-card" }, h("header", { class: "round-head" }, h("h2", {}, "Start"), h("span", { class: "faint" }, `${env.name} · ${split} · task ${task}`)),
        answer.told.instructions ? h("details", { class: "play-instructions" }, h("summary", {}, "What an agent is told about this environment"), part("prompt", answer.told.instructions)) : null,
        part("observation", answer.observation)));
      this.show(answer);
      this.drawSetup();
      this.focusInput();
    } catch (error) {
      if (error.name !== "AbortError") fill(this.talk, failure(error, () => this.start(task)));
    }
  }

  /** Show the state and what can be done in it. */
  show(answer) {
    this.side.classList.remove("is-idle");
    fill(this.state, stateOf({ ...answer, observation: null }));
    if (!answer.picture && !Object.keys(answer.details ?? {}).length) fill(this.state, stateOf(answer));
    fill(this.figures, figure("round", String(this.round)), figure("reward so far", signed(this.earned)), this.isOver ? figure("the end", answer.success ? badge("success", "good") : badge("no success", "bad")) : null);
    this.drawMoves(answer.available_actions ?? []);
    this.moves.prepend(nextGuide(this.told, { round: this.round, actions: answer.available_actions ?? [], isInvalid: answer.valid_action === false, isOver: this.isOver, hasSucceeded: answer.success }));
  }

  drawMoves(actions) {
    if (this.isOver) {
      fill(this.moves, h("div", { class: "row play-over" }, h("b", {}, "The episode is over."), h("button", { type: "button", class: "button primary", onclick: () => this.start() }, "Play it again"), h("button", { type: "button", class: "button", onclick: () => this.start(this.random()) }, "Another task")));
      return;
    }
    const shownActions = h("div", { class: "play-actions", role: "group", "aria-label": "Available actions" });
    const drawActions = () => {
      const wanted = this.input.value.trim().toLowerCase();
      const fitting = actions.filter((action) => action.toLowerCase().includes(wanted));
      const list = fitting.length ? fitting : actions;
      fill(shownActions, list.slice(0, 60).map((action) => h("button", { type: "button", class: "button small mono", onclick: () => this.act(action) }, action)),
        list.length > 60 ? h("span", { class: "faint" }, `and ${count(list.length - 60, "other")}: type to narrow them down`) : null);
    };
    this.input = h("input", { type: "text", class: "play-input mono", "aria-label": "Action", placeholder: actions.length ? "Write an action, or choose one below" : "Write an action", autocomplete: "off", spellcheck: "false", oninput: drawActions });
    this.model = h("input", { type: "text", class: "play-model", "aria-label": "Model", placeholder: "Model: a folder or a run's model", list: "play-models", autocomplete: "off", spellcheck: "false", value: this.modelName, onchange: () => { this.modelName = this.model.value; } });
    this.busyText = h("span", { class: "muted", role: "status" });
    fill(this.moves,
      h("form", { class: "row play-form", onsubmit: (event) => { event.preventDefault(); this.act(this.input.value); } }, this.input, h("button", { type: "submit", class: "button primary", "aria-label": "Act" }, icon("send", 14), "Act")),
      actions.length ? shownActions : null,
      h("div", { class: "row play-form play-by-model" }, this.model, h("datalist", { id: "play-models" }, (this.models ?? []).map((model) => h("option", { value: model }))),
        h("button", { type: "button", class: "button", onclick: () => this.letModel() }, icon("robot", 14), "Let it act"),
        h("button", { type: "button", class: "button", onclick: () => this.letModel({ toTheEnd: true }) }, "Let it finish"), this.busyText));
    drawActions();
    if (this.models === undefined) this.loadModels();
  }

  get modelName() {
    return this.chosenModel ?? this.params.model ?? "";
  }

  set modelName(name) {
    this.chosenModel = name;
    this.context.set({ model: name }, { replace: true });
  }

  async loadModels() {
    this.models = [];
    const { models } = await get("models", {}, { signal: this.context.signal }).catch(() => ({ models: [] }));
    this.models = models;
    if (!this.modelName) this.chosenModel = this.likelyModel(models);
    if (this.model && !this.model.value) this.model.value = this.modelName;
    const list = this.moves.querySelector("datalist");
    if (list) fill(list, this.models.map((model) => h("option", { value: model })));
  }

  /** Return the model of the newest run in this environment, or else any. */
  likelyModel(models) {
    const runs = (runList.runs ?? []).filter((run) => models.includes(`${run.run}/model`) && !isWarmStart(run));
    const [best] = runs.toSorted((a, b) => isOn(b, this.env.name) - isOn(a, this.env.name) || compare(b.updated_at, a.updated_at));
    return best ? `${best.run}/model` : models[0];
  }

  async act(action) {
    if (!action.trim() || this.isBusy) return;
    await this.busy("Acting…", () => post("play/step", { play: this.play, action }, { signal: this.context.signal }), (answer) => this.append({ ...answer, action: answer.action ?? action }));
    this.focusInput();
  }

  /** Go on by keyboard; on a touch screen its keyboard would cover what happened. */
  focusInput() {
    if (!matchMedia("(pointer: coarse)").matches) this.input?.focus();
  }

  async letModel({ toTheEnd = false } = {}) {
    if (this.isBusy) return;
    const model = this.model.value.trim();
    if (!model) {
      setText(this.busyText, "Which model? Write the folder of one.");
      this.model.focus();
      return;
    }
    this.chosenModel = model;
    do {
      const isDone = await this.busy("The model thinks…", () => post("play/model", { play: this.play, model }, { signal: this.context.signal }), (answer) => this.append(answer));
      if (!isDone) return;
    } while (toTheEnd && !this.isOver && !this.context.signal.aborted);
  }

  async busy(text, ask, done) {
    this.isBusy = true;
    for (const button of this.moves.querySelectorAll("button")) button.disabled = true;
    setText(this.busyText, text);
    try {
      const answer = await ask();
      this.isBusy = false;
      done(answer);
      return true;
    } catch (error) {
      this.isBusy = false;
      if (error.name === "AbortError") return false;
      for (const button of this.moves.querySelectorAll("button")) button.disabled = false;
      setText(this.busyText, error.message);
      this.busyText.classList.add("is-problem");
      return false;
    }
  }

  append(answer) {
    this.round += 1;
    this.earned += answer.reward ?? 0;
    this.isOver = answer.done;
    const card = h("article", { class: "round-card is-current" },
      h("header", { class: "round-head" }, h("h2", {}, `Round ${this.round}`), answer.reward ? badge(`reward ${signed(answer.reward)}`, answer.reward > 0 ? "good" : "bad") : null,
        answer.valid_action === false ? badge("invalid action", "warn") : null, answer.reply ? badge("model", "live") : null),
      answer.reply && answer.reply !== answer.action ? part("reply", answer.reply) : null,
      part("action", answer.action ?? "none: the reply held no action"),
      part("observation", answer.observation));
    this.talk.querySelector(".is-current")?.classList.remove("is-current");
    this.talk.append(card);
    this.show(answer);
    card.style.scrollMarginBottom = `${this.moves.offsetHeight + 10}px`; // on a phone they lie over it
    card.scrollIntoView({ block: "end", behavior: "smooth" });
  }

  update(params) {
    this.params = params;
    if (!this.envs) return;
    if (!this.play) this.drawIdle();
    this.choose();
  }

  /** Tell the server that the episode is no longer played. */
  close({ isLast = false } = {}) {
    if (this.play) post("play/close", { play: this.play }, { isLast }).catch(() => null);
    this.play = null;
  }
}

export default {
  title: "Play",
  needsRun: false,
  mount(root, context) {
    const view = new PlayView(root, context);
    return {
      update: (params) => view.update(params),
      keys: [
        { keys: "s", label: "Start the task", run: () => view.tasks && view.start() },
        { keys: "a", label: "Write an action", run: () => view.input?.focus() },
        ...[1, 2, 3, 4, 5, 6, 7, 8, 9].map((place) => ({ keys: String(place), label: `Take action ${place}`, run: () => view.moves.querySelectorAll(".play-actions button")[place - 1]?.click() })),
        { keys: "m", label: "Let the model act one round", run: () => view.play && !view.isOver && view.letModel() },
      ],
      dispose: () => view.close(),
    };
  },
};
