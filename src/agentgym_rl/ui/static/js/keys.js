// Keyboard shortcuts: one table for what the keys do and for the help sheet that `?` opens.
//
// A binding is {keys: "g e", label: "Episodes", run: (event) => ...}. Letters typed into a field
// are text, never shortcuts; Escape works everywhere.

import { h } from "./dom.js";
import { showDialog } from "./dialog.js";

const SEQUENCE_MS = 2000;
const sections = new Map();
let pending = null;
let pendingSince = 0;

/** Set the shortcuts of one part of the page ("Everywhere", or the view that is shown). */
export function bind(section, bindings) {
  if (bindings.length) sections.set(section, bindings);
  else sections.delete(section);
}

/** Begin to listen. */
export function listen() {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const name = event.key === " " ? "Space" : event.key;
    if (isTyping(event.target, name)) return;
    const isSequence = pending && event.timeStamp - pendingSince < SEQUENCE_MS;
    const typed = isSequence ? `${pending} ${name}` : name;
    pending = null;
    const binding = find(typed) ?? find(name);
    if (binding) {
      event.preventDefault();
      binding.run(event);
    } else if (startsSequence(name)) {
      pending = name;
      pendingSince = event.timeStamp;
    }
  });
}

/** Show what all keys do. */
export function showHelp() {
  const groups = [...sections].map(([section, bindings]) =>
    h("section", { class: "help-group" },
      h("h3", {}, section),
      h("dl", {}, bindings.map((binding) => [
        h("dt", {}, binding.keys.split(" ").map((key) => h("kbd", {}, SIGNS[key] ?? key))),
        h("dd", {}, binding.label),
      ]))));
  showDialog("Keyboard shortcuts", h("div", { class: "help" }, groups));
}

const SIGNS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };

function find(typed) {
  for (const bindings of [...sections.values()].reverse()) {
    const found = bindings.find((binding) => binding.keys === typed);
    if (found) return found;
  }
  return null;
}

function startsSequence(name) {
  return [...sections.values()].flat().some((binding) => binding.keys.startsWith(`${name} `));
}

/** Whether the key belongs to the control that has the focus. */
function isTyping(target, name) {
  if (name === "Escape") return false;
  const control = target.closest?.("input, textarea, select, [contenteditable]");
  if (control) {
    const isText = !["checkbox", "radio", "range", "button"].includes(control.type);
    if (isText) return true;
    return name === "Space" || name.startsWith("Arrow") || name === "Home" || name === "End";
  }
  return (name === "Enter" || name === "Space") && Boolean(target.closest?.("button, a, summary, [role=button]"));
}
