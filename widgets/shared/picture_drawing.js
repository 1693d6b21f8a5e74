/** The panels of a picture: drawn at a width, gone through by pointer and keys, chosen by layer. */

import { freshId, indexAfterKey, onWidth } from "./chart.js";
import { fresh, h, s, set } from "./dom.js";
import { MarkList } from "./mark_list.js";
import { framesOf, rowAt, spotAt, spotsOf, toneName, wordsOf } from "./picture.js";
import { PictureHandle } from "./picture_handle.js";
import { axisMarks, crossMarks, markRows, reachMark, signOf } from "./picture_marks.js";

/** @typedef {import("./picture.js").Picture} Picture */
/** @typedef {import("./picture.js").Spot} Spot */
/**
 * What a click on a mark does if not to select its layer, what is done with the row of a cursor that
 * is pinned (null for none), after each drawing, and with the stop of a handle.
 * @typedef {{ choose?: (key: string) => void, pin?: (row: number | null) => void,
 *   drawn?: () => void } & import("./picture_handle.js").Moves} Handlers
 */

export class PictureDrawing {
  /** @param {import("./host.js").Host} host @param {Handlers} [handlers] */
  constructor(host, handlers = {}) {
    this.handlers = { choose: (/** @type {string} */ key) => host.select(key), ...handlers };
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
    /** Tones that the legend has taken away. @type {Set<string>} */
    this.hidden = new Set();
    this.kind = "";
    this.figures = h("p", { class: "pf-readout", "aria-hidden": "true" });
    this.handle = new PictureHandle(this.figures, handlers);
    this.plot = h("div", {});
    this.cross = s("g", { class: "pf-overlay", "aria-hidden": "true" });
    this.legend = h("div", { class: "pf-legend" });
    this.element = h("div", { class: "pf-picture" }, this.figures, this.plot, this.legend);
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  /** @param {Picture | null} data */
  show(data) {
    this.data = data;
    this.element.hidden = !data?.rows.length;
    if (!data) return;
    const listed = data.rows.flatMap((row) => row.flatMap((panel) => panel.marks));
    const isListed = listed.some((mark) => mark.tips);
    const hasHandle = data.rows.some((row) => row.some((panel) => panel.handle));
    const isListbox = isListed ? "listbox" : "img";
    const kind = hasHandle ? "handle" : data.cursor ? "slider" : isListbox;
    this.figures.hidden = !data.cursor && !hasHandle;
    if ((this.pinned ?? 0) >= (data.cursor?.at.length ?? 0)) this.pinned = null;
    const tones = new Set(listed.filter((mark) => mark.tips).flatMap((mark) => mark.tone));
    set(this.legend, { "aria-hidden": tones.size === 0 && "true" });
    fresh(this.legend, ...data.legend.map((key) => this.keyOf(key, tones.has(key[0]))));
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
    this.drawing =
      kind === "handle" ? this.handle.drawing : (this.list?.drawing ?? this.plain(kind));
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

  /** The layer of the mark that is pointed at. */
  get pointedKey() {
    return this.list?.pointed?.key ?? "";
  }

  /** @param {string} key */
  select(key) {
    this.selected = key;
    this.mark();
  }

  /** @param {string} key */
  choose(key) {
    this.select(key);
    this.handlers.choose(key);
  }

  /** Describe a row of the cursor until another is pointed at, or put the handle on a stop. @param {number | null} row */
  place(row) {
    this.pinned = row;
    if (row !== null) this.handle.show(row);
    this.mark();
  }

  destroy() {
    this.release();
    this.handle.destroy();
  }

  /** @param {number} width */
  draw(width) {
    if (!this.data || !this.drawing || width <= 0) return;
    const { frames, height } = framesOf(width, this.data);
    this.frames = frames;
    const before = this.list?.pointed ?? null;
    const place = before ? [...this.options.keys()].indexOf(before) : -1;
    const spots = spotsOf(frames);
    const isHidden = (/** @type {Spot} */ { mark, row }) => this.hidden.has(toneName(mark, row));
    const gone = new Set(spots.filter(isHidden).map((spot) => spot.key));
    let next = 0;
    this.options.clear();
    const panels = frames.flatMap((frame) => [
      axisMarks(frame),
      ...frame.panel.marks.map((mark) => {
        const rows = markRows(mark, frame);
        if (!mark.tips) {
          const kept = rows.filter((_, row) => mark.mark !== "Names" || !gone.has(mark.key[row]));
          return s("g", { class: "pf-overlay", "aria-hidden": "true" }, ...kept);
        }
        const kept = rows.filter((row, index) => {
          const spot = spots[next];
          if (spot?.mark !== mark || spot.row !== index) return false; // it has no place
          next += 1;
          if (!isHidden(spot)) this.option(row, spot, index);
          return this.options.has(spot);
        });
        return s("g", { role: "presentation" }, ...kept);
      }),
    ]);
    // what is pointed at stays so while a picture is shown again and again
    const now = [...this.options.keys()][place];
    if (this.list) this.list.pointed = isSame(before, now) ? now : null;
    set(this.drawing, { width, height, viewBox: `0 0 ${width} ${height}` });
    fresh(this.drawing, ...panels, this.kind === "handle" ? this.handle.element : this.cross);
    const held = frames.find(({ panel }) => panel.handle);
    /** @type {NodeListOf<SVGElement>} */
    const boxes = this.drawing.querySelectorAll(".pf-pic-box");
    if (held) this.handle.draw(held, [...boxes]);
    this.mark();
    this.handlers.drawn?.();
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

  /** A tone of the legend; a press takes what has tooltips away, and another brings it back.
   * @param {Picture["legend"][number]} key @param {boolean} isListed */
  keyOf([tone, name, shape], isListed) {
    const look = `pf-tone-${tone.replaceAll(" ", "-")}`;
    const sign = shape ? signOf(shape, look) : h("i", { class: `pf-pic-key ${look}` });
    if (!isListed) return h("span", { class: "pf-group-key" }, sign, name);
    const key = h("button", { type: "button", class: "pf-group-key pf-key" }, sign, name);
    const press = () => set(key, { "aria-pressed": String(!this.hidden.has(tone)) });
    press();
    return set(key, {
      onclick: () => {
        if (!this.hidden.delete(tone)) this.hidden.add(tone);
        press();
        this.draw(this.plot.clientWidth);
      },
    });
  }

  mark() {
    if (this.list) this.markSpots(this.list);
    else if (this.kind !== "handle") this.markRow();
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
    const shown = pointed ?? [...this.options.keys()].find(({ key }) => key === this.selected);
    const frame = shown && this.frames.find(({ panel }) => panel.marks.includes(shown.mark));
    fresh(this.cross, frame && shown.mark.reach && reachMark(shown, frame));
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
    this.pointed = null;
    this.place(row);
    this.handlers.pin?.(row);
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
    if (event.key === "Escape" && (this.pointed ?? this.pinned) !== null) this.pin(null);
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

/** @param {Spot | null} before @param {Spot | undefined} now */
function isSame(before, now) {
  if (!before?.mark.tips || !now?.mark.tips) return false;
  return wordsOf(before.mark.tips, before.row)[0] === wordsOf(now.mark.tips, now.row)[0];
}
