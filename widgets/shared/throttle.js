/** Throttle messages: the first at once, then the latest at intervals, the last one always. */

/**
 * @template T @param {number} everyMs @param {(value: T) => void} send
 * @returns {{ tell: (value: T) => void, drop: () => void }} `drop` forgets what was not yet sent
 */
export function throttle(everyMs, send) {
  let timer = /** @type {ReturnType<typeof setTimeout> | null} */ (null);
  let waiting = /** @type {{ value: T } | null} */ (null);

  function tick() {
    timer = null;
    if (!waiting) return;
    const { value } = waiting;
    waiting = null;
    timer = setTimeout(tick, everyMs);
    send(value);
  }

  return {
    tell(value) {
      waiting = { value };
      if (timer === null) tick();
    },
    drop() {
      waiting = null;
    },
  };
}
