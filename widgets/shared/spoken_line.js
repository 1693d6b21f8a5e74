/** A line that follows what runs: shown at once, told to a screen reader so seldom that it can be listened to. */

import { fresh, h } from "./dom.js";

const SPOKEN_EVERY_MS = 10000;

export class SpokenLine {
  constructor() {
    this.spoken = 0;
    this.shown = h("p", { class: "pf-line", "aria-hidden": "true" });
    this.heard = h("p", { class: "pf-heard", role: "status", "aria-live": "polite" });
    this.element = h("div", {}, this.shown, this.heard);
  }

  /** @param {string} text @param {boolean} isNews whether it is told at once */
  tell(text, isNews) {
    fresh(this.shown, text);
    const now = Date.now();
    if (!isNews && now - this.spoken < SPOKEN_EVERY_MS) return;
    this.spoken = now;
    fresh(this.heard, text);
  }
}
