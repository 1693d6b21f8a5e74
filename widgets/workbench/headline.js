/** The headline: the model, the one sentence of what the recipe gained, and what else it changed. */

import { figureText } from "./figure_text.js";
import { fresh, h } from "../shared/dom.js";
import { readableCount } from "../shared/format.js";
import { trustOf } from "./trust_strip.js";

/** @typedef {import("./expected.js").Expected} Expected */
/** @typedef {import("./expected.js").Story} Story */

/** What Python calls a figure → its label and its exact meaning. @type {Record<string, string[]>} */
const FIGURES = {
  memory: ["Peak memory", "the most that a run holds at once"],
  size: ["Size", "the weights as a file"],
  "output error": ["Outputs differ by", "relative L2 distance from the baseline's outputs"],
};

const RECIPE_IS_MEASURED = "measuring the recipe …";

/**
 * @param {HTMLElement} primary the button of what to do first
 * @returns {{ element: HTMLElement, show: (state: Expected) => void }}
 */
export function headline(primary) {
  const name = h("h2", { class: "pf-model" });
  const about = h("p", { class: "pf-about" });
  const sentence = h("p", { class: "pf-story", role: "status", "aria-live": "polite" });
  const figures = h("dl", { class: "pf-figures" });
  const middle = h("div", { class: "pf-effect" }, sentence, figures);
  const who = h("div", { class: "pf-who" }, name, about);
  const element = h("header", { class: "pf-headline" }, who, middle, primary);
  let told = "";
  let drawn = "";
  return {
    element,
    show(state) {
      write(name, state.workload);
      write(about, aboutText(state));
      const parts = [state.story, firstWords(state), whoseFigures(state), trustOf(state)];
      const key = JSON.stringify(parts);
      sentence.setAttribute("aria-busy", String(state.is_partial)); // its end is announced
      if (key !== told) fresh(sentence, ...storyParts(state));
      told = key;
      element.classList.toggle("pf-partial", state.is_partial);
      const shown = state.figures.filter(isShown);
      if (JSON.stringify(shown) !== drawn) fresh(figures, ...shown.map(drawFigure));
      drawn = JSON.stringify(shown);
    },
  };
}

/** @param {HTMLElement} element @param {string} text also its tooltip, as it may be cut */
function write(element, text) {
  if (element.title === text) return;
  fresh(element, text);
  element.title = text;
}

/** @param {Expected} state */
function aboutText(state) {
  const parts = [
    state.parameters !== null && `${readableCount(state.parameters)} weights`,
    state.flops !== null && readableCount(state.flops, "FLOP"),
    state.inputs,
  ];
  return parts.filter(Boolean).join(" · ");
}

/**
 * The sentence in pieces: times, verdict, likely range.
 * @param {string} sentence as Python wrote it
 * @returns {{ before: string, now: string, verdict: string, likely: string }}
 */
export function storyPieces(sentence) {
  const [times = "", verdict = "", likely = ""] = sentence.split(" · ");
  const [before, now] = times.includes(" → ") ? times.split(" → ") : ["", times];
  return { before, now, verdict, likely };
}

/** @param {Expected} state */
function storyParts(state) {
  const { story } = state;
  if (!story?.sentence) return [h("span", { class: "pf-story-first" }, firstWords(state))];
  const { before, now, verdict, likely } = storyPieces(story.sentence);
  const beside = likely || (before ? "" : whoseFigures(state));
  const isRough = !["", "quiet"].includes(trustOf(state));
  const isUntold = isRough || story.tone === "untold";
  return [
    h(
      "span",
      { class: isUntold ? "pf-times pf-untold" : "pf-times" },
      isRough && "≈ ",
      before && `${before} → `,
      h("b", {}, now),
    ),
    verdict && h("em", { class: `pf-verdict pf-${story.tone}`, title: story.sentence }, verdict),
    beside && h("small", { title: likely ? "the 95% interval" : null }, beside),
  ];
}

/**
 * Whether the figures are of the unchanged model.
 * @param {import("./expected.js").Chip[]} recipe
 */
export function isAsItCame(recipe) {
  return recipe.every((chip) => chip.isPending);
}

/**
 * What is said beside a time that is compared with none.
 * @param {Pick<Expected, "recipe" | "status">} state
 */
export function whoseFigures(state) {
  if (isAsItCame(state.recipe)) return "as it came";
  return state.status === "idle" ? "" : RECIPE_IS_MEASURED;
}

/** What stands for the first times. @param {Pick<Expected, "recipe" | "status">} state */
export function firstWords(state) {
  if (state.status === "idle") return "not measured yet";
  return isAsItCame(state.recipe) ? "measuring the first times …" : RECIPE_IS_MEASURED;
}

/** @param {import("./expected.js").Figure} figure */
function isShown(figure) {
  return figure.now !== null && figure.now !== undefined;
}

/** @param {import("./expected.js").Figure} figure */
function drawFigure(figure) {
  const text = figureText(figure);
  const [label, meaning] = FIGURES[figure.name] ?? [capital(figure.name), ""];
  return h(
    "div",
    { title: meaning || null },
    h("dt", {}, label),
    h(
      "dd",
      {},
      text.before && `${text.before} → `,
      h("b", {}, text.now),
      text.change && h("em", { class: `pf-${text.judgement}` }, ` ${text.change}`),
    ),
  );
}

/** @param {string} word */
function capital(word) {
  return word.slice(0, 1).toUpperCase() + word.slice(1);
}
