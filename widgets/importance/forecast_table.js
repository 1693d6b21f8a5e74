/**
 * The table beside a threshold: predicted figures while the line moves, and achieved ones once
 * measured.
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
    /** The prediction in a line; "" if there is none. */
    this.line = "";
    this.table = new PredictionTable("what the cut gives, predicted and achieved", "whole model");
    this.note = h("p", { class: "pf-note" });
    this.element = h("div", { class: "pf-forecast" }, this.table.element, this.note);
  }

  /** Update the coupling; returns whether it changed. */
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
    this.table.element.hidden = !cut.is_predicted;
    this.line = "";
    if (!this.cost || this.element.hidden) return;
    fresh(this.note, noteText(cut));
    this.note.hidden = !this.note.textContent;
    if (!cut.is_predicted) return;
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
   * The cut that Python sent, and whether requests are pending.
   * @param {import("./cut_choice.js").Cut | null} gesture
   */
  standing(gesture) {
    const state = this.model.get("state") ?? {};
    const cut = state.cut ?? { removed: [], is_predicted: true, others: 0, achieved: null };
    return {
      state,
      cut,
      isOpen: gesture !== null || unserved(this.model).some((request) => request.do === "prune"),
    };
  }
}

/** The baseline's latency, from the header. @param {any} state @returns {number | null} */
function latencyOf(state) {
  return (
    state.figures?.find((/** @type {any} */ figure) => figure.name === "latency")?.before ?? null
  );
}

/** A note on what the figures do not include. @param {any} cut */
function noteText(cut) {
  if (!cut.is_predicted)
    return "The recipe also cuts by a rule of its own, of which nothing is predicted here.";
  const { others } = cut;
  const steps = others === 1 ? "other step" : `${others} other steps`;
  return cut.removed.length && others
    ? `Achieved values include the ${steps} of the recipe; predicted ones are the cut alone.`
    : "";
}
