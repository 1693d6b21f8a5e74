/** Notices that requests are not answered: the page outlives its Jupyter kernel. */

import { unserved } from "../shared/host.js";

const IDLE_PATIENCE_MS = 5000;
const BUSY_PATIENCE_MS = 30_000; // a step that runs may hold Python up

/** How long a request may lie. @param {any} model */
function patienceOf(model) {
  const status = model.get("state")?.status ?? "idle";
  return status === "idle" ? IDLE_PATIENCE_MS : BUSY_PATIENCE_MS;
}

/**
 * Watch a panel's requests, also while something is measured: a kernel that ends says no more.
 * @param {any} model @param {(isUnanswered: boolean) => void} tell
 * @returns {{ look: () => void, destroy: () => void }} `look` after anything changed
 */
export function watchUnanswered(model, tell) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {number | undefined} */
  let awaited;
  let patience = 0;
  let isUnanswered = false;

  /** @param {boolean} isNow */
  function say(isNow) {
    if (isNow !== isUnanswered) tell((isUnanswered = isNow));
  }

  function look() {
    const [oldest, now] = [unserved(model)[0]?.id, patienceOf(model)];
    if (oldest === awaited && now === patience) return;
    clearTimeout(timer);
    [awaited, patience] = [oldest, now];
    say(false);
    if (awaited !== undefined) timer = setTimeout(() => say(true), patience);
  }

  return { look, destroy: () => clearTimeout(timer) };
}
