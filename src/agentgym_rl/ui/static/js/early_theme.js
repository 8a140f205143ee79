// Sets the chosen theme before the first paint, so that the page never flashes in the other one.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("agentgym-theme");
  } catch {
    // Storage is closed (a private window): the system's theme is taken.
  }
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = chosen ?? (isDark ? "dark" : "light");
})();
