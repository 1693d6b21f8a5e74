/** A button that opens a menu over what stands above it. */

import { h } from "./dom.js";
import { rovingTabindex } from "./roving_tabindex.js";

/**
 * @param {string} label @param {HTMLElement[]} items each a button
 * @returns {{ element: HTMLElement, button: HTMLElement, close: () => void }}
 */
export function menu(label, items) {
  const list = h("div", { class: "pf-menu", role: "menu", "aria-label": label, hidden: true });
  list.append(...items);
  for (const item of items) item.setAttribute("role", "menuitem");
  const stopAt = rovingTabindex(list, "button", true);
  const button = h("button", { type: "button", class: "pf-button", "aria-haspopup": "menu" });
  button.append(label, h("span", { "aria-hidden": "true" }, " ▾"));
  const element = h("div", { class: "pf-menu-box" }, button, list);

  /** @param {boolean} isOpen */
  function show(isOpen) {
    list.hidden = !isOpen;
    button.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) return;
    stopAt(items[0]);
    items[0].focus();
  }

  button.addEventListener("click", () => show(list.hasAttribute("hidden")));
  list.addEventListener("click", () => {
    show(false);
    button.focus();
  });
  element.addEventListener("keydown", (event) => {
    if (list.hidden || event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    show(false);
    button.focus();
  });
  element.addEventListener("focusout", (event) => {
    if (!element.contains(/** @type {Node | null} */ (event.relatedTarget))) show(false);
  });
  button.setAttribute("aria-expanded", "false");
  return { element, button, close: () => show(false) };
}
