// A conversation as cards: the task, then one card per round with its parts marked.

import { badge } from "./components.js";
import { h } from "./dom.js";
import { duration, number, signed } from "./format.js";

/** A piece of text of one kind (thought, plan, action, observation ...), with its label. */
export function part(kind, text, { note = null } = {}) {
  return h("div", { class: `part kind-${kind}` },
    h("span", { class: "part-label" }, kind, note ? h("span", { class: "part-note" }, ` ${note}`) : null),
    h("div", { class: "part-text text" }, text === "" ? h("i", { class: "faint" }, "empty") : text));
}

/** Named numbers in a line: what the environment reported, or what a reward is made of. */
function numbers(label, values, show) {
  const entries = Object.entries(values ?? {});
  if (!entries.length) return null;
  return h("div", { class: "round-numbers" }, h("span", { class: "part-label" }, label),
    entries.map(([name, value]) => h("span", { class: "named-number" }, h("span", { class: "muted" }, name), " ", h("b", { class: "number" }, show(value)))));
}

/** The task's own data, folded away: it may be long, and the agent did not see it. */
function payload(text) {
  return text ? h("details", { class: "payload" }, h("summary", { class: "part-label" }, "task data", h("span", { class: "part-note" }, " not shown to the agent")), h("div", { class: "part-text text mono" }, text)) : null;
}

/** What the agent was told before its first reply. */
export function startCard(episode) {
  const end = episode.messages.findIndex((message) => message.role === "assistant");
  const told = episode.messages.slice(0, end < 0 ? undefined : end);
  return h("article", { class: "round-card", "data-position": 0, "aria-label": "Start" },
    h("header", { class: "round-head" }, h("h2", {}, "Start"), h("span", { class: "faint" }, "what the agent was told")),
    told.map((message) => part("prompt", message.content, { note: message.role })),
    payload(episode.payload));
}

/** One round: what the agent wrote, what the environment answered, reward and time. */
export function roundCard(round, { position }) {
  const total = Object.values(round.seconds ?? {}).reduce((sum, seconds) => sum + (seconds ?? 0), 0);
  const parts = round.parts?.length ? round.parts : [{ kind: "action", text: round.reply }];
  return h("article", { class: "round-card", "data-position": position, "aria-label": `Round ${position}` },
    h("header", { class: "round-head" },
      h("h2", {}, `Round ${position}`),
      round.reward ? badge(`reward ${signed(round.reward)}`, round.reward > 0 ? "good" : "bad") : null,
      round.valid_action === false ? badge("invalid action", "warn") : null,
      h("span", { class: "grow" }),
      total > 0 ? h("span", { class: "faint number" }, duration(total)) : null),
    parts.map(({ kind, text }) => part(kind, text)),
    part("observation", round.observation),
    numbers("reward parts", round.reward_parts, signed),
    numbers("metrics", round.metrics, number));
}

/** The cards of a whole episode, with a line where another try begins. */
export function conversation(episode) {
  const cards = [startCard(episode)];
  episode.rounds.forEach((round, index) => {
    if (index && round.try !== episode.rounds[index - 1].try) {
      cards.push(h("div", { class: "try-line", role: "separator" }, h("span", {}, `try ${round.try + 1}`)));
    }
    cards.push(roundCard(round, { position: index + 1 }));
  });
  if (episode.error) cards.push(h("article", { class: "round-card is-error" }, h("header", { class: "round-head" }, h("h2", {}, "The episode failed"), badge("no reward", "warn")), part("error", episode.error)));
  return cards;
}
