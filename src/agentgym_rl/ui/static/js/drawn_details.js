// The state of environments that have more to show than names and values: a crafting tree, a search
// trace. Each reads the details that its environment gives, whatever else they hold, and returns
// null where they are not of its kind.

import { badge, details } from "./components.js";
import { h, icon } from "./dom.js";
import { count } from "./format.js";

const COMMAND = /^craft (\d+) (.{1,200}?) using (.{1,2000})$/s;
const COUNTED = /^(\d+) (.{1,200})$/s;
const MAX_DEPTH = 8;
const MAX_NODES = 200;

/** Return the state as HTML: drawn where it is known how, else as names and values. */
export function drawnDetails(value) {
  if (!value || typeof value !== "object") return null;
  return craftingTree(value) ?? searchTrace(value) ?? (Object.keys(value).length ? h("div", { class: "state-details" }, details(value)) : null);
}

function rest(value, names) {
  const left = Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name)));
  return Object.keys(left).length ? h("div", { class: "state-details" }, details(left)) : null;
}

/* crafting */

function recipesOf(commands) {
  return commands.flatMap((command) => {
    const found = COMMAND.exec(String(command));
    if (!found) return [];
    const ingredients = found[3].split(", ").map((text) => COUNTED.exec(text)).filter(Boolean).map(([, number, item]) => ({ number: Number(number), item }));
    return [{ text: String(command), makes: Number(found[1]), item: found[2], ingredients }];
  });
}

/** Goals such as "craft oak planks" as a tree: what it takes, what is held, what can be done now. */
export function craftingTree(value) {
  const { goal, commands, inventory } = value;
  if (typeof goal !== "string" || !Array.isArray(commands) || !inventory || typeof inventory !== "object") return null;
  const recipes = recipesOf(commands);
  const isOf = (item, kind) => item === kind || item.endsWith(` ${kind}`); // "planks" may be oak planks
  const held = (kind) => Object.entries(inventory).filter(([item]) => isOf(item, kind)).reduce((sum, [, number]) => sum + (Number(number) || 0), 0);
  const used = new Set();
  let nodes = 0;
  const node = (item, needed, path) => {
    nodes += 1;
    const has = held(item);
    const recipe = path.length < MAX_DEPTH && nodes < MAX_NODES && !path.includes(item)
      ? recipes.find((one) => one.item === item) ?? recipes.find((one) => isOf(one.item, item)) : null;
    if (recipe) used.add(recipe.text);
    const isReady = recipe && has < needed && recipe.ingredients.every((one) => held(one.item) >= one.number * Math.ceil(needed / recipe.makes));
    const state = has >= needed ? "done" : isReady ? "ready" : recipe ? "open" : "base";
    const told = { done: "held", ready: "can be crafted now", open: "to craft", base: "to get" }[state];
    const times = recipe ? Math.ceil(needed / recipe.makes) : 0;
    return h("li", {}, h("div", { class: `tree-node is-${state}` },
      state === "done" ? icon("check", 13) : null, h("b", {}, item), h("span", { class: "number" }, ` ${Math.min(has, needed)} of ${needed}`), h("span", { class: "tree-told" }, told)),
    recipe && has < needed ? h("ul", {}, recipe.ingredients.map((one) => node(one.item, one.number * times, [...path, item]))) : null);
  };
  const tree = h("ul", { class: "tree", "aria-label": `What ${goal} takes` }, node(goal, 1, []));
  const others = recipes.filter((recipe) => !used.has(recipe.text));
  const have = Object.entries(inventory);
  return h("div", { class: "stack crafting" }, tree,
    h("div", { class: "held" }, h("h3", {}, "Inventory"), have.length ? h("ul", { class: "chips" }, have.map(([item, number]) => h("li", { class: "chip" }, h("b", { class: "number" }, String(number)), " ", item))) : h("p", { class: "muted" }, "empty")),
    others.length ? h("details", {}, h("summary", { class: "muted" }, `${count(others.length, "command")} that this does not need`), h("ul", { class: "mono commands" }, others.map((recipe) => h("li", {}, recipe.text)))) : null,
    rest(value, ["goal", "commands", "inventory"]));
}

/* deep search */

const KINDS = { search: "search", open: "eye", python: "send", answer: "check", mistake: "warn" };

/** What was searched for and found, round by round, beside what leads to the answer. */
export function searchTrace(value) {
  const { goal, trace, path, answers } = value;
  if (!Array.isArray(trace) || typeof goal !== "string") return null;
  const found = new Set(trace.flatMap((event) => (Array.isArray(event?.findings) ? event.findings.map(String) : [])));
  const hops = (Array.isArray(path) ? path : []).filter((hop) => hop && typeof hop === "object");
  return h("div", { class: "stack searching" },
    h("p", { class: "trace-goal text" }, goal),
    hops.length ? h("div", {}, h("h3", {}, "What leads to the answer"), h("ol", { class: "hops" }, hops.map((hop) => {
      const isFound = found.has(String(hop.finding));
      return h("li", { class: isFound ? "is-found" : "" }, h("span", { class: "hop-mark", "aria-hidden": "true" }, isFound ? icon("check", 12) : null),
        h("div", {}, h("b", { class: "text" }, String(hop.finding ?? "")), " ", isFound ? badge("seen", "good") : badge("not seen yet"), h("div", { class: "faint text" }, `in ${hop.passage_id ?? "?"}, by “${hop.query ?? ""}”`)));
    }))) : null,
    h("div", {}, h("h3", {}, "What was done"), trace.length ? h("ol", { class: "trace" }, trace.map((event) => traceEvent(event ?? {}))) : h("p", { class: "muted" }, "nothing yet")),
    Array.isArray(answers) && answers.length ? h("details", {}, h("summary", { class: "muted" }, "Accepted answers"), h("p", { class: "text" }, answers.map(String).join(" · "))) : null,
    rest(value, ["goal", "trace", "path", "answers", "gold", "gold_seen"]));
}

function traceEvent(event) {
  const passages = Array.isArray(event.passages) ? event.passages.filter(Boolean) : [];
  const kind = String(event.kind ?? "");
  return h("li", { class: `trace-event ${event.is_right === true ? "is-right" : event.is_right === false || kind === "mistake" ? "is-wrong" : ""}` },
    h("span", { class: "trace-sign" }, icon(KINDS[kind] ?? "info", 13)),
    h("div", { class: "grow" },
      h("div", {}, h("span", { class: "part-label" }, `${kind}, round ${Number(event.round) + 1}`), " ", typeof event.is_right === "boolean" ? badge(event.is_right ? "right" : "wrong", event.is_right ? "good" : "bad") : null),
      h("div", { class: "text" }, String(event.text ?? "")),
      passages.length ? h("ul", { class: "passages" }, passages.map((passage) => h("li", { class: passage.is_gold ? "is-gold" : "" }, h("span", { class: "text" }, String(passage.title ?? passage.id ?? "")), passage.is_gold ? badge("needed", "good") : null, passage.is_cut ? h("span", { class: "faint" }, " cut") : null)))
        : kind === "search" ? h("p", { class: "muted" }, "found nothing") : null));
}
