/**
 * Says in place that nobody stands behind a panel any more: its Jupyter kernel has ended, and the
 * panel shows what was.
 */

import { fresh, h } from "./dom.js";

export const GONE = "The Jupyter kernel behind this panel is gone; it shows what was. ";
const REMEDY = "Select its cell, choose Run ▸ Run All Above Selected Cell, then press Shift+Enter.";

/**
 * What a session says of itself when nobody will answer this panel again: what runs afterwards does
 * not know it.
 */
const ENDS = ["restarting", "autorestarting", "terminating", "dead"];

/**
 * Watch a panel's session, where the page lets it be seen, as JupyterLab does; the answer ends it.
 * @param {any} model @param {HTMLElement} el Jupyter's element @param {HTMLElement} root @returns
 * {() => void}
 */
export function watchConnection(model, el, root) {
  const session = model.widget_manager?.context?.sessionContext;
  const notice = h("div", { role: "alert" });
  root.prepend(notice);
  const listen = (/** @type {any} */ _, /** @type {string} */ status) => {
    if (!ENDS.includes(status) || notice.hasChildNodes()) return;
    fresh(
      notice,
      h(
        "p",
        { class: "pf-notice" },
        h("b", { "aria-hidden": "true" }, "!"),
        h("span", {}, GONE, remedy(el)),
      ),
    );
  };
  session?.statusChanged?.connect(listen);
  return () => void session?.statusChanged?.disconnect(listen);
}

/**
 * A button where the page may run cells (JupyterLab's `expose_app_in_browser`), else what to press.
 * @param {HTMLElement} el
 */
function remedy(el) {
  const app = /** @type {any} */ (globalThis).jupyterapp;
  if (!app?.commands?.hasCommand("notebook:run-all-above")) return REMEDY;
  return h(
    "button",
    { type: "button", class: "pf-button", onclick: () => runAgain(app, el) },
    "Run the cells up to here again",
  );
}

/**
 * The cells above first: what a cell of a new session needs is not there yet.
 * @param {any} app @param {HTMLElement} el
 */
async function runAgain(app, el) {
  const notebook = app.shell.currentWidget?.content;
  const cell =
    notebook?.widgets?.findIndex((/** @type {any} */ one) => one.node.contains(el)) ?? -1;
  if (cell < 0) return;
  notebook.activeCellIndex = cell;
  if (cell > 0) await app.commands.execute("notebook:run-all-above");
  notebook.activeCellIndex = cell;
  await app.commands.execute("notebook:run-cell");
}
