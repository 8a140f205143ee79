// Group compare: the episodes of one task side by side, round by round, and where they part.

import { get } from "../api.js";
import { empty, outcome, present, problemLine } from "../components.js";
import { fill, h, icon } from "../dom.js";
import { count, number, signed, words } from "../format.js";
import { go, href, integerOf, leave } from "../route.js";

/**
 * Give every cell the number of its branch: that of the first episode that acted the same so far.
 * Returns branches[round][episode], null after the episode's end.
 */
export function branchesOf(episodes) {
  const longest = Math.max(0, ...episodes.map((episode) => episode.rounds.length));
  const paths = episodes.map(() => "");
  const rows = [];
  for (let index = 0; index < longest; index += 1) {
    episodes.forEach(({ rounds }, column) => {
      if (rounds[index]) paths[column] += `\u0000${rounds[index].action ?? rounds[index].reply}`;
    });
    rows.push(episodes.map(({ rounds }, column) => (rounds[index] ? paths.indexOf(paths[column]) : null)));
  }
  return rows;
}

/** The colour of an episode is how it ended. */
function toneOf(episode) {
  if (episode.error || (episode.reward === null && !episode.success)) return "is-failed";
  return episode.success ? "is-success" : "is-failure";
}

class GroupView {
  constructor(root, context) {
    this.context = context;
    this.params = context.params;
    this.body = h("div", { class: "group-body" });
    fill(root, this.body);
    const { run, phase, step, group } = this.params;
    present(this.body, () => get("group", { run, phase, step, group }, { signal: context.signal }), (answer) => this.build(answer), { signal: context.signal, label: "Reading the group" })
      .then(() => this.answer && this.show());
  }

  build(answer) {
    this.answer = answer;
    const { episodes, common_rounds: common } = answer;
    if (!episodes.length) return empty("An empty group", "This group has no stored episodes.");
    this.drawHead(answer);
    const rewards = episodes.map((episode) => episode.reward).filter((reward) => reward !== null);
    const hasSpread = new Set(rewards).size > 1;
    const branches = branchesOf(episodes);
    const rows = [this.headRow(episodes)];
    branches.forEach((row, index) => {
      if (index === common) rows.push(this.partingRow(index));
      rows.push(this.roundRow(row, index));
    });
    if (common >= branches.length) rows.push(h("div", { class: "parting is-same", role: "row" }, h("span", { role: "cell" }, "All episodes took the same actions to the end.")));
    return [
      problemLine(answer),
      hasSpread ? null : h("p", { class: "notice" }, icon("info", 15), "All rewards of this group are the same: with advantages taken within the group it teaches nothing."),
      h("div", { class: "group-scroll", tabIndex: 0, role: "region", "aria-label": "Episodes side by side" },
        h("div", { class: "group-grid", role: "table", "aria-label": "Rounds of each episode", style: { "--columns": episodes.length } }, rows)),
    ];
  }

  drawHead({ task, episodes, common_rounds: common }) {
    const solved = episodes.filter((episode) => episode.success).length;
    const name = [task?.env, task?.task_index].filter((item) => item !== undefined && item !== null).join(" ") || "Group";
    fill(this.context.slot, h("div", { class: "episode-head" },
      h("span", { class: "episode-title clip" }, h("b", {}, name), " ", h("span", { class: "muted" }, task?.category ?? "")),
      h("span", { class: "muted clip" }, `${this.params.phase ?? "train"} step ${this.params.step} · group ${this.params.group} · ${solved} of ${count(episodes.length, "episode")} succeeded · ${common ? `the same for ${count(common, "round")}` : "they part with the first action"}`),
      h("nav", { class: "episode-links", "aria-label": "Other groups" },
        h("button", { type: "button", class: "button small", title: "Previous group ([)", onclick: () => this.turn(-1), disabled: Number(this.params.group) <= 0 }, icon("back", 13), "Previous"),
        h("button", { type: "button", class: "button small", title: "Next group (])", onclick: () => this.turn(1) }, "Next", icon("forward", 13)))));
  }

  headRow(episodes) {
    return h("div", { class: "group-row group-heads", role: "row" }, h("span", { class: "group-round", role: "columnheader" }, "round"),
      episodes.map((episode) => h("div", { class: `group-head ${toneOf(episode)}`, role: "columnheader" },
        h("a", { class: "link is-underlined", href: href("replay", { run: this.params.run, episode: episode.episode }) }, `episode ${episode.sample_index}`), " ", outcome(episode),
        h("div", { class: "faint clip", title: words(episode.stop_reason) }, `reward ${episode.reward === null ? "none" : signed(episode.reward)} · ${count(episode.num_rounds, "round")}`))));
  }

  partingRow(index) {
    return h("div", { class: "parting", role: "row" }, h("span", { role: "cell" }, index ? `Here they part, after ${count(index, "round")} in common` : "They part with the first action"));
  }

  roundRow(branches, index) {
    return h("div", { class: "group-row", role: "row", "data-round": index + 1 },
      h("span", { class: "group-round number", role: "rowheader" }, number(index + 1)),
      branches.map((branch, column) => (branch === null ? h("div", { class: "group-cell is-over", role: "cell" }) : this.cell(column, index, branch))));
  }

  cell(column, index, branch) {
    const { episodes } = this.answer;
    const episode = episodes[column];
    const round = episode.rounds[index];
    const address = href("replay", { run: this.params.run, episode: episode.episode, round: index + 1 });
    return h("div", { class: `group-cell ${toneOf(episode)}`, role: "cell" },
      branch === column ? null : h("span", { class: "group-branch" }, `as episode ${episodes[branch].sample_index}`),
      h("a", { class: "group-action mono", href: address, title: round.reply }, round.action ?? round.reply),
      round.reward ? h("span", { class: `group-reward ${round.reward > 0 ? "is-plus" : "is-minus"}` }, signed(round.reward)) : null,
      round.valid_action === false ? h("span", { class: "badge badge-warn" }, "invalid") : null,
      h("div", { class: "group-observation faint", title: round.observation }, round.observation));
  }

  /** Mark the round of the address. */
  show() {
    const round = integerOf(this.params.round, { fallback: 0 });
    for (const row of this.body.querySelectorAll(".group-row[data-round]")) row.classList.toggle("is-current", Number(row.dataset.round) === round);
    this.body.querySelector(".group-row.is-current")?.scrollIntoView({ block: "nearest" });
  }

  update(params) {
    this.params = params;
    if (this.answer) this.show();
  }

  step(change) {
    const last = Math.max(0, ...this.answer.episodes.map((episode) => episode.rounds.length));
    const round = integerOf(this.params.round, { fallback: 0 });
    this.context.set({ round: Math.max(1, Math.min(last, round + change)) }, { replace: true });
  }

  turn(change) {
    const group = Number(this.params.group) + change;
    if (group >= 0) go("group", { ...this.params, group, round: "" });
  }
}

export default {
  title: "Group",
  needsRun: true,
  identity: (params) => `${params.phase}|${params.step}|${params.group}`,
  mount(root, context) {
    const view = new GroupView(root, context);
    return {
      update: (params) => view.update(params),
      keys: [
        { keys: "j", label: "Next round", run: () => view.step(1) },
        { keys: "k", label: "Previous round", run: () => view.step(-1) },
        { keys: "]", label: "Next group", run: () => view.turn(1) },
        { keys: "[", label: "Previous group", run: () => view.turn(-1) },
        { keys: "Escape", label: "Back", run: () => leave("episodes", { run: context.params.run }) },
      ],
    };
  },
};
