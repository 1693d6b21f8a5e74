/** A table of predicted and achieved values and their difference, one row per quantity. */

import { fresh, h } from "./dom.js";

/**
 * @typedef {{ name: string, predicted: string, achieved: string, error: string, hint?: string }}
 * PredictionRow "" where nothing is known
 */

export class PredictionTable {
  /**
   * @param {string} label what it is about, for whoever does not see it @param {string} [corner]
   */
  constructor(label, corner = "") {
    this.corner = corner;
    this.drawn = "";
    this.element = h("table", { class: "pf-prediction", "aria-label": label });
  }

  /**
   * @param {PredictionRow[]} rows @param {string} [waiting] why nothing is known yet of what was
   * achieved
   */
  show(rows, waiting = "") {
    const key = JSON.stringify([rows, waiting]);
    if (key === this.drawn) return;
    this.drawn = key;
    const heads = ["predicted", "achieved", "error"].map((name) => h("th", { scope: "col" }, name));
    const hint = rows.some((row) => row.achieved) ? "" : waiting;
    fresh(
      this.element,
      h(
        "thead",
        {},
        h("tr", {}, h("td", { class: "pf-prediction-corner" }, this.corner), ...heads),
      ),
      h("tbody", {}, ...rows.map((row) => predictionRow(row, hint))),
    );
  }
}

/** @param {PredictionRow} row @param {string} waiting */
function predictionRow({ name, predicted, achieved, error, hint }, waiting) {
  const later = waiting && predicted && !achieved;
  return h(
    "tr",
    {},
    h("th", { scope: "row", title: hint }, name),
    h("td", {}, predicted || "–"),
    h(
      "td",
      { title: later && waiting, class: later && "pf-prediction-later" },
      later ? "…" : achieved || "–",
    ),
    h("td", { class: "pf-prediction-error" }, error || "–"),
  );
}
