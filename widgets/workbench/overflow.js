/** Items of one line that do not fit stand behind "+n more". */

import { onWidth } from "../shared/chart.js";
import { fresh, h } from "../shared/dom.js";

/**
 * How many of the first items fit; if not all do, the button takes room too.
 * @param {number[]} widths @param {number} room @param {number} more the button's width @param
 * {number} gap
 */
export function fittingCount(widths, room, more, gap) {
  const upTo = (/** @type {number} */ count) =>
    widths.slice(0, count).reduce((sum, width) => sum + width + gap, 0);
  if (upTo(widths.length) - gap <= room) return widths.length;
  let count = widths.length - 1;
  while (count > 0 && upTo(count) + more > room) count -= 1;
  return count;
}

const GAP = 8;
const MORE_WIDTH = 72;

/**
 * Hide the items of a list that do not fit, and show them when the button is pressed.
 * @param {HTMLElement} list
 * @returns {{ element: HTMLElement, fit: () => void, destroy: () => void }}
 */
export function overflowing(list) {
  const more = h("button", { type: "button", class: "pf-button pf-more-chips", hidden: true });
  const element = h("div", { class: "pf-one-line" }, list, more);

  /** @param {boolean} isOpen */
  function open(isOpen) {
    element.classList.toggle("pf-all-chips", isOpen);
    more.setAttribute("aria-expanded", String(isOpen));
  }

  function fit() {
    const items = /** @type {HTMLElement[]} */ ([...list.children]);
    for (const item of items) item.classList.remove("pf-over-edge");
    element.classList.add("pf-measuring");
    const widths = items.map((item) => item.offsetWidth);
    const isText = items.length === 1 && !items[0].querySelector("button");
    const room = isText ? Infinity : element.clientWidth; // a text is cut instead
    const count = fittingCount(widths, room, MORE_WIDTH, GAP);
    element.classList.remove("pf-measuring");
    items.forEach((item, place) => item.classList.toggle("pf-over-edge", place >= count));
    more.hidden = count >= items.length;
    if (more.hidden) open(false);
    const all = `${items.length} ${items.length === 1 ? "step" : "steps"}`;
    fresh(more, count ? `+${items.length - count} more` : all);
  }

  /** Clicks beside what lies open close it. @param {Event} event */
  function onOutside(event) {
    if (!element.contains(/** @type {Node | null} */ (event.target))) open(false);
  }

  more.addEventListener("click", () => open(!element.classList.contains("pf-all-chips")));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !element.classList.contains("pf-all-chips")) return;
    event.stopPropagation();
    open(false);
    more.focus();
  });
  element.addEventListener("focusout", (event) => {
    const next = /** @type {Node | null} */ (event.relatedTarget);
    if (next && !element.contains(next)) open(false);
  });
  document.addEventListener("pointerdown", onOutside);
  const release = onWidth(element, fit);
  return {
    element,
    fit,
    destroy() {
      release();
      document.removeEventListener("pointerdown", onOutside);
    },
  };
}
