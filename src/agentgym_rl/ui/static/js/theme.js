// Dark and light. The choice is kept in this browser; without one the system's is followed.

const KEY = "agentgym-theme";

/** Return "dark" or "light". */
export function theme() {
  return document.documentElement.dataset.theme;
}

/** Take the other theme, and keep it. */
export function switchTheme() {
  const chosen = theme() === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // Storage is closed: the choice holds for this page.
  }
  show(chosen);
}

/** Call back whenever the theme changes; returns the way to stop. */
export function onTheme(callback) {
  addEventListener("themechange", callback);
  return () => removeEventListener("themechange", callback);
}

/** Follow the system's theme as long as none was chosen. */
export function followSystem() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    let chosen = null;
    try {
      chosen = localStorage.getItem(KEY);
    } catch {
      // Storage is closed: nothing was chosen.
    }
    if (!chosen) show(event.matches ? "dark" : "light");
  });
}

const NUM_SERIES = 11;

/** Return the colour of the n-th of several things, for a style. */
export function seriesColor(index) {
  return `var(--series-${index % NUM_SERIES})`;
}

/** Return its value in the present theme. */
export function lineColor(index) {
  return color(`--series-${index % NUM_SERIES}`);
}

/** Return the value of a colour of the theme, e.g. color("--accent"). */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function show(name) {
  document.documentElement.dataset.theme = name;
  dispatchEvent(new CustomEvent("themechange"));
}
