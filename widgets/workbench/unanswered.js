/** Notices that requests are not answered: the page outlives its Jupyter kernel. */

import { unserved } from "../shared/host.js";

export const PATIENCE_MS = 5000;

/**
 * The oldest request that Python, although idle, has not served; null if there is none.
 * @param {{ id: number }[]} open @param {string} status
 */
export function overdue(open, status) {
  return status === "idle" && open.length ? open[0].id : null;
}

/**
 * Watch a panel's requests.
 * @param {any} model @param {(isUnanswered: boolean) => void} tell @param {number} [patience]
 * @returns {{ look: () => void, destroy: () => void }} `look` after anything changed
 */
export function watchUnanswered(model, tell, patience = PATIENCE_MS) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {number | null} */
  let awaited = null;
  let isUnanswered = false;

  /** @param {boolean} isNow */
  function say(isNow) {
    if (isNow !== isUnanswered) tell((isUnanswered = isNow));
  }

  function look() {
    const now = overdue(unserved(model), model.get("state")?.status ?? "idle");
    if (now === awaited) return;
    clearTimeout(timer);
    awaited = now;
    say(false);
    if (now !== null) timer = setTimeout(() => say(true), patience);
  }

  return { look, destroy: () => clearTimeout(timer) };
}
