/** One Tab stop for a row or a column of buttons, with arrow keys between them. */

/**
 * @param {HTMLElement} box @param {string} selector of the buttons in it
 * @param {boolean} [isColumn] whether up and down move too
 * @returns {(button: HTMLElement | null) => void} makes a button the one that Tab stops at
 */
export function rovingTabindex(box, selector, isColumn = false) {
  const buttons = () => /** @type {HTMLElement[]} */ ([...box.querySelectorAll(selector)]);
  /** @param {HTMLElement | null} button */
  const stopAt = (button) =>
    buttons().forEach((other) => (other.tabIndex = other === button ? 0 : -1));
  box.addEventListener("keydown", (event) => {
    const all = buttons();
    const next = steppedBy(
      event.key,
      all.indexOf(/** @type {HTMLElement} */ (event.target)),
      all.length,
      isColumn,
    );
    if (next === null) return;
    event.preventDefault();
    event.stopPropagation();
    stopAt(all[next]);
    all[next].focus();
  });
  return stopAt;
}

/**
 * The index that a key moves to in a row; null for other keys.
 * @param {string} key @param {number} place @param {number} count @param {boolean} [isColumn]
 */
export function steppedBy(key, place, count, isColumn = false) {
  if (place < 0) return null;
  /** @type {Record<string, number>} */
  const target = {
    ArrowRight: (place + 1) % count,
    ArrowLeft: (place - 1 + count) % count,
    ...(isColumn && { ArrowDown: (place + 1) % count, ArrowUp: (place - 1 + count) % count }),
    Home: 0,
    End: count - 1,
  };
  return key in target ? target[key] : null;
}
