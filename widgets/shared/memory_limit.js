/** The memory limit of a panel: its views show one, and any of them can move it. No DOM. */

/**
 * `set` moves it; a gesture that goes on is not done. `watch` returns what ends the watching.
 * @typedef {{ bytes: number | null, set: (bytes: number | null, isDone: boolean) => void,
 *   watch: (tell: (isDone: boolean) => void) => () => void }} MemoryLimit
 */

/** @type {WeakMap<object, MemoryLimit>} */
const LIMITS = new WeakMap();

/** The limit that the views of a model share. @param {object} model @returns {MemoryLimit} */
export function memoryLimit(model) {
  const known = LIMITS.get(model);
  if (known) return known;
  /** @type {Set<(isDone: boolean) => void>} */
  const watchers = new Set();
  /** @type {MemoryLimit} */
  const limit = {
    bytes: null,
    set(bytes, isDone) {
      if (bytes === limit.bytes && !isDone) return;
      limit.bytes = bytes;
      for (const tell of [...watchers]) tell(isDone);
    },
    watch(tell) {
      watchers.add(tell);
      return () => void watchers.delete(tell);
    },
  };
  LIMITS.set(model, limit);
  return limit;
}

/**
 * Where a limit stands between two sizes, from 0 to 1, and whether it is beyond them.
 * @param {number} bytes @param {number} low @param {number} high
 */
export function limitPlace(bytes, low, high) {
  const share = (bytes - low) / Math.max(1, high - low);
  return { share: Math.min(1, Math.max(0, share)), isAbove: share > 1, isBelow: share < 0 };
}

/**
 * The limit after a key: an arrow moves it by a hundredth of what is drawn, a page by a tenth.
 * @param {string} key @param {number} bytes @param {number} low @param {number} high
 * @returns {number | null} null for other keys
 */
export function limitAfterKey(key, bytes, low, high) {
  const hundredth = (high - low) / 100;
  /** @type {Record<string, number>} */
  const moves = {
    ArrowUp: 1,
    ArrowRight: 1,
    ArrowDown: -1,
    ArrowLeft: -1,
    PageUp: 10,
    PageDown: -10,
  };
  if (key === "Home") return Math.max(1, Math.round(low));
  if (key === "End") return Math.round(high);
  if (!(key in moves)) return null;
  const from = Math.min(high, Math.max(low, bytes));
  return Math.round(Math.min(high, Math.max(low, 1, from + moves[key] * hundredth)));
}
