// Dialogs: the browser's own <dialog> keeps the focus inside and gives it back afterwards.

import { fill, h, icon } from "./dom.js";

/** Show content in a dialog; returns it, so that the caller can close it. */
export function showDialog(title, content, { className = "" } = {}) {
  const close = h("button", { class: "icon-button", type: "button", "aria-label": "Close", onclick: () => dialog.close() }, icon("close"));
  const dialog = h("dialog", { class: `dialog ${className}`, "aria-label": title },
    h("header", { class: "dialog-head" }, h("h2", {}, title), close), content);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Let the user pick one of many by typing a part of its name.
 * `items` are {value, label, detail?, mark?}; `pick` is called with the value.
 */
export function showPicker(title, items, pick) {
  let shown = items;
  let active = 0;
  const list = h("ul", { class: "picker-list", role: "listbox", id: "picker-list", "aria-label": title });
  const input = h("input", {
    type: "search", class: "picker-input", placeholder: `${title}…`, role: "combobox", autocomplete: "off", spellcheck: "false",
    "aria-label": title, "aria-expanded": "true", "aria-controls": "picker-list",
    oninput: () => { active = 0; draw(); },
    onkeydown: (event) => onKey(event),
  });
  const dialog = showDialog(title, h("div", { class: "picker" }, input, list), { className: "dialog-picker" });

  function choose(item) {
    dialog.close();
    if (item) pick(item.value);
  }
  function draw() {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = items.filter((item) => wanted.every((word) => `${item.label} ${item.detail ?? ""}`.toLowerCase().includes(word)));
    fill(list, shown.length ? shown.map((item, index) =>
      h("li", { role: "option", id: `picker-${index}`, class: "picker-item", "aria-selected": String(index === active), onclick: () => choose(item) },
        item.mark ?? null, h("span", { class: "picker-label" }, item.label), h("span", { class: "picker-detail" }, item.detail ?? "")))
      : h("li", { class: "picker-none" }, "Nothing has this name."));
    input.setAttribute("aria-activedescendant", shown.length ? `picker-${active}` : "");
    list.children[active]?.scrollIntoView({ block: "nearest" });
  }
  function onKey(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves && shown.length) {
      event.preventDefault();
      active = (active + moves[event.key] + shown.length) % shown.length;
      draw();
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(shown[active]);
    }
  }
  draw();
  input.focus();
}
