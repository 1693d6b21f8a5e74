/**
 * The chosen layer's channels and threshold beside its facts; and the chosen channels of each
 * layer, for the table.
 */

import { h } from "../shared/dom.js";
import { unserved } from "../shared/host.js";
import { ChannelChoice } from "../importance/gesture.js";
import { unpackedImportance } from "../importance/table.js";
import { isSameData } from "../shared/same_data.js";

const DETAIL_HEIGHT = 150;

export class DetailChannels {
  /**
   * @param {import("../shared/host.js").Host} host @param {any} model @param {() => void} onKept a
   * threshold is on its way
   */
  constructor(host, model, onKept) {
    this.model = model;
    this.data = /** @type {any} */ (null);
    this.choice = new ChannelChoice(host, model, onKept, DETAIL_HEIGHT);
    this.element = h(
      "section",
      { class: "pf-detail-channels", hidden: true },
      h("h4", {}, "How much its channels matter"),
      this.choice.element,
      this.choice.forecast.element,
    );
  }

  get isKnown() {
    return this.choice.table.isKnown;
  }

  /**
   * Layer → how many channels are to be kept, of those that are under a hand, here or in the tab,
   * or chosen and not yet cut.
   * @returns {Map<string, number>}
   */
  get chosen() {
    return chosenCounts(this.model, this.choice.table, this.choice.kept);
  }

  /** @param {any} data a packed importance; undefined before it is estimated */
  show(data) {
    this.choice.follow();
    if (isSameData(this.data, data ?? null)) return;
    this.data = data ?? null;
    this.choice.take(unpackedImportance(this.data));
    this.hide();
  }

  /** @param {string} layer */
  select(layer) {
    this.choice.choose(layer);
    this.hide();
  }

  follow() {
    this.choice.follow();
  }

  destroy() {
    this.choice.destroy();
  }

  hide() {
    this.element.hidden = this.choice.row < 0;
  }
}

/**
 * The chosen channels until the step is applied, which may cut less than requested.
 * @param {any} model @param {import("../importance/table.js").ImportanceTable} table @param
 * {number[]} kept @returns {Map<string, number>}
 */
export function chosenCounts(model, table, kept) {
  const live = model.get("live");
  const asked = /** @type {any[]} */ (unserved(model))
    .filter((request) => request.do === "prune")
    .map((request) => request.layer);
  const isOpen = (/** @type {string} */ layer, /** @type {number} */ row) =>
    asked.includes(layer) ||
    asked.includes("") ||
    (model.get("state")?.channels?.[layer]?.[0] ?? table.channels[row]) === table.channels[row];
  const chosen = new Map();
  table.layers.forEach((layer, row) => {
    if (kept[row] < table.channels[row] && isOpen(layer, row)) chosen.set(layer, kept[row]);
  });
  if (live?.layer) chosen.set(live.layer, live.kept);
  return chosen;
}
