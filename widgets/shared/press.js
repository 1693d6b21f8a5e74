/** A button with its label, whether it is enabled, and whether it was pressed. */

import { fresh, set } from "./dom.js";

/**
 * A button that may not be pressed keeps the focus.
 * @param {HTMLElement} button @param {boolean} can @param {boolean} isAsked @param {string} [label]
 */
export function showPress(button, can, isAsked, label) {
  if (label !== undefined) fresh(button, label);
  button.classList.toggle("pf-asked", isAsked);
  set(button, { "aria-disabled": String(!can) });
}
