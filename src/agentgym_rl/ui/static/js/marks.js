// What was searched for, marked where it stands.

import { h } from "./dom.js";

/** Return the text in pieces, those that say `wanted` (in letters of either case) marked. */
export function marked(text, wanted) {
  const shown = String(text ?? "");
  if (!wanted) return [shown];
  const lower = shown.toLowerCase();
  const needle = wanted.toLowerCase();
  if (lower.length !== shown.length) return [shown]; // a few letters change their length: no places
  const pieces = [];
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
    pieces.push(shown.slice(from, at), h("mark", {}, shown.slice(at, at + needle.length)));
    from = at + needle.length;
  }
  return [...pieces, shown.slice(from)].filter((piece) => piece !== "");
}

/** Whether the text says `wanted`. */
export function says(text, wanted) {
  return Boolean(wanted) && String(text ?? "").toLowerCase().includes(wanted.toLowerCase());
}

/** Mark what was searched for in texts that are shown already; browsers without highlights do nothing. */
export function highlight(node, wanted) {
  if (!globalThis.CSS?.highlights) return null;
  CSS.highlights.delete("found");
  if (!wanted) return null;
  const needle = wanted.toLowerCase();
  const ranges = [];
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { currentNode } = walker;
    const lower = currentNode.data.toLowerCase();
    if (lower.length !== currentNode.data.length) continue;
    for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, at + needle.length)) {
      const range = new Range();
      range.setStart(currentNode, at);
      range.setEnd(currentNode, at + needle.length);
      ranges.push(range);
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
  return ranges[0]?.startContainer.parentElement ?? null;
}
