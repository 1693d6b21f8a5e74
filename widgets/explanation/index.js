/** Why a layer, or a model, is not faster, and the steps that would help. */

import { basisText } from "../shared/basis.js";
import { fresh, h } from "../shared/dom.js";
import { stepCode, stepText, untopical, worthText } from "./steps.js";

/** @typedef {import("./steps.js").Step} Step */
/**
 * @typedef {{ topic: string, sentence: string, step?: Step | null, saves_ms?: number | null,
 *   basis?: string | null }} Reason
 */
/** @typedef {{ title?: string, ms?: number, reasons?: Reason[] }} ExplanationData */

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} [model]
 * @returns {import("../shared/host.js").View}
 */
export function explanation(root, host, model) {
  const box = h("section", { class: "pf-view pf-explanation", "aria-label": "explanation" });
  root.append(box);
  const choose = model?.get("view") === "workbench" ? chooser(host) : null;
  return {
    /** @param {ExplanationData} data */
    show(data) {
      const reasons = data?.reasons ?? [];
      const head = h("div", { class: "pf-view-head" }, h("h2", {}, data?.title ?? ""));
      const items = reasons.map((reason) => reasonItem(reason, data.ms ?? 0, choose));
      fresh(
        box,
        head,
        reasons.length
          ? h("ul", { class: "pf-explained" }, ...items)
          : h("p", { class: "pf-empty" }, "There is nothing to explain."),
      );
    },
  };
}

/** @typedef {(step: Step) => void} Choose */

/** @param {import("../shared/host.js").Host} host @returns {Choose} */
function chooser(host) {
  return (step) => host.ask({ do: "choose", step });
}

/** @param {Reason} reason @param {number} wholeMs @param {Choose | null} choose */
function reasonItem(reason, wholeMs, choose) {
  return h(
    "li",
    {},
    h("span", { class: "pf-topic" }, reason.topic),
    h(
      "div",
      {},
      h("p", {}, untopical(reason.sentence, reason.topic)),
      reason.step ? advice(reason, reason.step, wholeMs, choose) : null,
    ),
  );
}

/**
 * @param {Reason} reason @param {Step} step @param {number} wholeMs @param {Choose | null} choose
 */
function advice(reason, step, wholeMs, choose) {
  const saves = reason.saves_ms ?? 0;
  const share = wholeMs > 0 ? Math.min(1, Math.max(0, saves / wholeMs)) : 0;
  const bar =
    share > 0
      ? h(
          "span",
          { class: "pf-saving", "aria-hidden": "true" },
          h("span", { style: `width: ${(100 * share).toFixed(1)}%` }),
        )
      : null;
  const worth = h(
    "span",
    { class: saves < 0 ? "pf-worth pf-is-bad" : "pf-worth pf-is-good" },
    worthText(reason.saves_ms, share),
  );
  const basis = reason.basis ? h("small", { class: "pf-note" }, basisText(reason.basis)) : null;
  return h(
    "div",
    { class: "pf-suggestion" },
    choose ? chooseButton(step, choose) : copyButton(step),
    worth,
    bar,
    basis,
  );
}

/** @param {Step} step @param {Choose} choose */
function chooseButton(step, choose) {
  const button = h(
    "button",
    {
      class: "pf-step",
      onclick: () => (
        choose(step),
        button.setAttribute("disabled", ""),
        fresh(button, `${stepText(step)} · asked for`)
      ),
    },
    stepText(step),
  );
  button.setAttribute("aria-label", `apply ${stepText(step)}`);
  return button;
}

/** Without a workbench: a button that copies the step as code for a recipe. @param {Step} step */
function copyButton(step) {
  const status = h("small", { class: "pf-note", role: "status" });
  const code = h("code", {}, stepCode(step));
  const copy = async () => {
    const isCopied = await copied(stepCode(step));
    if (!isCopied) getSelection()?.selectAllChildren(code);
    fresh(status, isCopied ? "copied" : "selected");
  };
  const button = h(
    "button",
    {
      class: "pf-step",
      title: "copy the step for a recipe",
      "aria-label": `copy the step ${stepCode(step)}`,
      onclick: () => void copy(),
    },
    code,
    " ",
    h("small", {}, "copy"),
  );
  return h("span", {}, button, " ", status);
}

/** Whether the page let a text be copied. @param {string} text @returns {Promise<boolean>} */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
