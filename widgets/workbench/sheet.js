/** A section that opens over the body of the workbench, and gives the focus back when it closes. */

import { fresh, h } from "../shared/dom.js";
import { isSameData } from "../shared/same_data.js";

/** @typedef {import("./tabs.js").Section} Section */

const FOCUSABLE = "button, select, input, textarea, a[href], [tabindex]";

export class Sheet {
  /**
   * @param {Section} section @param {import("../shared/host.js").Host} host @param {any} model
   * @param {(isOpen: boolean) => void} onToggle
   */
  constructor(section, host, model, onToggle) {
    this.section = section;
    this.host = { ...host, close: () => this.close() };
    this.model = model;
    this.onToggle = onToggle;
    this.view = /** @type {import("../shared/host.js").View | null} */ (null);
    this.data = /** @type {any} */ (undefined);
    this.shown = /** @type {any} */ (undefined);
    this.returnTo = /** @type {HTMLElement | null} */ (null);
    this.body = h("div", { class: "pf-sheet-body" });
    const close = h(
      "button",
      { type: "button", class: "pf-dismiss pf-sheet-close", title: "close (Esc)" },
      "×",
    );
    close.setAttribute("aria-label", "close");
    close.addEventListener("click", () => this.close());
    this.element = h(
      "section",
      {
        class: "pf-sheet",
        role: "dialog",
        "aria-modal": "true",
        "aria-label": section.title,
        tabindex: "-1",
        hidden: true,
      },
      this.body,
      close,
    );
    this.element.addEventListener("keydown", (event) => this.onKey(event));
  }

  get isOpen() {
    return !this.element.hidden;
  }

  open() {
    if (this.isOpen) return;
    this.returnTo = /** @type {HTMLElement | null} */ (document.activeElement);
    this.element.hidden = false;
    this.fill();
    this.onToggle(true);
    (this.stops()[0] ?? this.element).focus();
  }

  close() {
    if (!this.isOpen) return;
    const { activeElement } = document;
    const isLost = this.element.contains(activeElement) || activeElement === document.body;
    this.element.hidden = true;
    this.onToggle(false);
    if (isLost) this.returnTo?.focus(); // else it is where the mouse has put it
  }

  toggle() {
    if (this.isOpen) this.close();
    else this.open();
  }

  /** @param {any} data of the section; undefined before there is any */
  show(data) {
    this.data = data;
    if (this.isOpen || (this.view && data)) this.fill(); // what is closed keeps no old figures
  }

  /** @param {string} layer */
  select(layer) {
    this.view?.select?.(layer);
  }

  destroy() {
    this.view?.destroy?.();
  }

  // Private to the sheet.

  fill() {
    const isNew = !this.view;
    this.view ??= this.section.make(this.body, this.host, this.model);
    if (!isNew && isSameData(this.shown, this.data)) return;
    this.shown = this.data;
    this.view.show(this.data ?? {});
  }

  /** The elements that Tab stops at, what was made by the section first. */
  stops() {
    const all = /** @type {HTMLElement[]} */ ([...this.element.querySelectorAll(FOCUSABLE)]);
    return all.filter(
      (element) =>
        element.tabIndex >= 0 && !element.matches(":disabled") && element.offsetParent !== null,
    );
  }

  /** Tab goes round within; Escape closes. @param {KeyboardEvent} event */
  onKey(event) {
    if (event.key === "Escape" && !event.defaultPrevented) this.close();
    else if (event.key === "Tab") {
      const stops = this.stops();
      const at = stops.indexOf(/** @type {HTMLElement} */ (document.activeElement));
      const isEnd = event.shiftKey ? at <= 0 : at === stops.length - 1;
      if (!isEnd || !stops.length) return;
      stops[event.shiftKey ? stops.length - 1 : 0].focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** What a button of the sheet says; "" where there is none. @param {Section | undefined} section */
export function sheetButton(section) {
  const attributes = { type: "button", class: "pf-button pf-act", "aria-haspopup": "dialog" };
  const button = h("button", { ...attributes, title: "search for what is faster here (f)" });
  fresh(button, h("span", { "aria-hidden": "true" }, "⚡ "), section?.title ?? "");
  button.hidden = !section;
  return button;
}
