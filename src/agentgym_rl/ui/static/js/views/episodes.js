// Episodes: filter, sort, page through, open.

import { get } from "../api.js";
import { empty, field, outcome, present, problemLine, segmented, select } from "../components.js";
import { fill, h, icon, setText } from "../dom.js";
import { count, duration, number, percent, signed, words } from "../format.js";
import { marked, says } from "../marks.js";
import { rememberList } from "../neighbours.js";
import { go, href, integerOf } from "../route.js";
import { runList } from "../run_store.js";

const PAGE = 50;
const FILTERS = ["phase", "outcome", "stop_reason", "env", "category", "step_min", "step_max", "rounds_min", "rounds_max", "invalid_min", "repeats_min", "group", "task_index", "text"];
const FILTER_WORDS = { invalid_min: "invalid rounds, at least", repeats_min: "repeated replies, at least", group: "group", task_index: "task" };
const SORTS = [["step", "newest"], ["reward", "reward"], ["num_rounds", "rounds"], ["num_tokens", "tokens"], ["num_invalid", "invalid rounds"], ["num_repeats", "repeated replies"], ["seconds", "time"]];
const COLUMNS = [
  ["", "outcome"], ["step", "step", "number"], ["", "goal"], ["", "last action"], ["reward", "reward", "number"], ["num_rounds", "rounds", "number"],
  ["num_tokens", "tokens", "number"], ["", "ended by"], ["seconds", "time", "number"],
];
const OUTCOMES = [["", "any outcome"], ["success", "success"], ["failure", "no success"], ["failed", "failed (no reward)"]];

class EpisodesView {
  constructor(root, context) {
    this.context = context;
    this.params = context.params;
    this.form = h("form", { class: "filters", "aria-label": "Filters", onsubmit: (event) => event.preventDefault() });
    this.text = h("input", { type: "search", placeholder: "Text in an episode", "aria-label": "Text in an episode", value: this.params.text ?? "", oninput: () => this.later(() => this.change({ text: this.text.value })) });
    this.facets = h("div", { class: "filter-fields" });
    this.table = h("div", { class: "episode-table" });
    this.total = h("span", { class: "muted", role: "status" });
    this.pager = h("div", { class: "row pager" });
    this.news = h("button", { type: "button", class: "button small", hidden: true, onclick: () => this.load() });
    const toggle = h("button", { type: "button", class: "button only-narrow", "aria-expanded": "false", onclick: () => toggle.setAttribute("aria-expanded", String(this.side.classList.toggle("is-open"))) }, "More filters");
    this.sort = h("div", { class: "only-narrow" });
    fill(this.form, field("Text", this.text), toggle, this.facets);
    this.side = h("aside", { class: "filter-side", "aria-label": "Filters of the list" }, this.form);
    fill(root, h("div", { class: "episodes" }, this.side, h("section", { class: "episode-list", "aria-label": "Episodes" },
      h("div", { class: "list-head row" }, this.total, this.news, h("span", { class: "grow" }), this.sort, this.pager), this.table)));
    this.loadFacets();
    this.load();
    this.stop = runList.subscribe(() => this.watch());
  }

  later(action, delay = 250) {
    clearTimeout(this.timer);
    this.timer = setTimeout(action, delay);
  }

  /** Change filters; the list begins at its first page again. */
  change(changes, { replace = false } = {}) {
    this.context.set({ page: "", ...changes }, { replace });
  }

  update(params) {
    this.params = params;
    if (document.activeElement !== this.text) this.text.value = params.text ?? "";
    if (this.answer) this.drawFacets(this.answer);
    this.load();
  }

  /** Offer the episodes that a live run has written since; rows do not move by themselves. */
  watch() {
    const run = runList.find(this.params.run);
    const fresh = (run?.num_episodes ?? 0) - (this.numEpisodes ?? run?.num_episodes ?? 0);
    this.news.hidden = fresh <= 0;
    setText(this.news, `${count(fresh, "new episode")} · show`);
  }

  async loadFacets() {
    await present(this.facets, () => get("facets", { run: this.params.run }, { signal: this.context.signal }), (answer) => {
      this.answer = answer;
      return this.fields(answer);
    }, this.context);
  }

  drawFacets(answer) {
    const focused = this.facets.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    fill(this.facets, this.fields(answer));
    if (focused) this.facets.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  fields(answer) {
    const { params } = this;
    const choice = (label, name, options) => field(label, select(label, options, params[name], (value) => this.change({ [name]: value })));
    const any = (values, text) => [["", text], ...values.map((value) => [value, words(value) || "–"])];
    const bound = (label, name, hint) => h("input", {
      type: "number", "aria-label": label, placeholder: hint === undefined || hint === null ? "" : String(hint), value: params[name] ?? "", onchange: (event) => this.change({ [name]: event.target.value }),
    });
    const range = (label, name, limits) => h("div", { class: "field" }, h("span", { class: "field-label" }, label),
      h("div", { class: "pair" }, bound(`${label} from`, `${name}_min`, limits?.[0]), bound(`${label} to`, `${name}_max`, limits?.[1])));
    const isFiltered = FILTERS.some((name) => params[name]);
    return [
      answer.phases.length > 1 ? h("div", { class: "field" }, h("span", { class: "field-label" }, "Phase"),
        segmented("Phase", [["", "all"], ...answer.phases.map((phase) => [phase, phase])], params.phase ?? "", (value) => this.change({ phase: value }))) : null,
      choice("Outcome", "outcome", OUTCOMES),
      choice("Ended by", "stop_reason", any(answer.stop_reasons, "any reason")),
      answer.envs.length > 1 ? choice("Environment", "env", any(answer.envs, "any environment")) : null,
      answer.categories.length > 1 ? choice("Category", "category", any(answer.categories, "any category")) : null,
      range("Step", "step", answer.steps),
      range("Rounds", "rounds", answer.rounds),
      Object.entries(FILTER_WORDS).filter(([name]) => params[name]).map(([name, label]) => h("button", { type: "button", class: "button small filter-chip", title: "Remove this filter", onclick: () => this.change({ [name]: "" }) }, h("span", { class: "clip" }, `${label} ${params[name]}`), icon("close", 12))),
      h("button", { type: "button", class: "button", disabled: !isFiltered, onclick: () => this.clear() }, "Clear filters"),
    ];
  }

  clear() {
    this.text.value = "";
    this.change(Object.fromEntries(FILTERS.map((name) => [name, ""])));
  }

  get page() {
    return integerOf(this.params.page, { fallback: 1, min: 1 });
  }

  load() {
    const { run, sort = "step", order = "desc" } = this.params;
    const filters = Object.fromEntries(FILTERS.map((name) => [name, this.params[name]]));
    const query = { run, ...filters, sort, order, limit: PAGE, offset: (this.page - 1) * PAGE };
    this.numEpisodes = runList.find(run)?.num_episodes;
    this.news.hidden = true;
    return present(this.table, () => get("episodes", query, { signal: this.context.signal }), (answer) => this.draw(answer), this.context);
  }

  draw({ total, rows, index, problem }) {
    const isPartial = index && index.parts_read < index.parts;
    setText(this.total, count(total, "episode") + (isPartial ? `, as far as read (${percent(index.parts_read / index.parts)})` : ""));
    if (isPartial) this.later(() => this.load(), 600);
    this.drawPager(total);
    fill(this.sort, select("Sort by", SORTS, this.params.sort ?? "step", (sort) => this.change({ sort: sort === "step" ? "" : sort, order: "" })));
    rememberList(this.params.run, rows.map((row) => row.episode));
    if (!rows.length) {
      const isFiltered = FILTERS.some((name) => this.params[name]);
      const said = isFiltered
        ? empty("No episode fits", "No stored episode has all of these properties.", h("button", { type: "button", class: "button", onclick: () => this.clear() }, "Clear filters"))
        : empty("No episodes yet", "Episodes appear here when the first step or evaluation of the run is done.");
      return [problemLine({ problem }), said];
    }
    return [problemLine({ problem }), h("table", { class: "table hover cards" },
      h("thead", {}, h("tr", {}, COLUMNS.map((column) => this.head(column)))),
      h("tbody", {}, rows.map((row) => this.row(row))))];
  }

  head([name, label, className = ""]) {
    const { sort = "step", order = "desc" } = this.params;
    if (!name) return h("th", { scope: "col", class: className }, label);
    const isSorted = sort === name;
    const next = isSorted && order === "desc" ? "asc" : "desc";
    return h("th", { scope: "col", class: className, "aria-sort": isSorted ? (order === "asc" ? "ascending" : "descending") : "none" },
      h("button", { type: "button", class: "sort", onclick: () => this.change({ sort: name, order: next }) }, label, h("span", { "aria-hidden": "true" }, isSorted ? (order === "asc" ? " ↑" : " ↓") : "")));
  }

  row(row) {
    const { run, text } = this.params;
    const target = { run, episode: row.episode, find: text };
    const address = href("replay", target);
    const open = (event) => event.target.closest("a, button") || getSelection().toString() || go("replay", target);
    const isElsewhere = row.excerpt && !says(row.goal, text) && !says(row.last_action, text);
    return h("tr", { onclick: open },
      h("td", {}, outcome(row)),
      h("td", { class: "number", "data-label": "step" }, row.step, row.phase === "train" ? null : h("span", { class: "faint" }, ` ${row.phase}`)),
      h("td", { class: "goal-cell is-wide" },
        h("a", { class: "row-link clip", href: address, title: row.error ?? row.goal ?? null }, marked(row.goal || `${row.env} ${row.task_index}`, text)),
        h("div", { class: "faint clip row-facts" }, `${row.env} ${row.task_index}`, row.category ? ` · ${row.category}` : null, " · ",
          h("a", { class: "link", href: href("group", { run, phase: row.phase, step: row.step, group: row.group }), title: "Compare the episodes of this task" }, `group ${row.group}, episode ${row.sample_index}`)),
        isElsewhere ? h("div", { class: "row-excerpt clip", title: row.excerpt }, marked(row.excerpt, text)) : null),
      h("td", { class: "action-cell is-wide", title: row.last_action }, h("span", { class: "mono clip" }, marked(row.last_action ?? "", text))),
      h("td", { class: "number", "data-label": "reward" }, signed(row.reward)),
      h("td", { class: "number", "data-label": "rounds" }, row.num_rounds, row.num_invalid ? h("span", { class: "row-invalid", title: `${count(row.num_invalid, "round")} without a valid action` }, ` ${row.num_invalid} invalid`) : null),
      h("td", { class: "number is-last", "data-label": "tokens" }, number(row.num_tokens)),
      h("td", { class: "faint is-last", "data-label": "ended by" }, words(row.stop_reason)),
      h("td", { class: "number faint is-last" }, duration(row.seconds)));
  }

  drawPager(total) {
    const pages = Math.max(1, Math.ceil(total / PAGE));
    const turn = (change) => this.turn(change, pages);
    this.pages = pages;
    this.pager.hidden = pages < 2;
    fill(this.pager,
      h("button", { type: "button", class: "icon-button", "aria-label": "Previous page", disabled: this.page <= 1, onclick: () => turn(-1) }, icon("back", 14)),
      h("span", { class: "number muted" }, `page ${number(this.page)} of ${number(pages)}`),
      h("button", { type: "button", class: "icon-button", "aria-label": "Next page", disabled: this.page >= pages, onclick: () => turn(1) }, icon("forward", 14)));
  }

  turn(change, pages = this.pages ?? 1) {
    const page = Math.max(1, Math.min(pages, this.page + change));
    this.context.set({ page: page > 1 ? page : "" });
  }

  move(change) {
    const links = [...this.table.querySelectorAll(".row-link")];
    const index = links.indexOf(document.activeElement);
    const next = links[Math.max(0, Math.min(links.length - 1, index < 0 ? 0 : index + change))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }
}

export default {
  title: "Episodes",
  needsRun: true,
  mount(root, context) {
    const view = new EpisodesView(root, context);
    return {
      update: (params) => view.update(params),
      keys: [
        { keys: "j", label: "Next episode in the list", run: () => view.move(1) },
        { keys: "k", label: "Previous episode in the list", run: () => view.move(-1) },
        { keys: "n", label: "Next page", run: () => view.turn(1) },
        { keys: "p", label: "Previous page", run: () => view.turn(-1) },
        { keys: "x", label: "Clear filters", run: () => view.clear() },
      ],
      dispose() {
        clearTimeout(view.timer);
        view.stop();
      },
    };
  },
};
