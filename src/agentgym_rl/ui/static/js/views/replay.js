// Trajectory replay: the conversation round by round, with the environment's own state beside it.

import { getOnce, postOnce } from "../api.js";
import { empty, iconButton, noEpisode, present, problemLine, select, stackedBar } from "../components.js";
import { conversation, part } from "../conversation.js";
import { fill, h, icon, setText } from "../dom.js";
import { episodeHead } from "../episode_head.js";
import { duration, signed } from "../format.js";
import { highlight } from "../marks.js";
import { neighbour } from "../neighbours.js";
import { go, integerOf, leave } from "../route.js";
import { drawnDetails } from "../drawn_details.js";
import { seriesColor } from "../theme.js";

/** Episodes whose actions the user asked to have played again; their other rounds follow unasked. */
const recomputed = new Set();

const ROUND_MS = 1200;
const SPEEDS = [["0.5", "½×"], ["1", "1×"], ["2", "2×"], ["4", "4×"]];

class ReplayView {
  constructor(root, context) {
    this.context = context;
    this.params = context.params;
    this.body = h("div", { class: "replay-body" });
    fill(root, this.body);
    const { run, episode } = this.params;
    present(this.body, () => getOnce("episode", { run, episode }), (answer) => this.build(answer), { signal: context.signal, label: "Opening the episode" })
      .then(() => this.episode && (this.show({ isFirst: true }), this.showFound()));
  }

  build(episode) {
    this.episode = episode;
    this.last = episode.rounds.length;
    fill(this.context.slot, episodeHead(episode, { run: this.params.run, current: "replay" }));
    this.talk = h("section", { class: "conversation", "aria-label": "Conversation", tabIndex: 0 }, conversation(episode));
    this.talk.addEventListener("click", (event) => this.onCard(event));
    this.cards = [...this.talk.querySelectorAll("[data-position]")];
    this.stateTitle = h("h2", {});
    this.state = h("div", { class: "state-body" });
    this.state.addEventListener("load", () => this.keepInView(), true); // of a picture
    this.stored = h("div", { class: "state-stored" });
    this.timing = h("div", { class: "state-timing" });
    return [this.controls(), h("div", { class: "replay-panes" }, this.talk,
      h("aside", { class: "state-pane panel", "aria-label": "State of the environment", tabIndex: 0 },
        h("div", { class: "panel-head" }, this.stateTitle, h("span", { class: "grow" }), this.rewardText = h("span", { class: "muted number" })), this.timing, this.state, this.stored))];
  }

  controls() {
    this.playButton = iconButton("play", "Play", () => this.togglePlay(), { title: "Play or pause (Space)", className: "play-button" });
    this.scrubber = h("input", {
      type: "range", min: "0", max: String(this.last), step: "1", "aria-label": "Round", class: "scrubber", oninput: () => this.go(Number(this.scrubber.value)),
    });
    this.place = h("output", { class: "number replay-place" });
    this.speed = "1";
    return h("div", { class: "replay-controls", role: "toolbar", "aria-label": "Replay" },
      iconButton("first", "To the start", () => this.go(0), { title: "To the start (Home)" }),
      iconButton("back", "Back one round", () => this.step(-1), { title: "Back one round (←)" }),
      this.playButton,
      iconButton("forward", "Forward one round", () => this.step(1), { title: "Forward one round (→)" }),
      iconButton("last", "To the end", () => this.go(this.last), { title: "To the end (End)" }),
      h("div", { class: "scrub" }, this.strip(), this.scrubber),
      this.place,
      select("Speed", SPEEDS, "1", (value) => { this.speed = value; }));
  }

  /** One cell per round over the scrubber: height and colour show the reward, a dot an invalid action. */
  strip() {
    const most = Math.max(...this.episode.rounds.map((round) => Math.abs(round.reward ?? 0)), 1e-9);
    this.cells = this.episode.rounds.map((round) => h("span", { class: `cell ${round.reward > 0 ? "is-plus" : round.reward < 0 ? "is-minus" : ""} ${round.valid_action === false ? "is-invalid" : ""}` },
      h("i", { style: { height: `${Math.round((100 * Math.abs(round.reward ?? 0)) / most)}%` } })));
    return h("div", { class: "strip", "aria-hidden": "true" }, this.cells);
  }

  /** Mark what the list was searched for, and bring the first place of it into view. */
  showFound() {
    const first = highlight(this.talk, this.params.find);
    const card = first?.closest("[data-position]");
    if (card && this.params.round === undefined) scrollWithin(this.talk, card, true);
  }

  get position() {
    return integerOf(this.params.round, { fallback: 0, min: 0, max: this.last });
  }

  update(params) {
    this.params = params;
    if (this.episode) this.show();
  }

  go(position, { replace = true } = {}) {
    const held = Math.max(0, Math.min(this.last ?? 0, position));
    this.context.set({ round: held }, { replace });
  }

  step(change) {
    this.pause();
    this.go(this.position + change);
  }

  togglePlay() {
    if (this.timer) this.pause();
    else this.play();
  }

  play() {
    if (!this.last) return;
    if (this.position >= this.last) this.go(0);
    fill(this.playButton, icon("pause"));
    this.playButton.setAttribute("aria-label", "Pause");
    const tick = () => {
      this.go(this.position + 1);
      if (this.position >= this.last) this.pause();
      else this.timer = setTimeout(tick, ROUND_MS / Number(this.speed));
    };
    this.timer = setTimeout(tick, ROUND_MS / Number(this.speed));
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    if (!this.playButton) return;
    fill(this.playButton, icon("play"));
    this.playButton.setAttribute("aria-label", "Play");
  }

  onCard(event) {
    const card = event.target.closest("[data-position]");
    if (card && !getSelection().toString()) this.go(Number(card.dataset.position), { replace: false });
  }

  show({ isFirst = false } = {}) {
    const { position } = this;
    this.scrubber.value = String(position);
    this.scrubber.setAttribute("aria-valuetext", position ? `round ${position} of ${this.last}` : "start");
    setText(this.place, position ? `${position} / ${this.last}` : `start / ${this.last}`);
    this.cells.forEach((cell, index) => cell.classList.toggle("is-past", index < position));
    for (const card of this.cards) {
      const at = Number(card.dataset.position);
      card.classList.toggle("is-current", at === position);
      card.classList.toggle("is-later", at > position);
    }
    const card = this.cards[position];
    if (!(isFirst && !position)) scrollWithin(this.talk, card, isFirst);
    this.showState(position);
  }

  showState(position) {
    const round = this.episode.rounds[position - 1];
    const earned = this.episode.rounds.slice(0, position).filter((other) => other.try === round?.try).reduce((sum, other) => sum + (other.reward ?? 0), 0);
    setText(this.stateTitle, position ? `After round ${position}` : "At the start");
    setText(this.rewardText, position ? `reward ${signed(round.reward)} · so far ${signed(earned)}` : "");
    const parts = Object.entries(round?.seconds ?? {}).map(([name, value], index) => ({ name, value: value ?? 0, color: seriesColor(index) }));
    fill(this.timing, stackedBar("Time of this round", parts, duration));
    fill(this.stored, round ? part("observation", round.observation) : null);
    const next = this.episode.rounds[position];
    if (this.isRecomputed) this.recompute(position);
    else if (this.episode.rounds.some((other) => other.picture)) fill(this.state, this.picture(next));
    else fill(this.state, this.offer());
  }

  /** What the model saw, with a frame around what it acted on next. */
  picture(round) {
    if (!round?.picture) return h("p", { class: "state-offer muted" }, "No picture was kept here: the episode is over, or it had none.");
    const { run, episode } = this.params;
    const mark = h("span", { class: "picture-mark", hidden: true });
    const image = h("img", { class: "state-picture", src: `/api/picture?${new URLSearchParams({ run, episode, name: round.picture })}`, alt: "The page that the model saw" });
    image.addEventListener("load", () => outline(mark, round.acted_on, image));
    return h("div", { class: "state-screen" },
      h("div", { class: "picture-frame" }, image, mark),
      h("p", { class: "muted" }, round.acted_on ? "Outlined: what the next action is on." : "The next action is on no element of this screen."));
  }

  get isRecomputed() {
    return recomputed.has(`${this.params.run}|${this.params.episode}`);
  }

  /** The way to the environment's own state. It runs the environment, so only the user may ask for it. */
  offer() {
    const { replay_problem: problem } = this.episode;
    if (problem) return h("p", { class: "state-offer muted text" }, problem);
    return h("div", { class: "state-offer" },
      h("button", { type: "button", class: "button", onclick: () => this.consent() }, icon("eye", 14), "Show the environment's state"),
      h("p", { class: "muted" }, "Plays the stored actions again, here and in the other rounds of this episode."));
  }

  consent() {
    if (!this.episode || this.episode.replay_problem) return;
    recomputed.add(`${this.params.run}|${this.params.episode}`);
    fill(this.state);
    this.recompute(this.position);
  }

  recompute(position) {
    const { run, episode } = this.params;
    const load = () => postOnce("state", { run, episode, round: position });
    // What is stored of the round stands below; only a start has no other text.
    const show = (answer) => stateOf(position ? { ...answer, observation: null } : answer, { isAlone: !position });
    present(this.state, load, show, { signal: this.context.signal, label: "Playing the actions again" }).then(() => this.keepInView());
  }

  /** What stands over the conversation, on a phone, has another height now. */
  keepInView() {
    if (!this.context.signal.aborted) scrollWithin(this.talk, this.cards[this.position], true);
  }

  open(change) {
    const next = neighbour(this.params.run, this.params.episode, change);
    if (next) go("replay", { run: this.params.run, episode: next, find: this.params.find });
  }
}

/** The environment's picture, its state as values, and the observation as it was given. */
export function stateOf(answer, { isAlone = true } = {}) {
  const state = drawnDetails(answer.details);
  return [
    problemLine(answer),
    answer.picture ? h("img", { class: "state-picture", src: answer.picture, alt: "Picture of the environment" }) : null,
    state,
    answer.observation ? h("div", { class: "part kind-observation" }, h("span", { class: "part-label" }, "observation"), h("div", { class: "part-text text" }, answer.observation)) : null,
    isAlone && !answer.picture && !state && !answer.observation ? empty("Nothing to see", "The environment shows no state here.") : null,
  ];
}

/** Put the frame where an action took place, as shares of the picture; it may lie off the screen. */
function outline(mark, place, image) {
  const [x, y, width, height] = place ?? [];
  if (!(width > 0 && height > 0) || x + width < 0 || y + height < 0 || x > image.naturalWidth || y > image.naturalHeight) return;
  const share = (value, of) => `${(100 * value) / of}%`;
  Object.assign(mark.style, {
    left: share(x, image.naturalWidth), top: share(y, image.naturalHeight), width: share(width, image.naturalWidth), height: share(height, image.naturalHeight),
  });
  mark.hidden = false;
}

/**
 * Bring a card into the view of its own list, without moving the page. Cards out of view have
 * heights that are guessed, so after a jump the place may be another one: it is looked at again.
 */
function scrollWithin(list, card, isInstant, again = 6) {
  const top = card.getBoundingClientRect().top - list.getBoundingClientRect().top + list.scrollTop;
  const isSeen = top >= list.scrollTop && top + Math.min(card.offsetHeight, list.clientHeight * 0.7) <= list.scrollTop + list.clientHeight;
  if (!isSeen) list.scrollTo({ top: Math.max(0, top - 12), behavior: isInstant ? "instant" : "smooth" });
  if (isInstant && again) requestAnimationFrame(() => scrollWithin(list, card, isInstant, again - 1));
}

export default {
  title: "Replay",
  needsRun: true,
  identity: (params) => params.episode,
  mount(root, context) {
    if (!context.params.episode) {
      fill(root, noEpisode());
      return {};
    }
    const view = new ReplayView(root, context);
    return {
      update: (params) => view.update(params),
      keys: [
        { keys: "Space", label: "Play or pause", run: () => view.togglePlay() },
        { keys: "ArrowRight", label: "Forward one round", run: () => view.step(1) },
        { keys: "ArrowLeft", label: "Back one round", run: () => view.step(-1) },
        { keys: "Home", label: "To the start", run: () => view.go(0) },
        { keys: "End", label: "To the end", run: () => view.go(view.last) },
        { keys: "]", label: "Next episode of the list", run: () => view.open(1) },
        { keys: "[", label: "Previous episode of the list", run: () => view.open(-1) },
        { keys: "s", label: "Show the environment's state", run: () => view.consent() },
        { keys: "v", label: "Token view", run: () => go("tokens", { run: context.params.run, episode: context.params.episode }) },
        { keys: "c", label: "Compare the group", run: () => view.episode && go("group", { run: context.params.run, phase: view.episode.phase, step: view.episode.step, group: view.episode.group }) },
        { keys: "Escape", label: "Back to the list", run: () => leave("episodes", { run: context.params.run }) },
      ],
      dispose() {
        highlight(root, null);
        view.pause();
      },
    };
  },
};
