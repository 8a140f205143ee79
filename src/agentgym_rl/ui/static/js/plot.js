// Charts: plotly.js, loaded when the first chart is drawn, in the colours of the theme.

import { h, visible } from "./dom.js";
import { color, onTheme } from "./theme.js";

const CONFIG = { displayModeBar: false, responsive: false, doubleClick: "reset", showTips: false };
let loading = null;

/** Return plotly.js. */
export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/vendor/plotly.min.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = null;
      reject(new Error("The plots' library did not load."));
    };
    document.head.append(script);
  });
  return loading;
}

/** Return a text as plotly shows it: in its texts a few HTML tags mean something. */
export function plotText(text) {
  return visible(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** Return a colour of the theme ("#rrggbb") with an opacity. */
export function faded(hex, opacity) {
  const value = Number.parseInt(hex.slice(1), 16);
  return `rgba(${value >> 16}, ${(value >> 8) & 255}, ${value & 255}, ${opacity})`;
}

/**
 * One chart. `update(make)` draws what `make()` returns, {traces, layout, label}; it is called
 * again when the theme changes. Charts out of sight are drawn when they come into view.
 */
export class Chart {
  constructor({ height = 200, onclick = null } = {}) {
    this.node = h("div", { class: "chart", role: "img", "aria-label": "Chart, drawn when it is in view", style: { height: `${height}px` } });
    this.height = height;
    this.onclick = onclick;
    this.make = null;
    this.isInView = false;
    this.isDrawn = false;
    this.stopTheme = onTheme(() => this.#draw());
    this.seen = new IntersectionObserver((entries) => {
      this.isInView = entries.at(-1).isIntersecting;
      if (this.isInView && this.isStale) this.#draw();
    }, { rootMargin: "200px" });
    this.seen.observe(this.node);
    this.resized = new ResizeObserver(() => this.#resize());
    this.resized.observe(this.node);
  }

  update(make) {
    this.make = make;
    this.isStale = true;
    if (this.isInView) this.#draw();
  }

  dispose() {
    this.stopTheme();
    this.seen.disconnect();
    this.resized.disconnect();
    if (this.isDrawn) window.Plotly.purge(this.node);
    this.make = null;
  }

  async #draw() {
    if (!this.make) return;
    const library = await plotly().catch(() => null); // the server went away: drawn after the next answer
    if (!library || !this.make || !this.node.isConnected) return;
    this.isStale = false;
    const { traces, layout, label } = this.make();
    if (label) this.node.setAttribute("aria-label", label);
    await library.react(this.node, traces, merge(baseLayout(this.height), layout ?? {}), CONFIG);
    if (!this.isDrawn && this.onclick) this.node.on("plotly_click", (event) => this.onclick(event.points[0]));
    this.isDrawn = true;
  }

  #resize() {
    if (!this.isDrawn || !this.node.clientWidth || this.node.clientWidth === this.width) return;
    this.width = this.node.clientWidth;
    window.Plotly.relayout(this.node, { width: this.width });
  }
}

function baseLayout(height) {
  const axis = {
    gridcolor: color("--line-soft"), linecolor: color("--line"), zerolinecolor: color("--line"), tickfont: { size: 10.5, color: color("--faint") },
    ticks: "", automargin: true, showspikes: false,
  };
  return {
    height,
    autosize: true,
    margin: { l: 36, r: 8, t: 8, b: 26 },
    font: { family: "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", size: 11, color: color("--muted") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    hovermode: "x unified",
    hoverlabel: { bgcolor: color("--raised"), bordercolor: color("--line"), font: { color: color("--text"), size: 11.5 }, namelength: 48 },
    xaxis: { ...axis, showgrid: false, hoverformat: ",d" },
    yaxis: { ...axis, nticks: 5 },
    dragmode: "zoom",
    uirevision: "keep",
  };
}

function merge(base, changes) {
  const merged = { ...base };
  for (const [name, value] of Object.entries(changes)) {
    const isObject = value && typeof value === "object" && !Array.isArray(value);
    merged[name] = isObject && base[name] ? merge(base[name], value) : value;
  }
  return merged;
}
