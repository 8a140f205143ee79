// The frame around the views: navigation, choice of the run, theme, shortcuts, and which view the
// address asks for. A view is {title, needsRun, mount(root, context)}; `mount` returns
// {update?(params), keys?, dispose?()}. As long as only parameters change, `update` is called.

import { empty, failure, iconButton, loading, noRuns } from "./components.js";
import { showPicker } from "./dialog.js";
import { fill, h, icon, setText } from "./dom.js";
import { ago } from "./format.js";
import { bind, listen, showHelp } from "./keys.js";
import { go, href, parseHash } from "./route.js";
import { runList } from "./run_store.js";
import { followSystem, onTheme, switchTheme, theme } from "./theme.js";
import diagnosis from "./views/diagnosis.js";
import evaluations from "./views/evaluations.js";
import episodes from "./views/episodes.js";
import group from "./views/group.js";
import play from "./views/play.js";
import replay from "./views/replay.js";
import run from "./views/run.js";
import runs, { progressOf } from "./views/runs.js";
import time from "./views/time.js";
import tokens from "./views/tokens.js";

const VIEWS = { runs, run, evaluations, episodes, replay, tokens, group, diagnosis, time, play };
const NAVIGATION = [
  ["runs", "Runs", "g r"], ["run", "Run", "g i"], ["evaluations", "Evaluations", "g v"], ["episodes", "Episodes", "g e"], ["diagnosis", "Diagnosis", "g d"],
  ["time", "Time", "g t"], ["play", "Play", "g p"],
];
const PARENT = { replay: "episodes", tokens: "episodes", group: "episodes" };

const main = h("main", { id: "main", tabIndex: 0 }); // it may scroll, so the keyboard must reach it
const heading = h("h1", { class: "page-title" });
const runButton = h("button", { type: "button", class: "run-button", hidden: true, onclick: chooseRun });
const liveText = h("span", { class: "live-text", role: "status" });
const themeButton = iconButton("moon", "Switch between dark and light", switchTheme, { title: "Dark or light (t)" });
const links = new Map();
let shown = null;

function frame() {
  const skip = h("button", { type: "button", class: "skip", onclick: () => main.focus() }, "Skip to content");
  const navigation = h("nav", { class: "side", "aria-label": "Views" },
    h("a", { class: "brand", href: "#/runs", "aria-label": "AgentGym-RL, runs" },
      h("img", { src: "/icon.svg", alt: "", width: "22", height: "22" }), h("span", {}, "AgentGym-RL")),
    h("ul", {}, NAVIGATION.map(([name, label, keys]) => {
      const link = h("a", { href: `#/${name}`, title: `${label} (${keys})` }, icon(name), h("span", {}, label));
      links.set(name, link);
      return h("li", {}, link);
    })),
    h("div", { class: "side-foot" },
      liveText,
      h("div", { class: "row" }, themeButton,
        h("button", { type: "button", class: "icon-button", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)", onclick: showHelp }, "?"))));
  const top = h("header", { class: "top" }, heading, runButton, h("div", { class: "top-slot", id: "top-slot" }));
  fill(document.getElementById("app"), skip, navigation, h("div", { class: "page" }, top, main));
}

/** Show what the address asks for. */
function show() {
  const { view: name, params } = parseHash(location.hash);
  const view = VIEWS[name];
  if (!view) {
    unmount();
    runButton.hidden = true;
    setText(heading, "No such page");
    for (const link of links.values()) link.removeAttribute("aria-current");
    main.className = "view";
    fill(main, empty("There is no such page", `Nothing is called “${name}” here.`, h("a", { class: "button", href: "#/runs" }, "Go to the runs")));
    return;
  }
  if (view.needsRun && !params.run) {
    showPreferredRun(name, params);
    return;
  }
  runList.lastShown = params.run ?? runList.lastShown;
  drawFrame(name, params);
  const identity = `${name}|${view.needsRun ? params.run : ""}|${view.identity?.(params) ?? ""}`;
  if (shown?.identity === identity && shown.handle.update) {
    shown.params = params;
    shown.handle.update(params);
    return;
  }
  unmount();
  mount(view, name, params, identity);
}

function mount(view, name, params, identity) {
  const abort = new AbortController();
  const context = {
    params,
    signal: abort.signal,
    slot: document.getElementById("top-slot"),
    set: (changes, options) => go(name, { ...shown.params, ...changes }, options),
  };
  shown = { identity, abort, handle: {}, params, name };
  main.className = `view view-${name}`;
  main.scrollTop = 0;
  shown.handle = view.mount(main, context) ?? {};
  bind(view.title, shown.handle.keys ?? []);
}

function unmount() {
  if (!shown) return;
  shown.abort.abort();
  shown.handle.dispose?.();
  bind(VIEWS[shown.name].title, []);
  fill(document.getElementById("top-slot"));
  fill(main);
  shown = null;
}

/** A view of one run, without the run: take the one that is most likely meant. */
function showPreferredRun(name, params) {
  const preferred = runList.preferred();
  if (preferred) {
    go(name, { run: preferred.run, ...params }, { replace: true });
    return;
  }
  unmount();
  drawFrame(name, params);
  main.className = "view";
  if (runList.error) fill(main, failure(runList.error, () => runList.refresh().then(show)));
  else if (runList.runs) fill(main, noRuns());
  else {
    fill(main, loading("Looking for runs"));
    const stop = runList.subscribe(() => { stop(); show(); });
  }
}

function drawFrame(name, params) {
  const current = PARENT[name] ?? name;
  for (const [key, link] of links) {
    const run = params.run ?? null;
    link.setAttribute("href", href(key, VIEWS[key].needsRun && run ? { run } : {}));
    if (key === current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[name].title}${params.run ? ` · ${params.run}` : ""} · AgentGym-RL`;
  runButton.hidden = !VIEWS[name].needsRun;
  setText(heading, VIEWS[name].title);
  heading.classList.toggle("visually-hidden", VIEWS[name].needsRun);
  drawRunButton();
}

function drawRunButton() {
  const { params } = parseHash(location.hash);
  if (!params.run) return;
  const found = runList.find(params.run);
  const key = `${params.run}|${found?.status}`;
  if (runButton.dataset.key === key) return;
  runButton.dataset.key = key;
  runButton.setAttribute("aria-label", `Run ${params.run}, choose another`);
  fill(runButton, h("span", { class: `dot dot-${found?.status ?? "empty"}`, title: found?.status ?? "" }), h("span", { class: "run-name" }, params.run), icon("swap", 14));
}

function chooseRun() {
  const { view: name, params } = parseHash(location.hash);
  const target = VIEWS[name]?.needsRun ? PARENT[name] ?? name : "run";
  const items = (runList.runs ?? []).map((item) => ({
    value: item.run,
    label: item.run,
    detail: [item.env, item.algorithm, progressOf(item), ago(item.updated_at)].filter(Boolean).join(" · "),
    mark: h("span", { class: `dot dot-${item.status}` }),
  }));
  showPicker("Choose a run", items, (chosen) => chosen !== params.run && go(target, { run: chosen }));
}

function drawStatus() {
  const running = (runList.runs ?? []).filter((item) => item.status === "running").length;
  liveText.classList.toggle("is-offline", Boolean(runList.error));
  setText(liveText, runList.error ? "server offline" : running ? `${running} running` : "");
  drawRunButton();
}

function drawTheme() {
  fill(themeButton, icon(theme() === "dark" ? "sun" : "moon"));
}

function focusSearch() {
  const search = main.querySelector("input[type=search]");
  search?.focus();
  search?.select();
}

frame();
followSystem();
onTheme(drawTheme);
drawTheme();
bind("Everywhere", [
  ...NAVIGATION.map(([name, label, keys]) => ({ keys, label, run: () => { location.hash = links.get(name).getAttribute("href"); } })),
  { keys: "o", label: "Choose a run", run: chooseRun },
  { keys: "/", label: "Search", run: focusSearch },
  { keys: "t", label: "Dark or light", run: switchTheme },
  { keys: "?", label: "This help", run: showHelp },
]);
listen();
addEventListener("hashchange", show);
runList.subscribe(drawStatus);
runList.start();
show();
