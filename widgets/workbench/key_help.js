/** The list of keys, opened by `?`. */

import { h } from "../shared/dom.js";

const KEYS = [
  ["f", "make it faster"],
  ["1–6", "the tabs"],
  ["/", "filter the layers"],
  ["↑ ↓", "from row to row"],
  ["← →", "fold, unfold"],
  ["Enter", "details of a row, or apply"],
  ["Space", "mark to compare"],
  ["Esc", "close, or clear the filter"],
  ["u  r", "undo, redo"],
  ["m", "measure again"],
  ["w", "wait for quiet"],
  ["?", "this list"],
];

/** @returns {{ button: HTMLElement, element: HTMLElement, toggle: () => void, close: () => boolean }} */
export function keyHelp() {
  const items = KEYS.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)]);
  const element = h(
    "section",
    { class: "pf-key-help", role: "dialog", "aria-label": "keys", tabindex: "-1", hidden: true },
    h("h3", {}, "Keys"),
    h("dl", {}, ...items),
  );
  const button = h(
    "button",
    { type: "button", class: "pf-button pf-help", title: "keys (?)", "aria-label": "keys" },
    "?",
  );

  /** Whether there was something to close. */
  function close() {
    if (element.hidden) return false;
    element.hidden = true;
    button.setAttribute("aria-expanded", "false");
    button.focus();
    return true;
  }

  function toggle() {
    if (close()) return;
    element.hidden = false;
    button.setAttribute("aria-expanded", "true");
    element.focus();
  }

  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", toggle);
  return { button, element, toggle, close };
}
