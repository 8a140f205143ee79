// Talking to the server: JSON in, JSON out, errors in one shape.

/** A request that failed; `message` can be shown as it is. */
export class ApiError extends Error {
  constructor(message, { type = "error", status = 0 } = {}) {
    super(message);
    this.type = type;
    this.status = status;
  }
}

/** GET `/api/<path>`; parameters that are empty are left out. */
export function get(path, params = {}, { signal } = {}) {
  const kept = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(kept).toString();
  return request(`/api/${path}${query ? `?${query}` : ""}`, { signal });
}

/** POST a JSON object to `/api/<path>`; `isLast`: it is sent even though the page is being left. */
export function post(path, body, { signal, isLast = false } = {}) {
  return request(`/api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    keepalive: isLast,
    signal,
  });
}

async function request(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is `agentgym ui` still running?", { type: "offline" });
  }
  const text = await response.text();
  let answer = null;
  try {
    answer = JSON.parse(text);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(`The server answered ${response.status} without JSON.`, { status: response.status });
  }
  if (!response.ok) {
    const { type, message } = answer.error ?? {};
    throw new ApiError(message ?? `The server answered ${response.status}.`, { type, status: response.status });
  }
  return answer;
}

const KEPT_ANSWERS = 64;
const answers = new Map();

/** GET what does not change once it is written (an episode), remembering the latest. */
export function getOnce(path, params) {
  return once(path, params, get);
}

/** POST what is always answered the same (a state of an episode), remembering the latest. */
export function postOnce(path, params) {
  return once(path, params, post);
}

function once(path, params, ask) {
  const key = `${path}?${new URLSearchParams(params)}`;
  const known = answers.get(key);
  if (known) return known;
  const answer = ask(path, params);
  answers.set(key, answer);
  answer.catch(() => answers.delete(key));
  if (answers.size > KEPT_ANSWERS) answers.delete(answers.keys().next().value);
  return answer;
}
