/** The view of ONNX Runtime's session options: a row each, with a button that puts it into the recipe. */

import { fresh, h } from "../shared/dom.js";
import { Question } from "../shared/question.js";
import { actionOf, nameOf, speedUpText, toneOf } from "./rows.js";

/** @typedef {import("./rows.js").Setting} Setting */

const FOLLOWED = ["state", "requests", "served"];
const QUESTION = {
  query: "engine_settings",
  request: "engine_settings",
  question: "Which session options make ONNX Runtime fastest on this machine?",
  use: "Times one change after the other, in turn with the model in torch: threads, graph optimisation, execution mode, arena, spinning.",
};

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function engineSettings(root, host, model) {
  const question = new Question(model, host.ask, QUESTION);
  const title = h("h2", {}, "ONNX Runtime's session options");
  const table = h("table", { class: "pf-table", "aria-label": "session options" });
  const all = [title, table, question.element];
  root.append(
    h("section", { class: "pf-view pf-settings", "aria-label": "session options" }, ...all),
  );
  let isKnown = false;
  const follow = () => question.show(isKnown);
  for (const name of FOLLOWED) model.on(`change:${name}`, follow);

  /** @param {Setting} row */
  function settingRow(row) {
    const action = actionOf(row);
    const use = () => host.ask({ do: "use_engine_settings", name: row.name });
    const attributes = { type: "button", class: "pf-step", onclick: use };
    return h(
      "tr",
      {},
      h("th", { scope: "row", class: "pf-names" }, nameOf(row)),
      h("td", { class: toneOf(row) }, speedUpText(row)),
      h("td", { class: `pf-names ${toneOf(row)}` }, row.failure ?? row.word),
      h(
        "td",
        { class: "pf-names" },
        action === "use"
          ? h("button", { ...attributes, "aria-label": `use ${row.name}` }, "Use")
          : h("span", { class: "pf-note" }, action),
      ),
    );
  }

  return {
    show(data) {
      isKnown = Boolean(data && "rows" in data);
      for (const part of [title, table]) part.hidden = !isKnown;
      const names = ["option", "× torch", "verdict", ""];
      const cells = names.map((name, at) =>
        h("th", { scope: "col", class: [0, 2, 3].includes(at) && "pf-names" }, name),
      );
      /** @type {Setting[]} */
      const rows = isKnown ? data.rows : [];
      const body = h("tbody", {}, ...rows.map(settingRow));
      fresh(table, h("thead", {}, h("tr", {}, ...cells)), body);
      follow();
    },
    destroy() {
      for (const name of FOLLOWED) model.off(`change:${name}`, follow);
    },
  };
}
