/** The fields for the budget of an allocation. */

import { h } from "../shared/dom.js";

/**
 * By the name in Python: label, initial value, and the factor from the shown unit.
 * @type {Record<string, { label: string, value: string, scale: number }>}
 */
const BUDGETS = {
  loss: { label: "of loss given up", value: "0.01", scale: 1 },
  latency_ms: { label: "% of the latency as it is", value: "70", scale: 0.01 },
  size_bytes: { label: "% of the size as it is", value: "50", scale: 0.01 },
};

/**
 * The fields, and the budget in them as options of the request: null if no number is typed.
 * @returns {{ fields: HTMLElement[], budget: () => { limit: string, value: number } | null }}
 */
export function budgetFields() {
  const options = Object.entries(BUDGETS).map(([name, { label }]) =>
    h("option", { value: name }, label),
  );
  const limit = /** @type {HTMLSelectElement} */ (
    h("select", { "aria-label": "what is limited" }, ...options)
  );
  const number = /** @type {HTMLInputElement} */ (
    h("input", {
      type: "number",
      min: 0,
      step: "any",
      value: BUDGETS.loss.value,
      "aria-label": "at most",
    })
  );
  limit.addEventListener("change", () => (number.value = BUDGETS[limit.value].value));
  return {
    fields: [h("span", { class: "pf-lead" }, "at most"), number, limit],
    budget: () =>
      number.value === ""
        ? null
        : { limit: limit.value, value: BUDGETS[limit.value].scale * Number(number.value) },
  };
}
