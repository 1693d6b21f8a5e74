/** The footer of the workbench: recipe, suggested steps, actions and progress. */

import { offerButtons, recipeChips } from "./chips.js";
import { h } from "../shared/dom.js";
import { benchNotices, copyBox } from "./notices.js";
import { statusLine } from "./status_line.js";

/** @typedef {import("./expected.js").Expected} Expected */

/**
 * The buttons: label, request, and when they are enabled.
 * @type {{ ask: string, label: string, hint: string, can: (state: Expected) => boolean }[]}
 */
const ACTIONS = [
  {
    ask: "undo",
    label: "Undo",
    hint: "take the last choice back (u)",
    can: (state) => state.can_undo || state.asked.has("choose"),
  },
  {
    ask: "redo",
    label: "Redo",
    hint: "choose again what was undone (r)",
    can: (state) => state.can_redo || state.asked.has("undo"),
  },
  {
    ask: "save",
    label: "Save recipe",
    hint: "as a file that runs without this page",
    can: (state) => state.recipe.length > 0,
  },
  {
    ask: "code",
    label: "Copy as code",
    hint: "Python that makes the same model",
    can: (state) => state.recipe.length > 0,
  },
  {
    ask: "measure",
    label: "Measure again",
    hint: "against the baseline, in turn (m)",
    can: (state) => state.status !== "profiling",
  },
];

/**
 * @param {(request: { do: string, [key: string]: any }) => void} ask
 * @returns {{ element: HTMLElement, show: (state: Expected, isUnanswered: boolean) => void, press:
 * (name: string) => void }}
 */
export function benchFooter(ask) {
  const chips = recipeChips((index, label) => ask({ do: "drop", index, label }));
  const offers = offerButtons((step) => ask({ do: "choose", step }));
  const status = statusLine(() => ask({ do: "stop" }));
  const notices = benchNotices(() => ask({ do: "dismiss" }));
  const copying = copyBox((text) => status.say(text));
  const buttons = new Map(
    ACTIONS.map((action) => [action.ask, actionButton(action, () => press(action.ask))]),
  );
  let shown = /** @type {Expected | null} */ (null);
  let isCodeWanted = false;

  /** @param {string} name */
  function press(name) {
    const action = ACTIONS.find((action) => action.ask === name);
    if (!action || !shown || !action.can(shown)) return;
    if (name === "code") isCodeWanted = true;
    ask({ do: name });
  }

  /** Copy once Python has answered. @param {Expected} state */
  function hand(state) {
    if (!isCodeWanted || !state.code || state.asked.has("code")) return;
    isCodeWanted = false;
    copying.copy(state.code);
  }

  return {
    element: h(
      "footer",
      { class: "pf-bench-foot" },
      notices.element,
      copying.element,
      h(
        "div",
        { class: "pf-recipe-line" },
        chips.element,
        h("div", { class: "pf-actions" }, ...buttons.values()),
      ),
      offers.element,
      status.element,
    ),
    press,
    show(state, isUnanswered) {
      if (shown?.asked.has("save") && !state.asked.has("save") && state.saved)
        status.say(`saved to ${state.saved}`);
      shown = state;
      chips.show(state.recipe);
      offers.show(state.offers);
      for (const action of ACTIONS)
        showAction(/** @type {HTMLElement} */ (buttons.get(action.ask)), action, state);
      status.show(state);
      notices.show(state.error, isUnanswered, state.refused);
      hand(state);
    },
  };
}

/** @param {{ ask: string, label: string, hint: string }} action @param {() => void} onclick */
function actionButton(action, onclick) {
  const isFirst = action.ask === "measure";
  return h(
    "button",
    {
      type: "button",
      class: isFirst ? "pf-button pf-primary" : "pf-button",
      title: action.hint,
      onclick,
    },
    action.label,
  );
}

/**
 * A button that may not be pressed keeps the focus: who undid the last step is not thrown out.
 * @param {HTMLElement} button @param {{ ask: string, can: (state: Expected) => boolean }} action
 * @param {Expected} state
 */
function showAction(button, action, state) {
  button.setAttribute("aria-disabled", String(!action.can(state)));
  button.classList.toggle("pf-asked", state.asked.has(action.ask));
}
