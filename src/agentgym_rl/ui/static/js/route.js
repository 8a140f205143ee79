// Deep links: `#/view?name=value`. The address is the state of the page, so that Back, reload and a
// link sent to somebody show the same thing.

/** Return {view, params} of an address such as "#/replay?run=a&round=2". */
export function parseHash(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const params = {};
  for (const [name, value] of new URLSearchParams(query)) params[name] = value;
  return { view: path || "runs", params };
}

/** Return the address of a view; empty values are left out. */
export function href(view, params = {}) {
  const kept = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  // Commas, slashes and colons are harmless after the hash and make links that one can read.
  const readable = query.replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%3A", ":");
  return `#/${view}${readable ? `?${readable}` : ""}`;
}

let numOpened = 0;
addEventListener("hashchange", (event) => {
  numOpened += event.oldURL ? 1 : 0; // replaced addresses send the event without one
});

/** Go back to where the user came from; to a view of our own where the page began here. */
export function leave(view, params) {
  if (numOpened > 0) {
    numOpened -= 2; // going back sends the event too
    history.back();
  } else {
    go(view, params);
  }
}

/** Show another address; `replace` leaves no entry for Back (play positions, text being typed). */
export function go(view, params = {}, { replace = false } = {}) {
  const address = href(view, params);
  if (address === location.hash) return;
  if (replace) {
    history.replaceState(null, "", address);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = address;
  }
}

/** Return the names in a list such as "a,b"; a comma in a name is written "%2C". */
export function listOf(text) {
  return text ? text.split(",").filter(Boolean).map(decodeURIComponent) : [];
}

/** Return the list of names as one value of the address. */
export function joined(names) {
  return names.map((name) => name.replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");
}

/** Return a whole number from the address, held between two others; `fallback` where there is none. */
export function integerOf(text, { fallback, min = -Infinity, max = Infinity }) {
  const value = Number.parseInt(text ?? "", 10);
  return Math.min(max, Math.max(min, Number.isNaN(value) ? fallback : value));
}
