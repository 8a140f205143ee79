// Play in words: what there is to do before a task begins, and what to do next while it goes on.

import { h, icon } from "./dom.js";
import { count } from "./format.js";

/** Before a task: the three steps, and the environments to choose from. */
export function idleGuide(envs, chosen, choose) {
  const steps = [
    ["Choose a task", "An environment is below, its tasks are in the lists above."],
    ["Start it", "Press Start. The environment says what the goal is."],
    ["Act", "Choose one of the actions that it offers, or write one. A model of a run can act in your place at any time."],
  ];
  return h("div", { class: "play-guide" },
    h("h2", {}, "Do what the agent does"),
    h("ol", { class: "play-steps" }, steps.map(([title, text], index) => h("li", {}, h("span", { class: "step-number", "aria-hidden": "true" }, String(index + 1)), h("div", {}, h("b", {}, title), h("p", { class: "muted" }, text))))),
    h("div", { class: "env-cards", role: "group", "aria-label": "Environments" }, envs.map((env) => h("button", { type: "button", class: "env-card", "aria-pressed": String(env.name === chosen), disabled: Boolean(env.problem), onclick: () => choose(env.name) },
      h("b", {}, env.name), h("span", { class: "muted" }, env.description || ""), env.problem ? h("span", { class: "row-invalid" }, "cannot run here: agentgym envs says why") : h("span", { class: "faint" }, count(env.max_rounds, "round"))))));
}

/** While a task goes on: its goal, when it is reached, and what to do now. */
export function nextGuide(told, { round, actions, isInvalid, isOver, hasSucceeded }) {
  const left = told.max_rounds ? told.max_rounds - round : null;
  let next = actions.length ? `Choose one of the ${count(actions.length, "action")} below, or write one and press Enter.` : "Write an action and press Enter. “What an agent is told” says how.";
  if (isInvalid) next = `That was no valid action: the answer says why. ${next}`;
  if (isOver) next = hasSucceeded ? "Done: the goal is reached. Play another task, or let a model try this one." : "The episode is over without success. Play it again, or let a model try.";
  return h("div", { class: `play-next ${isInvalid ? "is-invalid" : ""} ${round && !isOver ? "is-begun" : ""}`, role: "status" },
    told.goal ? h("p", { class: "play-goal" }, h("span", { class: "part-label" }, "goal "), h("b", { class: "text" }, told.goal)) : null,
    h("p", {}, icon(isOver ? (hasSucceeded ? "check" : "info") : isInvalid ? "warn" : "forward", 13), " ", next),
    isOver ? null : h("p", { class: "faint" }, `Success: ${told.success}.`, left !== null && left <= 5 ? ` ${count(Math.max(0, left), "round")} left of what an agent has.` : ""));
}
