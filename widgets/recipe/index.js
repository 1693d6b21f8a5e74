/** A recipe to read: its steps in order, each with why it was chosen. */

import { fresh, h } from "../shared/dom.js";

/** @typedef {{ label: string, kind?: string, why?: string | null }} RecipeStep */
/** @typedef {{ title?: string, steps?: RecipeStep[] }} RecipeData */

/** @param {HTMLElement} root @returns {import("../shared/host.js").View} */
export function recipe(root) {
  const box = h("section", { class: "pf-view pf-recipe", "aria-label": "recipe" });
  root.append(box);
  return {
    /** @param {RecipeData} data */
    show(data) {
      const steps = data?.steps ?? [];
      const head = h("div", { class: "pf-view-head" }, h("h2", {}, data?.title ?? ""));
      const list = h("ol", { class: "pf-recipe-steps" }, ...steps.map(recipeStep));
      fresh(
        box,
        head,
        steps.length ? list : h("p", { class: "pf-empty" }, "No steps: the model as it is."),
      );
    },
  };
}

/** @param {RecipeStep} step @param {number} index */
function recipeStep(step, index) {
  const chip = h(
    "span",
    { class: "pf-recipe-chip", title: step.kind ?? "" },
    h("small", {}, index + 1),
    step.label,
  );
  return h("li", {}, chip, step.why ? h("span", { class: "pf-why" }, step.why) : null);
}
