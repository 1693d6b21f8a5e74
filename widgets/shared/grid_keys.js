/** Keyboard movement in a list of rows. */

/**
 * The index that a key moves to; null for other keys.
 * @param {string} key @param {number} index -1 is none yet @param {number} count @param {number}
 * page rows a page @returns {number | null}
 */
export function movedBy(key, index, count, page) {
  if (!count) return null;
  /** @type {Record<string, number>} */
  const target = {
    ArrowDown: index + 1,
    ArrowUp: index < 0 ? count - 1 : index - 1,
    PageDown: Math.max(index, 0) + page,
    PageUp: index - page,
    Home: 0,
    End: count - 1,
  };
  return key in target ? Math.min(count - 1, Math.max(0, target[key])) : null;
}

/**
 * Whether the target is a text field, in which letters are not commands.
 * @param {EventTarget | null} target
 */
export function isField(target) {
  const element = /** @type {HTMLElement | null} */ (target);
  return Boolean(element?.matches?.("input, textarea, select, [contenteditable]"));
}

/** Whether a key comes alone. @param {KeyboardEvent} event */
export function isPlainKey(event) {
  return !(event.ctrlKey || event.metaKey || event.altKey);
}
