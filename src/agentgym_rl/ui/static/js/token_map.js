// A strip that shows a whole sample at once, however long: kinds above, the colouring below.

import { h } from "./dom.js";
import { color } from "./theme.js";
import { valuesOf } from "./token_colors.js";

const KIND_HEIGHT = 6;
const HEIGHT = 22;

export class TokenMap {
  constructor(sample, pick) {
    this.sample = sample;
    this.canvas = h("canvas", { class: "token-map-canvas" });
    this.marker = h("span", { class: "token-map-marker", hidden: true });
    this.node = h("div", { class: "token-map", title: "the whole sample; click to go to a place", "aria-hidden": "true", onclick: (event) => this.#pick(event, pick) }, this.canvas, this.marker);
  }

  draw(mode, scale) {
    const width = Math.max(1, this.canvas.clientWidth || 1000);
    this.canvas.width = width;
    this.canvas.height = HEIGHT;
    const paint = this.canvas.getContext("2d");
    const total = this.sample.tokens.length;
    for (const { kind, start, end } of this.sample.segments) {
      paint.fillStyle = color(`--kind-${kind}`) || color("--faint");
      paint.fillRect((start / total) * width, 0, Math.max(1, ((end - start) / total) * width), KIND_HEIGHT);
    }
    const values = valuesOf(this.sample, mode);
    for (let x = 0; x < width; x += 1) {
      const first = Math.floor((x / width) * total);
      const last = Math.max(first + 1, Math.floor(((x + 1) / width) * total));
      const strongest = this.#strongest(values, first, last);
      const fill = strongest === null ? null : scale.color(strongest);
      if (!fill) continue;
      paint.fillStyle = fill;
      paint.fillRect(x, KIND_HEIGHT + 2, 1, HEIGHT - KIND_HEIGHT - 2);
    }
  }

  mark(index) {
    this.marker.hidden = index === null || index === undefined;
    if (!this.marker.hidden) this.marker.style.left = `${(100 * (index + 0.5)) / this.sample.tokens.length}%`;
  }

  /** Return the value farthest from 0 of the sampled tokens of a column. */
  #strongest(values, first, last) {
    let strongest = null;
    for (let index = first; index < last; index += 1) {
      if (!this.sample.mask[index] || values[index] === null) continue;
      if (strongest === null || Math.abs(values[index]) > Math.abs(strongest)) strongest = values[index];
    }
    return strongest;
  }

  #pick(event, pick) {
    const box = this.node.getBoundingClientRect();
    pick(Math.floor(((event.clientX - box.left) / box.width) * this.sample.tokens.length));
  }
}
