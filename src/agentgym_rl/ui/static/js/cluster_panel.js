// The processes of a run: what each engine, server, worker and rank did in the last step, and what was lost.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { count, duration, number } from "./format.js";
import { seriesColor } from "./theme.js";
import { stackedBar } from "./components.js";

const KINDS = [
  { title: "Engines", one: "engine", part: "cluster/tokens_engine_", unit: "token", serving: "cluster/engines", losses: "cluster/restarts_engine" },
  { title: "Environment servers", one: "server", part: "cluster/episodes_server_", unit: "episode", serving: "cluster/env_servers", losses: "cluster/restarts_env" },
  { title: "Rollout workers", one: "worker", part: "cluster/episodes_worker_", unit: "episode", serving: "cluster/rollout_workers", losses: "cluster/restarts_rollout" },
  { title: "Learner ranks", one: "rank", part: "cluster/tokens_rank_", unit: "token", serving: null, losses: "cluster/restarts_learner" },
];
const LOSSES = [
  ["cluster/restarts_engine", "engine"], ["cluster/restarts_env", "environment server"], ["cluster/restarts_rollout", "rollout worker"],
  ["cluster/restarts_learner", "group of learner ranks"], ["cluster/restarts_node", "node"],
];
const MAX_LOSSES = 50;
const MAX_MEMBERS = 64;

const sum = (values) => (values ?? []).reduce((total, value) => total + (value ?? 0), 0);

/** Fill a section with the processes of a run; it stays hidden where there are none. */
export async function showCluster(section, run, { signal }) {
  const { names } = await get("metric_names", { run }, { signal });
  const parts = KINDS.flatMap((kind) => names.filter((name) => isMember(kind, name)).slice(0, MAX_MEMBERS));
  if (!parts.length) {
    section.hidden = true;
    return;
  }
  const own = [...parts, ...KINDS.flatMap((kind) => [kind.serving, kind.losses]), "cluster/restarts_node", "cluster/episodes_lost", "cluster/time_lost_s"].filter(Boolean);
  const { steps, values } = await get("metrics", { run, names: own.join(",") }, { signal });
  if (!steps.length) return;
  section.hidden = false;
  fill(section,
    h("div", { class: "panel-head" }, h("h2", {}, "Processes"), h("span", { class: "muted" }, `in step ${steps.at(-1)}`)),
    table(values),
    losses(steps, values));
}

function table(values) {
  const kinds = KINDS.map((kind) => ({ ...kind, members: members(kind, values) })).filter((kind) => kind.members.length);
  return h("div", { class: "scroll-x", tabIndex: 0, role: "region", "aria-label": "What each process did" }, h("table", { class: "table cards" },
    h("thead", {}, h("tr", {}, ["processes", "serving", "work of each", "lost so far"].map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, kinds.map((kind) => h("tr", {},
      h("td", { class: "is-title" }, kind.title),
      h("td", { "data-label": "serving" }, serving(kind, values)),
      h("td", { "data-label": "work" }, work(kind)),
      h("td", { "data-label": "lost so far" }, number(sum(values[kind.losses]))))))));
}

function isMember({ part }, name) {
  return name.startsWith(part) && /^\d{1,6}$/.test(name.slice(part.length));
}

/** The numbers of a kind of process in the last step, in the order of their places. */
function members(kind, values) {
  const { part, one } = kind;
  const found = Object.keys(values).filter((name) => isMember(kind, name));
  return found.map((name) => Number(name.slice(part.length))).sort((a, b) => a - b)
    .map((place) => ({ name: `${one} ${place}`, value: values[`${part}${place}`].at(-1) ?? 0, color: seriesColor(place) }));
}

function serving({ serving: metric, members: all }, values) {
  return metric === null ? number(all.length) : `${number(values[metric]?.at(-1))} of ${number(all.length)}`;
}

function work({ title, unit, members: all }) {
  return stackedBar(title, all, (value) => count(value, unit)) ?? h("span", { class: "faint" }, "nothing");
}

/** What was lost in which step, the latest first. */
function losses(steps, values) {
  const lines = steps.flatMap((step, at) => {
    const lost = LOSSES.filter(([name]) => values[name]?.[at]).map(([name, what]) => count(values[name][at], what));
    if (!lost.length) return [];
    const episodes = values["cluster/episodes_lost"]?.[at];
    const again = episodes ? `; ${count(episodes, "episode")} started again` : "";
    return [{ step, text: `${lost.join(", ")} lost${again}; ${duration(values["cluster/time_lost_s"]?.[at])} until all was made good` }];
  }).reverse();
  if (!lines.length) return h("p", { class: "eval-facts muted" }, "Nothing was lost so far.");
  const left = lines.length - MAX_LOSSES;
  return h("div", { class: "eval-facts" },
    h("h3", {}, "Losses"),
    h("ul", { class: "losses" }, lines.slice(0, MAX_LOSSES).map(({ step, text }) => h("li", {}, h("b", {}, `Step ${step}: `), text))),
    left > 0 ? h("p", { class: "muted" }, `and ${count(left, "earlier step")}`) : null);
}
