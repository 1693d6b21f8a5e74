/** The one module that a panel sends: it draws the view that the trait `view` names. */

import { h } from "./dom.js";
import { hostOf } from "./host.js";
import { explanation } from "./explanation.js";
import { comparison } from "./comparison.js";
import { curve } from "./curve.js";
import { hardware } from "./hardware.js";
import { layers } from "./layers.js";
import { recipe } from "./recipe.js";
import { roofline } from "./roofline.js";
import { sideBySide } from "./side_by_side.js";
import { workbench } from "./workbench.js";

/** @type {Record<string, import("./host.js").MakeView>} */
const VIEWS = { comparison, curve, explanation, hardware, layers, recipe, roofline, side_by_side: sideBySide, workbench };

/** @param {{ model: any, el: HTMLElement }} given */
function render({ model, el }) {
  const root = h("div", { class: "pf-panel", "data-lm-suppress-shortcuts": "true" });
  el.append(root);
  const view = VIEWS[model.get("view")](root, hostOf(model), model);
  const show = () => view.show(model.get("data"));
  const select = () => view.select?.(model.get("selected"));
  model.on("change:data", show);
  model.on("change:selected", select);
  show();
  select();
  return () => {
    model.off("change:data", show);
    model.off("change:selected", select);
    view.destroy?.();
  };
}

export default { render };
