/** The panels of a picture: drawn at a width, gone through by pointer and keys, chosen by layer. */

import { freshId, indexAfterKey, onWidth } from "./chart.js";
import { fresh, h, s, set } from "./dom.js";
import { MarkList } from "./mark_list.js";
import { framesOf, rowAt, spotAt, spotsOf, wordsOf } from "./picture.js";
import { axisMarks, crossMarks, markRows } from "./picture_marks.js";

/** @typedef {import("./picture.js").Picture} Picture */
/** @typedef {import("./picture.js").Spot} Spot */

export class PictureDrawing {
  /** @param {import("./host.js").Host} host */
  constructor(host) {
    this.host = host;
    this.id = freshId("picture");
    this.selected = host.selected();
    /** @type {Picture | null} */
    this.data = null;
    /** @type {import("./picture.js").Frame[]} */
    this.frames = [];
    /** @type {Map<Spot, SVGElement>} */
    this.options = new Map();
    /** @type {number | null} */
    this.pointed = null;
    /** @type {number | null} */
    this.pinned = null;
    this.kind = "";
    this.figures = h("p", { class: "pf-readout", "aria-hidden": "true" });
    this.plot = h("div", {});
    this.cross = s("g", { class: "pf-overlay", "aria-hidden": "true" });
    this.legend = h("div", { class: "pf-legend", "aria-hidden": "true" });
    this.element = h("div", { class: "pf-picture" }, this.figures, this.plot, this.legend);
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  /** @param {Picture | null} data */
  show(data) {
    this.data = data;
    this.element.hidden = !data?.rows.length;
    if (!data) return;
    const isListed = data.rows.flat().some((panel) => panel.marks.some((mark) => mark.tips));
    const kind = data.cursor ? "slider" : isListed ? "listbox" : "img";
    this.figures.hidden = !data.cursor;
    fresh(this.legend, ...data.legend.map(([tone, name]) => keyOf(tone, name)));
    if (kind !== this.kind) this.build(kind);
    set(/** @type {SVGElement} */ (this.drawing), { "aria-label": data.label });
    this.draw(this.plot.clientWidth);
  }

  /** The drawing: a slider over the rows of a cursor, a list of marks, or an image. @param {string} kind */
  build(kind) {
    this.kind = kind;
    /** @type {MarkList<Spot> | null} */
    this.list =
      kind !== "listbox"
        ? null
        : new MarkList({
            order: () => [...this.options.keys()],
            at: (x, y) => spotAt([...this.options.keys()], x, y),
            mark: () => this.mark(),
            choose: (spot) => spot.key && this.choose(spot.key),
          });
    this.drawing = this.list?.drawing ?? this.plain(kind);
    fresh(this.plot, this.list?.plot ?? h("div", { class: "pf-plot" }, this.drawing));
  }

  /** @param {string} role @returns {SVGElement} */
  plain(role) {
    const svg = s("svg", { class: `pf-svg pf-pic-${role}`, role });
    if (role === "img") return svg;
    return set(svg, {
      tabindex: "0",
      onpointermove: (event) => this.point(this.under(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(null),
      onclick: (event) => this.pin(this.under(/** @type {PointerEvent} */ (event))),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
    });
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.mark();
  }

  /** @param {string} layer */
  choose(layer) {
    this.select(layer);
    this.host.select(layer);
  }

  destroy() {
    this.release();
  }

  /** @param {number} width */
  draw(width) {
    if (!this.data || !this.drawing || width <= 0) return;
    const { frames, height } = framesOf(width, this.data);
    this.frames = frames;
    if (this.list) this.list.pointed = null;
    const spots = spotsOf(frames);
    this.options.clear();
    const panels = frames.flatMap((frame) => [
      axisMarks(frame),
      ...frame.panel.marks.map((mark) => {
        const rows = markRows(mark, frame);
        if (!mark.tips) return s("g", { class: "pf-overlay", "aria-hidden": "true" }, ...rows);
        rows.forEach((row, index) => this.option(row, spots[this.options.size], index));
        return s("g", { role: "presentation" }, ...rows);
      }),
    ]);
    set(this.drawing, { width, height, viewBox: `0 0 ${width} ${height}` });
    fresh(this.drawing, ...panels, this.cross);
    this.mark();
  }

  /** @param {SVGElement} element @param {Spot} spot @param {number} row */
  option(element, spot, row) {
    if (!spot.mark.tips) return;
    const [heading, line, figures] = wordsOf(spot.mark.tips, row);
    const words = [heading, line, ...figures.map((figure) => figure.join(" "))].filter(Boolean);
    set(element, {
      id: `${this.id}-${this.options.size}`,
      role: "option",
      "aria-selected": "false",
      "aria-label": words.join(", "),
    });
    this.options.set(spot, element);
  }

  mark() {
    if (this.list) this.markSpots(this.list);
    else this.markRow();
  }

  /** @param {MarkList<Spot>} list */
  markSpots({ pointed, card, ...list }) {
    for (const [spot, element] of this.options) {
      const isIts = spot.key === this.selected || spot.key.startsWith(`${this.selected}.`);
      element.setAttribute("aria-selected", String(Boolean(this.selected) && isIts));
      element.classList.toggle("pf-pic-pointed", spot === pointed);
    }
    set(list.drawing, {
      "aria-activedescendant": (pointed && this.options.get(pointed)?.id) ?? false,
    });
    if (!pointed?.mark.tips) return card.hide();
    const middle = { x: pointed.x + pointed.width / 2, y: pointed.y + pointed.height / 2 };
    card.show(middle, ...wordsOf(pointed.mark.tips, pointed.row));
  }

  /** The row of the cursor that is described. */
  get row() {
    return this.pointed ?? this.pinned ?? this.data?.cursor?.start ?? 0;
  }

  markRow() {
    const cursor = this.data?.cursor;
    if (!cursor || !this.drawing) return;
    const at = cursor.at[this.row];
    const isChosen = this.pointed !== null || this.pinned !== null;
    fresh(this.cross, ...(isChosen ? this.frames.flatMap((frame) => crossMarks(frame, at)) : []));
    const [heading, line, figures] = wordsOf(cursor.tips, this.row);
    /** @type {[string, string][]} */
    const words = [[heading, line && `· ${line}`], ...figures];
    fresh(
      this.figures,
      ...words.map(([value, name]) => h("span", {}, h("b", {}, value), ` ${name}`)),
    );
    set(this.drawing, {
      "aria-valuemin": cursor.at[0],
      "aria-valuemax": cursor.at[cursor.at.length - 1],
      "aria-valuenow": at,
      "aria-valuetext": words.map(([value, name]) => `${value} ${name}`.trim()).join(", "),
    });
  }

  /** @param {number | null} row */
  point(row) {
    if (row === this.pointed) return;
    this.pointed = row;
    this.mark();
  }

  /** @param {number | null} row */
  pin(row) {
    this.pinned = row;
    this.pointed = null;
    this.mark();
  }

  /** A slider's keys, a hundredth of the rows at a time. @param {KeyboardEvent} event */
  key(event) {
    const count = this.data?.cursor?.at.length ?? 0;
    const stride = Math.max(1, Math.floor(count / 100));
    /** @type {Record<string, string>} */
    const turned = { ArrowUp: "ArrowRight", ArrowDown: "ArrowLeft" };
    const at = Math.floor(this.row / stride);
    const key = turned[event.key] ?? event.key;
    const next = indexAfterKey(key, at, Math.ceil(count / stride));
    if (event.key === "Escape") this.pin(null);
    else if (next !== at && next >= 0) this.pin(Math.min(count - 1, next * stride));
    else return;
    event.preventDefault();
  }

  /** @param {PointerEvent} event @returns {number | null} */
  under(event) {
    const box = /** @type {SVGElement} */ (this.drawing).getBoundingClientRect();
    const cursor = this.data?.cursor;
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return cursor ? rowAt(cursor, this.frames, x, y) : null;
  }
}

/** A line of the legend. @param {string} tone @param {string} name */
function keyOf(tone, name) {
  const class_ = `pf-pic-key pf-tone-${tone.replaceAll(" ", "-")}`;
  return h("span", { class: "pf-group-key" }, h("i", { class: class_ }), name);
}
