/** The form for the budget of an allocation, and the button that starts planning. */

import { fresh, h, set } from "../shared/dom.js";

/**
 * By the name in Python: label, initial value, and the factor from the shown unit.
 * @type {Record<string, { label: string, value: string, scale: number }>}
 */
const BUDGETS = {
  loss: { label: "of loss given up", value: "0.01", scale: 1 },
  latency_ms: { label: "% of the latency as it is", value: "70", scale: 0.01 },
  size_bytes: { label: "% of the size as it is", value: "50", scale: 0.01 },
};

export class BudgetForm {
  /** @param {(budget: { limit: string, value: number }) => void} onAsk */
  constructor(onAsk) {
    this.onAsk = onAsk;
    this.isBusy = false;
    const options = Object.entries(BUDGETS).map(([name, { label }]) =>
      h("option", { value: name }, label),
    );
    this.limit = /** @type {HTMLSelectElement} */ (
      h("select", { "aria-label": "what is limited" }, ...options)
    );
    this.number = /** @type {HTMLInputElement} */ (
      h("input", {
        type: "number",
        min: 0,
        step: "any",
        value: BUDGETS.loss.value,
        "aria-label": "at most",
      })
    );
    this.button = h("button", {
      type: "submit",
      class: "pf-button",
      title: "about a minute, in the background",
    });
    this.element = /** @type {HTMLFormElement} */ (
      h(
        "form",
        { class: "pf-budget-form" },
        h("span", { class: "pf-lead" }, "at most"),
        this.number,
        this.limit,
        this.button,
      )
    );
    this.limit.addEventListener(
      "change",
      () => (this.number.value = BUDGETS[this.limit.value].value),
    );
    this.element.addEventListener("submit", (event) => this.submit(event));
  }

  /** @param {boolean} isBusy @param {boolean} isKnown */
  show(isBusy, isKnown) {
    this.isBusy = isBusy;
    fresh(this.button, isBusy ? "being found …" : isKnown ? "Find it again" : "Find the frontier");
    this.button.classList.toggle("pf-asked", isBusy);
    set(this.button, { "aria-disabled": String(isBusy) });
  }

  /** @param {Event} event */
  submit(event) {
    event.preventDefault();
    const { scale } = BUDGETS[this.limit.value];
    if (!this.isBusy && this.number.value !== "")
      this.onAsk({ limit: this.limit.value, value: scale * Number(this.number.value) });
  }
}
