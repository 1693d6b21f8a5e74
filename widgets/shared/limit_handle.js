/** The line of a memory limit, to drag over a chart or to move by keys. */

import { fresh, h, set } from "./dom.js";
import { readableBytes } from "./format.js";
import { limitAfterKey, limitPlace } from "./memory_limit.js";

/** @typedef {import("./memory_limit.js").MemoryLimit} MemoryLimit */

export class LimitHandle {
  /**
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
    this.track = h("div", { class: "pf-limit-track" });
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
    this.track.append(this.element);
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

  /**
   * Stand over a drawing's first panel, whose axis is of bytes beside so many that are not on it.
   * @param {import("./picture_drawing.js").PictureDrawing | undefined} drawing
   * @param {number} offAxis
   */
  over(drawing, offAxis) {
    const frame = drawing?.frames[0];
    if (!drawing || !frame) return;
    const { left, right, top, bottom, panel } = frame;
    const plot = /** @type {HTMLElement} */ (drawing.plot.firstElementChild);
    if (this.track.parentElement !== plot) plot.append(this.track);
    const [width, height] = [right - left, bottom - top].map((size) => `${size}px`);
    Object.assign(this.track.style, { left: `${left}px`, top: `${top}px`, width, height });
    this.place(offAxis, offAxis + panel[this.axis].high);
  }

  /** @param {number} low @param {number} high */
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
    if (this.before === null || !this.element.hasPointerCapture(event.pointerId)) return;
    const box = this.track.getBoundingClientRect();
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
