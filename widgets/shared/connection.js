/** The notice that a panel's Jupyter kernel has ended, and that it shows its last state. */

import { fresh, h } from "./dom.js";

export const GONE = "The Jupyter kernel behind this panel is gone; it shows what was. ";
const REMEDY = "Select its cell, choose Run ▸ Run All Above Selected Cell, then press Shift+Enter.";

/**
 * The states of a kernel after which this panel gets no replies: a restarted kernel does not know
 * it.
 */
const ENDS = ["restarting", "autorestarting", "terminating", "dead"];

/**
 * Watch a panel's session if the page exposes it, as JupyterLab does; returns a function that stops
 * it.
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
 * A button if the page can run cells (JupyterLab's `expose_app_in_browser`), else a hint what to
 * press.
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
 * Run the cells above first: in a new session they have not run.
 * @param {any} app @param {HTMLElement} el
 */
async function runAgain(app, el) {
  const notebook = app.shell.currentWidget?.content;
  const cell =
    notebook?.widgets?.findIndex((/** @type {any} */ cell) => cell.node.contains(el)) ?? -1;
  if (cell < 0) return;
  notebook.activeCellIndex = cell;
  if (cell > 0) await app.commands.execute("notebook:run-all-above");
  notebook.activeCellIndex = cell;
  await app.commands.execute("notebook:run-cell");
}
