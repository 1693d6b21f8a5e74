/**
 * Beside a threshold: what the cut is predicted to give while the line moves, and what it gave once
 * it was measured.
 */

import { unpackedCoupling } from "../coupling/table.js";
import { removedShares } from "./cut_choice.js";
import { unpackedCutCost } from "./cut_cost.js";
import { cutRows, forecastLine } from "./cut_forecast.js";
import { fresh, h } from "../shared/dom.js";
import { unserved } from "../shared/host.js";
import { PredictionTable } from "../shared/prediction_table.js";
import { isSameData } from "../shared/same_data.js";

/** @typedef {import("./table.js").ImportanceTable} ImportanceTable */

export class ForecastTable {
  /** @param {any} model */
  constructor(model) {
    this.model = model;
    this.data = /** @type {any} */ (undefined);
    this.coupling = unpackedCoupling({});
    this.cost = /** @type {import("./cut_cost.js").CutCost | null} */ (null);
    /** What is predicted, in a line; "" where nothing is. */
    this.line = "";
    this.table = new PredictionTable("what the cut gives, predicted and achieved", "whole model");
    this.note = h("p", { class: "pf-note" });
    this.element = h("div", { class: "pf-foretold" }, this.table.element, this.note);
  }

  /** What is known of the groups; whether that is other than it was. */
  take() {
    const data = this.model.get("views")?.coupling;
    if (isSameData(data, this.data)) return false;
    this.data = data;
    this.coupling = unpackedCoupling(data);
    this.cost = data?.cost ? unpackedCutCost(data.cost, this.coupling) : null;
    return true;
  }

  /**
   * @param {ImportanceTable} table @param {import("./cut_choice.js").Cut | null} gesture what is
   * being dragged
   */
  show(table, gesture) {
    const { state, cut, isOpen } = this.standing(gesture);
    this.element.hidden = !this.cost || !table.isKnown;
    this.table.element.hidden = !cut.is_foretold;
    this.line = "";
    if (!this.cost || this.element.hidden) return;
    fresh(this.note, noteText(cut));
    this.note.hidden = !this.note.textContent;
    if (!cut.is_foretold) return;
    const waiting = isOpen
      ? "after the line is let go, measured"
      : cut.removed.length && state.status !== "idle"
        ? "being measured …"
        : "";
    const rows = cutRows(
      this.cost,
      removedShares(this.model, table, gesture),
      isOpen ? null : cut.achieved,
      latencyOf(state),
    );
    this.table.show(rows, waiting);
    this.line = forecastLine(rows);
  }

  /**
   * What Python sent, and whether more is asked for than it knows of.
   * @param {import("./cut_choice.js").Cut | null} gesture
   */
  standing(gesture) {
    const state = this.model.get("state") ?? {};
    const cut = state.cut ?? { removed: [], is_foretold: true, others: 0, achieved: null };
    return {
      state,
      cut,
      isOpen: gesture !== null || unserved(this.model).some((one) => one.do === "prune"),
    };
  }
}

/** What the model as it is takes, by the header. @param {any} state @returns {number | null} */
function latencyOf(state) {
  return state.figures?.find((/** @type {any} */ one) => one.name === "latency")?.before ?? null;
}

/** What the figures leave out. @param {any} cut */
function noteText(cut) {
  if (!cut.is_foretold)
    return "The recipe also cuts by a rule of its own, of which nothing is predicted here.";
  const { others } = cut;
  return cut.removed.length && others
    ? `What was achieved is with the ${others === 1 ? "other step" : `${others} other steps`} of the recipe; what is predicted is the cut alone.`
    : "";
}
