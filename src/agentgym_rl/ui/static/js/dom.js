// Making elements. Text from the server reaches the page through `h` and `setText` only, and these
// know no HTML: a string is always a text node. Control characters are made visible on the way.

const FORBIDDEN_TAGS = new Set(["script", "style", "link", "iframe", "object", "embed", "base", "meta"]);
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "selected", "open", "indeterminate", "tabIndex"]);
const ATTRIBUTES = new Set([
  "class", "id", "type", "name", "role", "title", "placeholder", "min", "max", "step", "list", "href", "src", "alt",
  "autocomplete", "spellcheck", "scope", "width", "height",
]);
const SHOWN_TEXT = new Set(["title", "placeholder", "alt"]);

// C0 and C1 control characters, and those that turn or hide text, except tab, line feed and the
// joiner that emoji are made with.
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Return the text with each control character as a visible sign: ESC as "␛", U+202E as "⟨U+202E⟩". */
export function visible(text) {
  return String(text).replace(CONTROL, (character) => {
    const code = character.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/**
 * Make an element: h("button", {class: "primary", onclick: save, "aria-label": "Save"}, "Save").
 * Children are nodes, strings, numbers, nested lists, or null and false, which are left out.
 */
export function h(tag, attributes = {}, ...children) {
  if (FORBIDDEN_TAGS.has(tag)) throw new Error(`h() makes no <${tag}>`);
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) setAttribute(node, name, value);
    else if (PROPERTIES.has(name) && value === false) node[name] = false;
  }
  append(node, children);
  return node;
}

function setAttribute(node, name, value) {
  if (name.startsWith("on")) {
    if (typeof value !== "function") throw new Error(`${name} must be a function`);
    node.addEventListener(name.slice(2), value);
  } else if (name === "style") {
    for (const [property, setting] of Object.entries(value)) node.style.setProperty(property, setting);
  } else if (PROPERTIES.has(name)) {
    node[name] = value;
  } else if (name === "href" || name === "src") {
    node.setAttribute(name, localAddress(value));
  } else if (ATTRIBUTES.has(name) || /^(aria|data)-[a-z-]+$/.test(name)) {
    const isShown = SHOWN_TEXT.has(name) || name === "aria-label";
    node.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : isShown ? visible(value) : String(value));
  } else {
    throw new Error(`h() does not set ${name}`);
  }
}

/** Return the address if it stays on this page or in this server, or is a picture in itself. */
function localAddress(address) {
  const text = String(address);
  if (/^#|^\/(?!\/)|^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$/.test(text)) return text;
  throw new Error(`an address of another place: ${text.slice(0, 60)}`);
}

function append(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(node, child);
    else if (child instanceof Node) node.append(child);
    else if (child !== null && child !== undefined && child !== false) node.append(document.createTextNode(visible(child)));
  }
}

/** Replace what the element holds. */
export function fill(node, ...children) {
  const holder = document.createDocumentFragment();
  append(holder, children);
  node.replaceChildren(holder);
  return node;
}

/** Set an element's text, if it is another one. */
export function setText(node, text) {
  const shown = visible(text);
  if (node.textContent !== shown) node.textContent = shown;
}

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  runs: "M3 17 8 11l4 3 9-9",
  episodes: "M4 6h16M4 12h16M4 18h10",
  evaluations: "M4 20V4M4 20h16M8 16l3.500-5 3.500 2.500L20 6",
  diagnosis: "M3 12h4l3-8 4 16 3-8h4",
  time: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M12 7v5l3.5 2",
  play: "M7 4.5v15l12-7.5z",
  pause: "M8 5v14M16 5v14",
  run: "M4 5h16v14H4zM4 10h16M9 10v9",
  first: "M6 5v14M19 5 9 12l10 7z",
  last: "M18 5v14M5 5l10 7-10 7z",
  back: "M15 5l-7 7 7 7",
  down: "M5 9l7 7 7-7",
  forward: "M9 5l7 7-7 7",
  tokens: "M4 7h6v4H4zM12 7h8v4h-8zM4 13h9v4H4zM15 13h5v4h-5z",
  group: "M5 4v16M12 4v16M19 4v16",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.500 10.500",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v3M12 19v3M2 12h3M19 12h3M4.900 4.900l2.100 2.100M17 17l2.100 2.100M4.900 19.100 7 17M17 7l2.100-2.100",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14M16 16l5 5",
  close: "M6 6l12 12M18 6 6 18",
  save: "M12 4v11M7 10.500l5 5 5-5M5 20h14",
  star: "M12 3.500l2.600 5.600 6 .700-4.500 4.100 1.200 6L12 16.900 6.700 19.900l1.200-6L3.400 9.800l6-.7z",
  expand: "M9 4H4v5M15 4h5v5M9 20H4v-5M15 20h5v-5",
  check: "M5 12.500l4.500 4.500L19 7.500",
  warn: "M12 4 2.500 20h19zM12 10v4.500M12 17.500v.01",
  info: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M12 11v5.500M12 7.500v.01",
  robot: "M5 9h14v10H5zM12 4.500V9M9.500 13.500v1.500M14.500 13.500v1.500",
  eye: "M2.500 12S6 5.500 12 5.500 21.500 12 21.500 12 18 18.500 12 18.500 2.500 12 2.500 12M12 9.500a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5",
  send: "M4 12h15M13 6l6 6-6 6",
  swap: "M8 9l4-4 4 4M8 15l4 4 4-4",
};

/** Return a drawing that says nothing to a screen reader: the control around it has the name. */
export function icon(name, size = 16) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("width", String(size));
  svg.setAttribute("height", String(size));
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}
