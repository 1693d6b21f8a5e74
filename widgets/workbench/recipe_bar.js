/** The recipe bar: the steps as chips on one line, what the worker does, and the actions. */

import { recipeChips } from "./chips.js";
import { h } from "../shared/dom.js";
import { menu } from "../shared/menu.js";
import { benchNotices, copyBox } from "./notices.js";
import { statusLine } from "./status_line.js";

/** @typedef {import("./expected.js").Expected} Expected */
/** @typedef {{ ask: string, name?: string, label: string, hint: string, sign?: string, isExport?: boolean,
 * can: (state: Expected) => boolean }} Action */

/** The buttons: label, request, and when they are enabled. @type {Action[]} */
const ACTIONS = [
  {
    ask: "undo",
    label: "Undo",
    sign: "↶",
    hint: "take the last choice back (u)",
    can: (state) => state.can_undo || state.asked.has("choose"),
  },
  {
    ask: "redo",
    label: "Redo",
    sign: "↷",
    hint: "choose again what was undone (r)",
    can: (state) => state.can_redo || state.asked.has("undo"),
  },
  {
    ask: "measure",
    label: "Measure again",
    sign: "↻",
    hint: "against the baseline, in turn (m)",
    can: (state) => state.status !== "profiling",
  },
  {
    ask: "code",
    label: "Copy code",
    hint: "Python that makes the same model",
    isExport: true,
    can: (state) => state.recipe.length > 0,
  },
  {
    ask: "code",
    name: "cell",
    label: "Insert as a cell",
    hint: "the same Python in a new cell below this one",
    isExport: true,
    can: (state) => state.recipe.length > 0,
  },
  {
    ask: "save",
    label: "Save recipe",
    hint: "as a new file that runs without this page",
    isExport: true,
    can: (state) => state.recipe.length > 0,
  },
];

/**
 * @param {(request: { do: string, [key: string]: any }) => void} ask
 * @param {(code: string) => boolean} insert a cell below; whether there is a notebook for it
 * @returns {{ element: HTMLElement, notices: HTMLElement, destroy: () => void, show: (state:
 * Expected, isUnanswered: boolean) => void, press: (name: string) => void }}
 */
export function recipeBar(ask, insert) {
  const chips = recipeChips((index, label) => ask({ do: "drop", index, label }));
  const status = statusLine(() => ask({ do: "stop" }));
  const notices = benchNotices(
    () => ask({ do: "dismiss" }),
    (number) => ask({ do: "allow_result", number }),
  );
  const copying = copyBox((text) => status.say(text));
  const buttons = new Map(
    ACTIONS.map((action) => [nameOf(action), actionButton(action, () => press(nameOf(action)))]),
  );
  const ofKind = (/** @type {boolean} */ isExport) =>
    ACTIONS.filter((action) => Boolean(action.isExport) === isExport).map(
      (action) => /** @type {HTMLElement} */ (buttons.get(nameOf(action))),
    );
  const exports = menu("Export", ofKind(true));
  let shown = /** @type {Expected | null} */ (null);
  let wanted = ""; // of Python's answer to "code"

  /** @param {string} name */
  function press(name) {
    const action = ACTIONS.find((action) => nameOf(action) === name);
    if (!action || !shown || !action.can(shown)) return;
    if (action.ask === "code") wanted = name;
    ask({ do: action.ask });
  }

  /** Copy or insert once Python has answered. @param {Expected} state */
  function hand(state) {
    if (!wanted || !state.code || state.asked.has("code")) return;
    if (wanted === "cell" && insert(state.code)) status.say("inserted below");
    else copying.copy(state.code);
    wanted = "";
  }

  return {
    element: h(
      "footer",
      { class: "pf-recipe-bar" },
      h("span", { class: "pf-lead" }, "Recipe"),
      chips.element,
      status.element,
      h("div", { class: "pf-actions" }, ...ofKind(false), exports.element),
    ),
    notices: h("div", { class: "pf-over" }, notices.element, copying.element),
    press,
    destroy: () => chips.destroy(),
    show(state, isUnanswered) {
      if (shown?.asked.has("save") && !state.asked.has("save") && state.saved)
        status.say(`saved to ${state.saved}`);
      shown = state;
      status.show(state); // before the chips, which fit into what is left of the line
      chips.show(state.recipe);
      for (const action of ACTIONS)
        showAction(/** @type {HTMLElement} */ (buttons.get(nameOf(action))), action, state);
      notices.show(state.error, isUnanswered, state.refused, state.allowable);
      hand(state);
    },
  };
}

/** What a button is known by: two may ask for the same. @param {Action} action */
function nameOf(action) {
  return action.name ?? action.ask;
}

/** @param {Action} action @param {() => void} onclick */
function actionButton(action, onclick) {
  const attributes = { type: "button", class: "pf-button", title: action.hint, onclick };
  return h(
    "button",
    { ...attributes, "aria-label": action.label },
    action.sign && h("span", { class: "pf-icon", "aria-hidden": "true" }, action.sign),
    h("span", { class: "pf-button-label" }, action.label),
  );
}

/**
 * A button that may not be pressed keeps the focus: who undid the last step is not thrown out.
 * @param {HTMLElement} button @param {Action} action @param {Expected} state
 */
function showAction(button, action, state) {
  button.setAttribute("aria-disabled", String(!action.can(state)));
  button.classList.toggle("pf-asked", state.asked.has(action.ask));
}
