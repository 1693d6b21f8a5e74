/** What is asked of Python while a threshold is dragged, and chosen at its end. */

import { unserved } from "../shared/host.js";
import { throttle } from "../shared/throttle.js";

/** @typedef {{ layer: string, threshold: number, kept: number }} Threshold `layer`: "" for all */

const LIVE_EVERY_MS = 100;

/** Whether a chosen threshold is not yet Python's: until then the page keeps its own. @param {any} model */
export function isAsked(model) {
  return unserved(model).some((request) => request.do === "prune" || request.do === "keep");
}

export class LiveThreshold {
  /** @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(host, model) {
    this.host = host;
    this.model = model;
    this.messages = throttle(LIVE_EVERY_MS, (/** @type {Threshold} */ threshold) => {
      model.set("live", threshold);
      model.save_changes();
    });
  }

  /** @param {Threshold} threshold */
  tell(threshold) {
    this.messages.tell(threshold);
  }

  /** The end of a gesture, which is one choice; null where it was given up. @param {Threshold | null} threshold */
  end(threshold) {
    this.messages.drop();
    this.model.set("live", {});
    const isInBench = Boolean(this.model.get("state"));
    if (threshold) this.host.ask({ do: isInBench ? "prune" : "keep", ...threshold });
    else this.model.save_changes();
  }

  destroy() {
    this.messages.drop();
  }
}

/** @param {import("../shared/picture.js").Handle} handle @param {number} row @param {string} layer @returns {Threshold} */
export function thresholdAt({ figures: [kept, threshold] }, row, layer) {
  return { layer, threshold: Number(threshold.values[row]), kept: Number(kept.values[row]) };
}
