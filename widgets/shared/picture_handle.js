/** The line of a panel that is moved up and down, by pointer or keys, from stop to stop. */

import { fresh, h, s, set } from "./dom.js";
import { afterRest } from "./pause.js";
import { figuresAt, nearestStop, stopAfterKey } from "./picture.js";
import { clamped } from "./scale.js";

/** @typedef {import("./picture.js").Handle} Handle */
/** @typedef {import("./picture.js").Frame} Frame */
/** `move`: on the way; `settle`: the gesture has ended, null where it was given up. @typedef {{ move?: (row: number) => void, settle?: (row: number | null) => void }} Moves */

const TOUCH_REACH = 22; // how near a finger has to come to the line; elsewhere it scrolls the page

export class PictureHandle {
  /** @param {HTMLElement} figures @param {Moves} moves */
  constructor(figures, moves) {
    this.figures = figures;
    this.moves = moves;
    this.row = 0;
    /** @type {Handle | null} */
    this.handle = null;
    /** @type {Frame | null} */
    this.frame = null;
    /** @type {SVGElement[]} */
    this.boxes = [];
    /** The start of a gesture; null between gestures. @type {{ row: number, pointer: number | null } | null} */
    this.gesture = null;
    this.line = s("line", { class: "pf-handle-line" });
    this.grab = s("line", { class: "pf-handle-grab" });
    const [x, y] = [-15, -7];
    const bar = s("rect", { x, y, width: 30, height: 14, rx: 7 });
    const grip = s("path", { d: "M-5 -2H5M-5 2H5" });
    this.grip = s("g", { class: "pf-handle-grip" }, bar, grip);
    this.element = s("g", { "aria-hidden": "true" }, this.line, this.grab, this.grip);
    this.drawing = s("svg", {
      class: "pf-svg pf-pic-handle",
      role: "slider",
      tabindex: "0",
      "aria-orientation": "vertical",
    });
    this.rest = afterRest(() => this.settle());
    set(this.drawing, {
      onpointerdown: (event) => this.press(/** @type {PointerEvent} */ (event)),
      onpointermove: (event) => this.drag(/** @type {PointerEvent} */ (event)),
      onpointerup: () => this.settle(),
      onpointercancel: () => this.settle(),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onkeyup: () => this.gesture?.pointer === null && this.rest.wait(),
      // keys wait on: what settles draws anew, and would take the click that ends the focus
      onblur: () => (this.gesture?.pointer === null ? this.rest.wait() : this.settle()),
    });
  }

  /** Whether it is under a hand: what it stands on is not drawn anew. */
  get isMoving() {
    return this.gesture !== null;
  }

  get canMove() {
    return (this.handle?.at.length ?? 0) > 1;
  }

  /** @param {Frame} frame @param {SVGElement[]} boxes of the panel, whose tones follow it */
  draw(frame, boxes) {
    const isOther = this.handle !== frame.panel.handle;
    this.handle = frame.panel.handle;
    [this.frame, this.boxes] = [frame, boxes];
    if (isOther) [this.row, this.gesture] = [this.handle?.start ?? 0, null];
    set(this.element, { class: `pf-tone-${this.handle?.tone}` });
    const ends = { x1: frame.left, x2: frame.right };
    for (const line of [this.line, this.grab]) set(line, ends);
    this.place();
  }

  /** @param {number} row */
  show(row) {
    if (this.isMoving || !this.handle) return;
    this.row = clamped(row, 0, this.handle.at.length - 1);
    this.place();
  }

  /** Only a few attributes change, to keep up with the pointer. */
  place() {
    const { handle, frame, row } = this;
    if (!handle || !frame) return;
    const y = frame.y(handle.at[row]);
    for (const line of [this.line, this.grab]) set(line, { y1: y, y2: y });
    const grip = `translate(${frame.right - 22} ${Math.min(y, frame.bottom - 9)})`;
    set(this.grip, { transform: grip, display: this.canMove ? false : "none" });
    this.boxes.forEach((box, at) => {
      const tone = handle.tones[at < handle.boxes[row] ? 0 : 1];
      set(box, { class: `pf-pic-box pf-tone-${tone}` });
    });
    const [what, ...more] = figuresAt(handle.figures, row).map((parts) => parts.join(" "));
    fresh(this.figures, h("b", {}, what), h("span", {}, more.join(" ")));
    set(this.drawing, {
      "aria-valuemin": 0,
      "aria-valuemax": handle.at.length - 1,
      "aria-valuenow": handle.at.length - 1 - row,
      "aria-valuetext": what,
      "aria-disabled": String(!this.canMove),
    });
    this.drawing.classList.toggle("pf-is-dragging", this.isMoving);
  }

  destroy() {
    this.rest.drop();
  }

  // Private to the handle.

  /** @param {PointerEvent} event */
  press(event) {
    const { handle, frame } = this;
    if (!handle || !frame || !this.canMove || event.button !== 0 || this.gesture?.pointer) return;
    const off = Math.abs(this.heightOf(event) - frame.y(handle.at[this.row]));
    if (event.pointerType === "touch" && off > TOUCH_REACH) return;
    event.preventDefault();
    this.drawing.focus({ preventScroll: true });
    this.drawing.setPointerCapture(event.pointerId);
    this.gesture = { row: this.gesture?.row ?? this.row, pointer: event.pointerId };
    this.drag(event);
  }

  /** @param {PointerEvent} event */
  drag(event) {
    const { handle, frame, gesture } = this;
    if (handle && frame && gesture?.pointer === event.pointerId)
      this.move(nearestStop(handle.at, frame.y, this.heightOf(event)));
  }

  /** @param {number} row */
  move(row) {
    this.rest.drop();
    this.row = row;
    this.place();
    this.moves.move?.(row);
  }

  settle() {
    this.rest.drop();
    if (!this.gesture) return;
    const isMoved = this.gesture.row !== this.row;
    this.gesture = null;
    this.place();
    this.moves.settle?.(isMoved ? this.row : null);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.canMove) return;
    const next = stopAfterKey(event.key, this.row, this.handle?.at.length ?? 0);
    if (event.key === "Escape" && this.gesture) {
      this.row = this.gesture.row;
      this.settle();
    } else if (next !== null) {
      this.gesture ??= { row: this.row, pointer: null };
      this.move(next);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {PointerEvent} event */
  heightOf(event) {
    return event.clientY - this.drawing.getBoundingClientRect().top;
  }
}
