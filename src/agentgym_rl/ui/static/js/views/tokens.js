// Token view: every token of a sample, coloured by what training sees. Long samples stay smooth:
// tokens are in chunks, which the browser lays out, and we split and colour, only where they are seen.

import { get, getOnce, postOnce } from "../api.js";
import { noEpisode, present, problemLine, segmented, select } from "../components.js";
import { fill, h, visible } from "../dom.js";
import { episodeHead } from "../episode_head.js";
import { count, number, signed } from "../format.js";
import { go, href, integerOf, leave } from "../route.js";
import { onTheme } from "../theme.js";
import { MODES, scaleOf, valuesOf } from "../token_colors.js";
import { TokenMap } from "../token_map.js";

/** Tokens of which the user asked for the alternatives. */
const asked = new Set();

const CHUNK = 300;

class TokensView {
  constructor(root, context) {
    this.context = context;
    this.params = context.params;
    this.body = h("div", { class: "tokens-body" });
    fill(root, this.body);
    const { run, episode } = this.params;
    const load = () => Promise.all([getOnce("episode", { run, episode }), get("tokens", { run, episode, sample: this.sampleIndex }, { signal: context.signal })]);
    present(this.body, load, ([row, sample]) => this.build(row, sample), { signal: context.signal, label: "Reading the tokens" }).then(() => this.sample && this.show({ isFirst: true }));
    this.stopTheme = onTheme(() => this.sample && this.recolor());
  }

  get sampleIndex() {
    return integerOf(this.params.sample, { fallback: 0, min: 0 });
  }

  get mode() {
    const wanted = this.params.color in MODES ? this.params.color : "mask";
    return valuesOf(this.sample, wanted) ? wanted : "mask";
  }

  build(row, sample) {
    this.sample = sample;
    this.row = row;
    this.spans = new Array(sample.tokens.length);
    fill(this.context.slot, episodeHead(row, { run: this.params.run, current: "tokens" }));
    this.legend = h("div", { class: "token-legend" });
    this.detail = h("aside", { class: "token-detail panel", "aria-label": "Token", "aria-live": "polite" });
    this.text = h("div", { class: "token-text", role: "region", tabIndex: 0, "aria-label": `${count(sample.tokens.length, "token")}; arrow keys move from one to the next` }, this.blocks());
    this.text.addEventListener("mouseover", (event) => this.hover(event));
    this.text.addEventListener("mouseleave", () => this.describe(this.selected));
    this.text.addEventListener("click", (event) => this.click(event));
    this.map = new TokenMap(sample, (index) => this.select(index));
    this.tools = h("div", { class: "token-tools" });
    return [h("div", {}, problemLine(sample), this.tools), this.map.node, h("div", { class: "token-panes" }, this.text, this.detail)];
  }

  drawTools() {
    const options = Object.entries(MODES).map(([name, mode], index) => [name, mode.label, !valuesOf(this.sample, name), valuesOf(this.sample, name) ? `${mode.text} (${index + 1})` : "this run did not store it"]);
    const samples = this.row.samples ?? [];
    const hadFocus = this.tools.contains(document.activeElement);
    fill(this.tools,
      segmented("Colour by", options, this.mode, (color) => this.context.set({ color })),
      samples.length > 1 ? select("Sample", samples.map((sample) => [sample.index, `sample ${sample.index + 1} of ${samples.length} · ${number(sample.num_tokens)} tokens · try ${sample.try + 1}`]), this.sampleIndex,
        (value) => this.context.set({ sample: value, token: "" })) : null,
      h("span", { class: "grow" }), this.legend);
    if (hadFocus) this.tools.querySelector("input:checked")?.focus();
  }

  /** One block per segment: its kind and round in the margin, its tokens in chunks. */
  blocks() {
    this.chunks = [];
    this.inView = new Set();
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) this.inView.add(entry.target);
        else this.inView.delete(entry.target);
        if (entry.isIntersecting) this.colorChunk(entry.target);
      }
    }, { rootMargin: "300px" });
    const { segments, tokens } = this.sample;
    const whole = segments.length ? segments : [{ kind: "prompt", start: 0, end: tokens.length, round: 0 }];
    this.segments = whole;
    return whole.map((segment) => {
      const chunks = [];
      for (let start = segment.start; start < segment.end; start += CHUNK) chunks.push(this.chunk(start, Math.min(segment.end, start + CHUNK)));
      return h("div", { class: `token-block kind-${segment.kind}` },
        h("span", { class: "token-margin" }, h("b", {}, segment.kind), h("span", { class: "faint" }, segment.kind === "prompt" ? "" : `round ${segment.round + 1}`)),
        h("div", { class: "token-run" }, chunks));
    });
  }

  /** A run of tokens, as one text until it comes into view. */
  chunk(start, end) {
    const node = document.createElement("div");
    const text = this.sample.tokens.slice(start, end).map(shown).join("");
    node.className = "token-chunk";
    node.textContent = text;
    node.start = start;
    node.end = end;
    const numLines = Math.max(text.split("\n").length, Math.ceil(text.length / 110));
    node.style.setProperty("contain-intrinsic-height", `auto ${numLines * 21}px`);
    this.seen.observe(node);
    this.chunks.push(node);
    return node;
  }

  /** Give every token of a chunk an element of its own. */
  split(node) {
    if (node.isSplit) return;
    node.isSplit = true;
    const spans = document.createDocumentFragment();
    for (let index = node.start; index < node.end; index += 1) {
      const span = document.createElement("span");
      span.className = this.sample.reward?.[index] ? "tok has-reward" : "tok";
      span.index = index;
      span.textContent = shown(this.sample.tokens[index]);
      this.spans[index] = span;
      spans.append(span);
    }
    node.replaceChildren(spans);
  }

  colorChunk(node) {
    this.split(node);
    if (node.colored === this.coloring) return;
    node.colored = this.coloring;
    const values = valuesOf(this.sample, this.mode);
    const { mask } = this.sample;
    for (let index = node.start; index < node.end; index += 1) {
      const isColored = mask[index] || this.mode === "mask";
      const background = isColored ? this.scale.color(values[index]) : null;
      if (background || this.spans[index].style.backgroundColor) this.spans[index].style.backgroundColor = background ?? "";
    }
  }

  recolor() {
    this.coloring = Symbol(this.mode);
    this.scale = scaleOf(this.sample, this.mode);
    for (const node of this.inView) this.colorChunk(node);
    this.map.draw(this.mode, this.scale);
    this.drawLegend();
  }

  drawLegend() {
    if (this.mode === "mask") {
      const trained = this.sample.mask.reduce((sum, value) => sum + (value ? 1 : 0), 0);
      fill(this.legend, h("i", { class: "legend-swatch", style: { background: this.scale.color(1) } }), `learned from: ${number(trained)} of ${number(this.sample.tokens.length)} tokens`);
      return;
    }
    fill(this.legend, h("span", { class: "number" }, this.scale.low),
      h("i", { class: "legend-ramp", role: "img", "aria-label": `${MODES[this.mode].label} from ${this.scale.low} to ${this.scale.high}`, style: { background: `linear-gradient(90deg, ${this.scale.stops.join(", ")})` } }),
      h("span", { class: "number" }, this.scale.high));
  }

  update(params) {
    this.params = params;
    if (this.sample) this.show();
  }

  show({ isFirst = false } = {}) {
    if (this.mode !== this.shownMode) {
      this.shownMode = this.mode;
      this.drawTools();
      this.recolor();
    }
    const token = this.params.token === undefined ? null : integerOf(this.params.token, { fallback: 0, min: 0, max: this.spans.length - 1 });
    this.mark(token, { scroll: isFirst || token !== this.selected });
  }

  mark(token, { scroll }) {
    this.spans[this.selected]?.classList.remove("is-selected");
    this.selected = token;
    if (token !== null) {
      this.split(this.chunks.find((node) => token < node.end));
      this.spans[token].classList.add("is-selected");
      if (scroll) this.spans[token].scrollIntoView({ block: "nearest" });
    }
    this.map.mark(token);
    this.describe(token);
  }

  hover(event) {
    if (event.target.index !== undefined) this.describe(event.target.index);
  }

  click(event) {
    if (event.target.index !== undefined && !getSelection().toString()) this.select(event.target.index);
  }

  select(index) {
    this.context.set({ token: Math.max(0, Math.min(this.spans.length - 1, index)) }, { replace: true });
  }

  move(change) {
    this.select(this.selected === null || this.selected === undefined ? 0 : this.selected + change);
  }

  /** Go to the first token of the next or the previous segment. */
  jump(change) {
    const at = this.segments.findIndex(({ start, end }) => start <= (this.selected ?? 0) && (this.selected ?? 0) < end);
    const next = this.segments[Math.max(0, Math.min(this.segments.length - 1, at + change))];
    if (next) this.select(next.start);
  }

  describe(index) {
    if (index === null || index === undefined) {
      fill(this.detail, h("p", { class: "muted token-hint" }, "Choose a token, with the pointer or the arrow keys, to see its numbers."));
      return;
    }
    const { sample } = this;
    const segment = this.segments.find(({ start, end }) => start <= index && index < end);
    const learner = sample.learner_logprob?.[index];
    const isTrained = Boolean(sample.mask[index]);
    const value = (list, format = number) => (list && isTrained && list[index] !== null ? format(list[index]) : "–");
    const rows = [
      ["place", `${number(index + 1)} of ${number(sample.tokens.length)}`], ["id", sample.ids[index]], ["kind", segment?.kind ?? "–"], ["round", segment && segment.kind !== "prompt" ? segment.round + 1 : "–"],
      ["learned from", isTrained ? "yes" : "no"], ["log-prob", value(sample.logprob)], ["probability", isTrained && sample.logprob ? `${number(100 * Math.exp(sample.logprob[index]), 3)}%` : "–"],
      ["by the learner", isTrained && learner !== undefined && learner !== null ? number(learner) : "–"], ["difference", value(sample.difference, signed)], ["advantage", value(sample.advantage, signed)],
      ["entropy", value(sample.entropy)], ["reward", sample.reward?.[index] ? signed(sample.reward[index]) : "–"],
    ];
    fill(this.detail, h("div", { class: "token-shown text mono" }, shown(sample.tokens[index])),
      h("dl", { class: "details" }, rows.map(([name, text]) => [h("dt", {}, name), h("dd", { class: "number-left" }, String(text))])),
      isTrained ? this.instead(index) : null,
      segment && segment.kind !== "prompt" ? h("a", { class: "link", href: href("replay", { run: this.params.run, episode: this.params.episode, round: segment.round + 1 }) }, `Replay round ${segment.round + 1}`) : null);
  }

  /** What a model of the run would have said instead. It runs the model, so only the user may ask for it. */
  instead(index) {
    const { run, episode } = this.params;
    const place = { run, episode, sample: this.sampleIndex, place: index };
    const node = h("div", { class: "alternatives" });
    const ask = () => present(node, () => postOnce("alternatives", place), (answer) => alternatives(answer, this.sample, index), { signal: this.context.signal, label: "Asking the model" });
    if (asked.has(`${run}|${episode}|${this.sampleIndex}|${index}`)) ask();
    else fill(node, h("button", { type: "button", class: "button small", onclick: () => { asked.add(`${run}|${episode}|${this.sampleIndex}|${index}`); ask(); } }, "Alternatives"));
    return node;
  }

  dispose() {
    this.stopTheme();
    this.seen?.disconnect();
  }
}

function chance(logprob) {
  const percent = 100 * Math.exp(logprob);
  return percent < 0.01 ? "<0.01%" : `${number(percent, 3)}%`;
}

/** The likeliest tokens at a place, each with its probability as a bar. */
function alternatives({ alternatives: found, logprob, rank, model }, sample, index) {
  const then = sample.logprob?.[index];
  return [
    h("h2", {}, "Alternatives"),
    h("ul", { class: "alternative-list" }, found.map((other) => h("li", { class: other.id === sample.ids[index] ? "is-chosen" : "" },
      h("span", { class: "mono alternative-text" }, shown(other.text)), h("span", { class: "alternative-bar", "aria-hidden": "true" }, h("i", { style: { width: `${100 * Math.exp(other.logprob)}%` } })), h("span", { class: "number" }, chance(other.logprob))))),
    h("p", { class: "faint text" }, `By ${model}, as it is now: the sampled token has ${chance(logprob)} and rank ${number(rank)}${then === undefined || then === null ? "" : `; when it was sampled it had ${chance(then)}`}. Alternatives of that time are not stored.`),
  ];
}

/** A token's text; the ends of lines are seen as such, and an empty text too. */
function shown(text) {
  return text === "" ? "∅" : visible(text).replaceAll("\n", "↵\n").replaceAll("\t", "⇥\t");
}

export default {
  title: "Tokens",
  needsRun: true,
  identity: (params) => `${params.episode}|${params.sample ?? 0}`,
  mount(root, context) {
    if (!context.params.episode) {
      fill(root, noEpisode());
      return {};
    }
    const view = new TokensView(root, context);
    const { run, episode } = context.params;
    return {
      update: (params) => view.update(params),
      keys: [
        ...Object.entries(MODES).map(([color, mode], index) => ({ keys: String(index + 1), label: `Colour by ${mode.label.toLowerCase()}`, run: () => context.set({ color }) })),
        { keys: "ArrowRight", label: "Next token", run: () => view.move(1) },
        { keys: "ArrowLeft", label: "Previous token", run: () => view.move(-1) },
        { keys: "ArrowDown", label: "Next segment", run: () => view.jump(1) },
        { keys: "ArrowUp", label: "Previous segment", run: () => view.jump(-1) },
        { keys: "v", label: "Replay", run: () => go("replay", { run, episode }) },
        { keys: "Escape", label: "Back", run: () => leave("replay", { run, episode }) },
      ],
      dispose: () => view.dispose(),
    };
  },
};
