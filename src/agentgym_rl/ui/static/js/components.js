// Small controls and states that several views share. All have accessible names.

import { fill, h, icon, setText } from "./dom.js";
import { words } from "./format.js";

/** What is shown while the first answer is on its way; it appears only if that takes a moment. */
export function loading(label = "Loading") {
  return h("div", { class: "state state-loading", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), `${label}…`);
}

/** What is shown where there is nothing; says what would make something appear. */
export function empty(title, text, ...actions) {
  return h("div", { class: "state state-empty" }, h("h2", {}, title), h("p", {}, text), actions.length ? h("div", { class: "row" }, actions) : null);
}

/** What is shown where the address names no episode. */
export function noEpisode() {
  return empty("No episode chosen", "Open one from the list of episodes.", h("a", { class: "button", href: "#/episodes" }, "Episodes"));
}

/** What is shown where no run was found. */
export function noRuns() {
  return empty("No runs yet", "A run appears here as soon as its folder holds a recipe. To start one, run in a terminal: agentgym train quickstart",
    h("a", { class: "button", href: "#/play" }, "Play an environment by hand"));
}

/** What is shown when a request failed. */
export function failure(error, retry) {
  return h("div", { class: "state state-error", role: "alert" },
    icon("warn", 20),
    h("h2", {}, error.type === "offline" ? "No answer" : "This cannot be shown"),
    h("p", { class: "text" }, error.message),
    retry ? h("button", { type: "button", class: "button", onclick: retry }, "Try again") : null);
}

/**
 * Fill `node` with what `load` resolves to and `show` makes of it, with the states in between.
 * What is shown already stays until the new content is there, so that nothing flickers.
 */
export async function present(node, load, show, { signal, label } = {}) {
  const token = Symbol("request");
  node.presented = token;
  if (!node.hasChildNodes() || node.querySelector(":scope > .state")) fill(node, loading(label));
  node.setAttribute("aria-busy", "true");
  try {
    const answer = await load();
    if (node.presented !== token || signal?.aborted) return;
    fill(node, show(answer));
  } catch (error) {
    if (node.presented !== token || signal?.aborted || error.name === "AbortError") return;
    fill(node, failure(error, () => present(node, load, show, { signal, label })));
    if (!error.type) throw error;
  } finally {
    if (node.presented === token) node.removeAttribute("aria-busy");
  }
}

/** What the server could not read, as a line above what it could; nothing where all is well. */
export function problemLine(answer) {
  return answer.problem ? h("p", { class: "notice text", role: "note" }, icon("warn", 15), answer.problem) : null;
}

/** How much of a run's episodes an answer rests on, while they are being read. */
export function readingLine(index) {
  if (!index || index.parts_read >= index.parts) return null;
  return h("p", { class: "notice is-reading", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), `Reading episodes: ${Math.floor((100 * index.parts_read) / index.parts)}% so far.`);
}

/** A button that is only a picture. */
export function iconButton(name, label, onclick, { title = label, disabled = false, className = "" } = {}) {
  return h("button", { type: "button", class: `icon-button ${className}`, "aria-label": label, title, onclick, disabled }, icon(name));
}

/** A list to choose from; options are values or [value, label]. */
export function select(label, options, value, onchange, { className = "" } = {}) {
  return h("select", { "aria-label": label, class: className, onchange: (event) => onchange(event.target.value) },
    options.map((option) => {
      const [key, text] = Array.isArray(option) ? option : [option, words(option)];
      return h("option", { value: key, selected: String(key) === String(value ?? "") }, text);
    }));
}

/** A few choices side by side, of which one holds. Options are [value, label, disabled?]. */
export function segmented(label, options, value, onchange) {
  const name = `segmented-${++segmented.counter}`;
  return h("div", { class: "segmented", role: "radiogroup", "aria-label": label },
    options.map(([key, text, disabled = false, title = null]) => h("label", { class: "segment", title },
      h("input", { type: "radio", name, value: key, checked: key === value, disabled, onchange: () => onchange(key) }),
      h("span", {}, text))));
}
segmented.counter = 0;

/** A field with its label above it. */
export function field(label, control) {
  return h("label", { class: "field" }, h("span", { class: "field-label" }, label), control);
}

/** A word on a coloured ground; `tone` is good, bad, warn, live or quiet. */
export function badge(text, tone = "quiet") {
  return h("span", { class: `badge badge-${tone}` }, text);
}

/** How an episode ended, as a badge. */
export function outcome(row) {
  if (row.error || (row.reward === null && !row.success)) return badge("failed", "warn");
  return row.success ? badge("success", "good") : badge("no success", "bad");
}

/** A command to copy. */
export function copyable(text) {
  const said = h("span", { class: "muted", role: "status" });
  const copy = async () => {
    // Without the clipboard (another page, an old browser) the text is marked, to be copied by hand.
    const isDone = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    if (!isDone) getSelection().selectAllChildren(code);
    setText(said, isDone ? "Copied" : "Marked: copy it");
  };
  const code = h("code", { class: "text mono" }, text);
  return h("div", { class: "copyable" }, code, h("button", { type: "button", class: "button small", onclick: copy }, "Copy"), said);
}

/** A number with its name under it. */
export function figure(label, value, { title = null } = {}) {
  return h("div", { class: "figure", title }, h("span", { class: "figure-value" }, value), h("span", { class: "figure-label" }, label));
}

/** The parts of a whole as one bar with a legend; parts are {name, value, color}. */
export function stackedBar(label, parts, format) {
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  if (!(total > 0)) return null;
  const named = parts.filter((part) => part.value > 0);
  return h("div", { class: "stacked" },
    h("div", { class: "stacked-bar", role: "img", "aria-label": `${label}: ${named.map((part) => `${words(part.name)} ${format(part.value)}`).join(", ")}` },
      named.map((part) => h("span", { style: { width: `${(100 * part.value) / total}%`, background: part.color }, title: `${words(part.name)} ${format(part.value)}` }))),
    h("ul", { class: "stacked-legend" }, named.map((part) =>
      h("li", {}, h("i", { style: { background: part.color } }), words(part.name), " ", h("b", {}, format(part.value))))));
}

/** The state of an environment: a JSON value as a small table, nested where it is. */
export function details(value, depth = 0) {
  if (value === null || value === undefined) return h("span", { class: "muted" }, "–");
  if (Array.isArray(value)) {
    if (!value.length) return h("span", { class: "muted" }, "none");
    if (value.every((item) => typeof item !== "object" || item === null)) return h("span", { class: "text" }, value.map(String).join(", "));
    return h("ol", { class: "details-list" }, value.map((item) => h("li", {}, details(item, depth + 1))));
  }
  if (typeof value === "object") {
    const entries = Object.entries(value);
    if (!entries.length) return h("span", { class: "muted" }, "none");
    return h("dl", { class: `details depth-${Math.min(depth, 2)}` }, entries.map(([name, item]) => [h("dt", {}, words(name)), h("dd", {}, details(item, depth + 1))]));
  }
  return value === "" ? h("span", { class: "muted" }, "–") : h("span", { class: "text" }, String(value));
}
