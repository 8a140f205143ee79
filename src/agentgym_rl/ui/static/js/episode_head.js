// The line above an episode's views: which one it is, how it ended, and the ways to its other views.

import { outcome } from "./components.js";
import { h, icon } from "./dom.js";
import { count, duration, number, signed, words } from "./format.js";
import { href } from "./route.js";

/** Return the head of the episode, with the view named `current` marked. */
export function episodeHead(row, { run, current, round = null }) {
  const place = { run, episode: row.episode };
  const links = [
    ["replay", "Replay", "play", { ...place, round }],
    ["tokens", "Tokens", "tokens", place],
    ["group", "Group", "group", { run, phase: row.phase, step: row.step, group: row.group }],
  ];
  const facts = `${row.phase} step ${row.step} · group ${row.group}, episode ${row.sample_index} · reward ${row.reward === null ? "none" : signed(row.reward)}${typeof row.env_reward === "number" ? ` (environment ${signed(row.env_reward)})` : ""} · ${count(row.num_rounds, "round")} · ${number(row.num_tokens)} tokens · ${words(row.stop_reason)} · ${duration(row.seconds)}`;
  return h("div", { class: "episode-head" },
    outcome(row),
    h("span", { class: "episode-title clip", title: `${row.env} ${row.split} task ${row.task_index} ${row.category ?? ""}` },
      h("b", {}, `${row.env} ${row.task_index}`), " ", h("span", { class: "muted" }, row.category || row.split)),
    h("span", { class: "muted clip episode-facts", title: facts }, facts),
    h("nav", { class: "episode-links", "aria-label": "Views of this episode" }, links.map(([name, label, sign, params]) =>
      h("a", { class: "button small", href: href(name, params), "aria-current": name === current ? "page" : null }, icon(sign, 13), label))));
}
