/**
 * The chosen layer's channels and threshold beside its facts; and the chosen channels of each
 * layer, for the table.
 */

import { h } from "../shared/dom.js";
import { ChannelChoice } from "../importance/channel_choice.js";
import { isSameData } from "../shared/same_data.js";

export class DetailChannels {
  /** @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(host, model) {
    this.model = model;
    this.data = /** @type {any} */ (null);
    this.choice = new ChannelChoice(host, model);
    this.element = h(
      "section",
      { class: "pf-detail-channels", hidden: true },
      h("h4", {}, "How much its channels matter"),
      this.choice.element,
      this.choice.forecast,
    );
  }

  get isKnown() {
    return this.choice.pictures.size > 0;
  }

  /** Layer → how many channels are to be kept, where they are under a hand or not yet cut. */
  get chosen() {
    return chosenCounts(this.model);
  }

  /** @param {any} data a packed importance; undefined before it is estimated */
  show(data) {
    this.choice.follow();
    if (isSameData(this.data, data ?? null)) return;
    this.data = data ?? null;
    this.choice.take(this.data);
    this.select(this.choice.layer);
  }

  /** @param {string} layer */
  select(layer) {
    this.element.hidden = !this.choice.pictures.has(layer); // first: it is drawn at its width
    this.choice.choose(layer);
  }

  follow() {
    this.choice.follow();
  }

  destroy() {
    this.choice.destroy();
  }
}

/**
 * The chosen channels until the step is applied, which may cut less than requested.
 * @param {any} model @returns {Map<string, number>}
 */
export function chosenCounts(model) {
  const channels = model.get("state")?.channels ?? {};
  /** @type {[string, number][]} */
  const kept = Object.entries(model.get("cut")?.kept ?? {});
  const isOpen = (/** @type {string} */ layer, /** @type {number} */ count) =>
    channels[layer]?.[0] === channels[layer]?.[1] && count !== channels[layer]?.[1];
  const chosen = new Map(kept.filter(([layer, count]) => isOpen(layer, count)));
  const live = model.get("live");
  if (live?.layer) chosen.set(live.layer, live.kept);
  return chosen;
}
