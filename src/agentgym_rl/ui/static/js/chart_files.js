// What a chart shows, saved as a file: numbers as CSV, the picture as PNG.

import { plotText, plotly } from "./plot.js";

/** Save the numbers of a metric: a line for each run and step. */
export function saveCsv(name, series) {
  const lines = [["run", "step", "seconds", "tokens", name, "low", "high"]];
  for (const { run, curves } of series) {
    const evals = curves.evals[name];
    const sums = { "time/step_s": [], "rollout/tokens": [] };
    for (const [metric, list] of Object.entries(sums)) {
      const values = curves.values[metric] ?? [];
      let total = 0;
      if (values.some((value) => value !== null)) for (const value of values) list.push((total += value ?? 0));
    }
    const spent = (metric, step) => sums[metric][curves.steps.findLastIndex((other) => other <= step)] ?? "";
    (evals?.steps ?? curves.steps).forEach((step, at) => {
      const value = (evals?.values ?? curves.values[name])[at];
      if (value !== null) lines.push([run, step, spent("time/step_s", step), spent("rollout/tokens", step), value, evals?.low[at] ?? "", evals?.high[at] ?? ""]);
    });
  }
  const text = lines.map((line) => line.map(cell).join(",")).join("\r\n");
  download(`${fileName(name)}.csv`, URL.createObjectURL(new Blob([`${text}\r\n`], { type: "text/csv" })));
}

/** A cell of CSV. A spreadsheet takes a text that begins with one of these signs for a formula. */
function cell(value) {
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Save the picture of a chart at twice its size. */
export async function savePng(name, chart) {
  const library = await plotly();
  const ground = getComputedStyle(document.documentElement).getPropertyValue("--panel").trim();
  const { clientWidth: width, clientHeight: height } = chart.node;
  // By itself a picture must say what it shows and whose curves these are.
  const words = { title: { text: plotText(name), font: { size: 13 } }, showlegend: true, legend: { orientation: "h", y: -0.18 } };
  const copy = { data: chart.node.data, layout: { ...chart.node.layout, ...words, margin: { l: 48, r: 12, t: 40, b: 60 }, paper_bgcolor: ground } };
  download(`${fileName(name)}.png`, await library.toImage(copy, { format: "png", width: Math.max(width, 640), height: Math.max(height, 360), scale: 2 }));
}

function fileName(name) {
  return name.replaceAll(/[^A-Za-z0-9_.-]+/g, "-").replaceAll(/^-+|-+$/g, "") || "chart";
}

function download(name, address) {
  const link = document.createElement("a");
  link.download = name;
  link.href = address;
  link.click();
  if (address.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
