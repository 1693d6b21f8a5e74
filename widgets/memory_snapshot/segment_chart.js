/** The segments of a moment, a row each, with their blocks; a list for a screen reader. */

import { HoverCard, freshId, indexAfterKey, onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { segmentedControl } from "../shared/segments.js";
import { ROW, blockWords, segmentRows } from "./layout.js";

/** @typedef {import("./layout.js").SegmentMap} SegmentMap */
/** @typedef {import("./layout.js").BlockBox} BlockBox */

export class SegmentChart {
  constructor() {
    this.id = freshId("segments");
    /** @type {SegmentMap[]} */
    this.maps = [];
    this.chosen = 0;
    /** @type {BlockBox[]} */
    this.boxes = [];
    /** @type {SVGElement[]} */
    this.marks = [];
    this.pointed = -1;
    this.choice = h("div", {});
    this.sentence = h("p", { class: "pf-note" });
    this.drawing = s("svg", { class: "pf-svg", role: "listbox", tabindex: "0" });
    this.plot = h("div", { class: "pf-plot" }, this.drawing);
    this.card = new HoverCard(this.plot);
    const head = h("div", { class: "pf-memory-head" }, h("h3", {}, "segments"), this.choice);
    this.element = h("div", { class: "pf-segment-chart" }, head, this.sentence, this.plot);
    set(this.drawing, {
      onpointermove: (event) => this.point(this.under(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(-1),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onblur: () => this.point(-1),
    });
    this.destroy = onWidth(this.plot, (width) => this.draw(width));
  }

  /** @param {SegmentMap[]} maps */
  show(maps) {
    this.maps = maps;
    this.element.hidden = !maps.length;
    const moments = maps.map(
      ({ moment }, at) => /** @type {[string, string]} */ ([`${at}`, moment]),
    );
    const control = segmentedControl("moment of the segments", moments, (name) => {
      control.show(name);
      this.choose(Number(name));
    });
    control.show("0");
    fresh(this.choice, maps.length > 1 && control.element);
    this.choose(0);
  }

  /** @param {number} at */
  choose(at) {
    this.chosen = at;
    fresh(this.sentence, this.maps[at]?.sentence ?? "");
    this.draw(this.plot.clientWidth);
  }

  /** @param {number} width */
  draw(width) {
    const map = this.maps[this.chosen];
    if (!map || width <= 0) return;
    const { rows, boxes, height } = segmentRows(map, width);
    this.boxes = boxes;
    this.pointed = -1;
    this.marks = boxes.map(({ block, x, y, width, height }, index) =>
      s("rect", {
        id: `${this.id}-${index}`,
        role: "option",
        "aria-selected": "false",
        "aria-label": blockWords(block, map).flat(2).join(", "),
        class: `pf-plan-box pf-category-${block.category.replaceAll(" ", "-")}`,
        ...{ x, y, width, height },
      }),
    );
    const frames = rows.map((row) =>
      s(
        "rect",
        { x: 0, y: row.y, width: row.width, height: ROW, class: "pf-segment" },
        s("title", {}, row.label),
      ),
    );
    set(this.drawing, {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      "aria-label": `blocks in segments ${map.moment}`,
    });
    fresh(this.drawing, ...frames, ...this.marks);
    this.mark();
  }

  mark() {
    this.marks.forEach((mark, at) => mark.classList.toggle("pf-pointed-cell", at === this.pointed));
    const box = this.boxes[this.pointed];
    set(this.drawing, { "aria-activedescendant": box ? `${this.id}-${this.pointed}` : null });
    if (!box) return this.card.hide();
    const [heading, line, figures] = blockWords(box.block, this.maps[this.chosen]);
    const spot = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    this.card.show(spot, heading, line, figures);
  }

  /** @param {number} at */
  point(at) {
    if (at === this.pointed) return;
    this.pointed = at;
    this.mark();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const isMove = event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End";
    if (event.key === "Escape") this.point(-1);
    else if (isMove) this.point(indexAfterKey(event.key, this.pointed, this.boxes.length));
    else return;
    event.preventDefault();
  }

  /** @param {PointerEvent} event */
  under(event) {
    const bounds = this.drawing.getBoundingClientRect();
    const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
    return this.boxes.findIndex(
      (box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height,
    );
  }
}
