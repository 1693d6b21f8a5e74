/**
 * The render function of every panel: draws its view and keeps it in sync with the traits. The
 * linker inserts the view.
 */

import { watchConnection } from "./connection.js";
import { h } from "./dom.js";
import { isPlainKey } from "./grid_keys.js";
import { hostOf } from "./host.js";

/**
 * @param {import("./host.js").MakeView} makeView @param {string} styleName the class that the
 * panel's style is for
 * @returns {(given: { model: any, el: HTMLElement }) => () => void}
 */
export function rendering(makeView, styleName) {
  return ({ model, el }) => {
    const root = h("div", { class: `pf-panel ${styleName}`, "data-lm-suppress-shortcuts": "true" });
    root.addEventListener("keydown", keepKey);
    el.append(root);
    const view = makeView(root, hostOf(model), model);
    const show = () => view.show(model.get("data"));
    const select = () => view.select?.(model.get("selected"));
    model.on("change:data", show);
    model.on("change:selected", select);
    show();
    select();
    const release = watchConnection(model, el, root);
    return () => {
      release();
      model.off("change:data", show);
      model.off("change:selected", select);
      view.destroy?.();
    };
  };
}

/**
 * Keys without modifiers are the panel's own. JupyterLab's command mode checks the focus before it
 * checks for suppressed shortcuts.
 * @param {KeyboardEvent} event
 */
function keepKey(event) {
  if (isPlainKey(event) && !event.shiftKey) event.stopPropagation();
}
