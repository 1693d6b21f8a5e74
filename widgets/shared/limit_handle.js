/** The line of a memory limit, to drag over a chart or to move by keys. */

import { fresh, h, set } from "./dom.js";
import { readableBytes } from "./format.js";
import { limitAfterKey, limitPlace } from "./memory_limit.js";

/** @typedef {import("./memory_limit.js").MemoryLimit} MemoryLimit */

export class LimitHandle {
  /**
   * The parent of its element is its track: as long as the chart's axis of bytes.
   * @param {MemoryLimit} limit @param {"x" | "y"} axis
   * @param {(bytes: number) => string} words what the limit means, for whoever does not see it
   */
  constructor(limit, axis, words) {
    this.limit = limit;
    this.axis = axis;
    this.words = words;
    this.low = 0;
    this.high = 1;
    /** The limit before a gesture that goes on. @type {number | null} */
    this.before = null;
    this.label = h("span", { class: "pf-limit-label" });
    this.element = h(
      "div",
      {
        class: `pf-limit pf-limit-${axis}`,
        role: "slider",
        tabindex: "0",
        "aria-label": "memory limit",
        "aria-orientation": axis === "x" ? "horizontal" : "vertical",
        title: "drag it, or move it by arrow keys; Enter lets go, Esc puts it back",
      },
      this.label,
    );
    set(this.element, {
      onpointerdown: (event) => this.press(/** @type {PointerEvent} */ (event)),
      onpointermove: (event) => this.drag(/** @type {PointerEvent} */ (event)),
      onpointerup: () => this.letGo(),
      onpointercancel: () => this.putBack(),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onblur: () => this.letGo(),
      onclick: (event) => event.stopPropagation(),
    });
  }

  /** Whether the limit is being moved: the chart keeps its scale until it is let go. */
  get isMoving() {
    return this.before !== null;
  }

  /** Draw it on a track from one size to another. @param {number} low @param {number} high */
  place(low, high) {
    [this.low, this.high] = [low, high];
    const { bytes } = this.limit;
    this.element.hidden = bytes === null;
    if (bytes === null) return;
    const { share, isAbove, isBelow } = limitPlace(bytes, low, high);
    const side = this.axis === "x" ? "left" : "bottom";
    this.element.style[side] = `${(100 * share).toFixed(2)}%`;
    this.element.classList.toggle("pf-limit-late", share > 0.5);
    const arrow = this.axis === "x" ? " →" : " ↑";
    fresh(this.label, `limit ${readableBytes(bytes)}${isAbove ? arrow : isBelow ? " ↓" : ""}`);
    set(this.element, {
      "aria-valuemin": Math.round(low),
      "aria-valuemax": Math.round(high),
      "aria-valuenow": Math.round(Math.min(high, Math.max(low, bytes))),
      "aria-valuetext": `${readableBytes(bytes)}: ${this.words(bytes)}`,
    });
  }

  /** @param {PointerEvent} event */
  press(event) {
    if (event.button !== 0) return;
    this.before ??= this.limit.bytes;
    this.element.setPointerCapture(event.pointerId);
    this.element.focus();
    event.preventDefault();
  }

  /** @param {PointerEvent} event */
  drag(event) {
    const track = this.element.parentElement;
    if (this.before === null || !track || !this.element.hasPointerCapture(event.pointerId)) return;
    const box = track.getBoundingClientRect();
    const share =
      this.axis === "x"
        ? (event.clientX - box.left) / (box.width || 1)
        : (box.bottom - event.clientY) / (box.height || 1);
    const inside = Math.min(1, Math.max(0, share));
    this.limit.set(Math.max(1, Math.round(this.low + inside * (this.high - this.low))), false);
  }

  letGo() {
    if (this.before === null) return;
    const isMoved = this.before !== this.limit.bytes;
    this.before = null;
    if (isMoved) this.limit.set(this.limit.bytes, true);
  }

  putBack() {
    if (this.before === null) return;
    const before = this.before;
    this.before = null;
    this.limit.set(before, false);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { bytes } = this.limit;
    if (bytes === null) return;
    const moved = limitAfterKey(event.key, bytes, this.low, this.high);
    if (moved !== null) {
      this.before ??= bytes;
      this.limit.set(moved, false);
    } else if (event.key === "Enter") this.letGo();
    else if (event.key === "Escape" && this.before !== null) this.putBack();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
