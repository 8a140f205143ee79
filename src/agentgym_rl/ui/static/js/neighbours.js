// Which episodes the list showed last, so that a replay can go to the next one of the same list.

let list = { run: null, episodes: [] };

/** Keep the episodes of the page that is shown. */
export function rememberList(run, episodes) {
  list = { run, episodes };
}

/** Return the episode `change` places further in the list; null where there is none. */
export function neighbour(run, episode, change) {
  if (list.run !== run) return null;
  const index = list.episodes.indexOf(episode);
  return index < 0 ? null : list.episodes[index + change] ?? null;
}
