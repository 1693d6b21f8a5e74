/** The header of the workbench: model, machine, and the recipe's effect. */

import { fresh, h } from "../shared/dom.js";
import { figureText } from "./figure_text.js";
import { readableCount } from "../shared/format.js";

const HINTS = /** @type {Record<string, string>} */ ({
  latency: "median of one run, timed in turn with the baseline; then the 95% interval of the ratio",
  memory: "the most that a run holds at once",
  size: "the weights as a file",
  "output error": "difference of the outputs, relative to the baseline's",
});

/** @returns {{ element: HTMLElement, show: (state: import("./expected.js").Expected) => void }} */
export function benchHeader() {
  const name = h("h2", { class: "pf-model" });
  const about = h("p", { class: "pf-about" });
  const figures = h("dl", { class: "pf-headlines" });
  return {
    element: h(
      "header",
      { class: "pf-bench-head" },
      h("div", { class: "pf-who" }, name, about),
      figures,
    ),
    show(state) {
      fresh(name, state.workload);
      fresh(
        about,
        aboutText(state),
        state.machine && h("span", { class: "pf-machine" }, state.machine),
      );
      figures.classList.toggle("pf-partial", state.is_partial);
      fresh(figures, ...state.figures.map(drawFigure));
    },
  };
}

/** @param {import("./expected.js").Expected} state */
function aboutText(state) {
  const parts = [
    state.parameters !== null && `${readableCount(state.parameters)} parameters`,
    state.flops !== null && readableCount(state.flops, "FLOPs"),
    state.inputs,
  ];
  return h("span", {}, parts.filter(Boolean).join(" · "));
}

/** @param {import("./expected.js").Figure} figure */
function drawFigure(figure) {
  const text = figureText(figure);
  const was =
    text.before &&
    h(text.isReplaced ? "s" : "span", { "aria-label": `before ${text.before}` }, text.before);
  const isNoted = !text.change && figure.note;
  const hint = [figure.note, HINTS[figure.name]].filter(Boolean).join("\n");
  return h(
    "div",
    { class: "pf-headline", title: hint || null },
    h("dt", {}, figure.name),
    h("dd", { class: "pf-now" }, was, h("b", {}, text.now)),
    h(
      "dd",
      { class: "pf-headline-change" },
      text.change && h("em", { class: `pf-${text.judgement}` }, text.change),
      text.interval && h("small", {}, text.interval),
      isNoted && h("small", {}, String(figure.note)),
    ),
  );
}
