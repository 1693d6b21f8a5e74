/**
 * Layers under the roofs of a machine: the nearer a dot is to its roof, the less there is to gain.
 */

import { plottedPoints, roofGflops, rooflineDots, rooflineFrame } from "./layout.js";
import {
  dotMark,
  dotRing,
  headroom,
  rooflineGrid,
  rooflineLabels,
  rooflineRoofs,
} from "./marks.js";
import { freshId, onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { readablePercent, threeDigits } from "../shared/format.js";
import { boundWord } from "../layers/bounds.js";
import { MarkList } from "../shared/mark_list.js";
import { markPath, nearestDot } from "../shared/points.js";
import { roundedText } from "../shared/scale.js";

/** @typedef {import("./layout.js").Dot} Dot */
/** @typedef {import("./layout.js").Point} Point */
/** @typedef {import("./layout.js").Ceiling} Ceiling */
/**
 * @typedef {{ points: Point[], ceiling: Ceiling, workload?: string, machine?: string }}
 * RooflineData
 */

const BOUNDS = ["compute", "memory", "overhead"];

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @returns
 * {import("../shared/host.js").View}
 */
export function roofline(root, host) {
  return new RooflineView(root, host);
}

class RooflineView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host */
  constructor(root, host) {
    this.host = host;
    this.id = freshId("roofline");
    /** @type {RooflineData | null} */
    this.data = null;
    /** @type {Dot[]} */
    this.dots = [];
    /** @type {import("./layout.js").Frame | null} */
    this.frame = null;
    this.selected = host.selected();
    /** @type {Set<string>} */
    this.hidden = new Set();
    /** @type {SVGElement[]} */
    this.marks = [];
    this.head = h("div", { class: "pf-view-head" });
    this.overlay = s("g", { class: "pf-overlay", "aria-hidden": "true" });
    /** @type {MarkList<string>} */
    this.list = new MarkList({
      order: () => this.dots.map((dot) => dot.layer),
      at: (x, y) => nearestDot(this.dots, x, y)?.layer ?? null,
      mark: () => this.mark(),
      choose: (layer) => this.choose(layer),
      start: () => (this.dotOf(this.selected) ?? this.dots[0])?.layer ?? null,
    });
    this.plot = this.list.plot;
    root.append(
      h(
        "section",
        { class: "pf-view pf-roofline", "aria-label": "roofline" },
        this.head,
        this.plot,
      ),
    );
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  /** @param {RooflineData} data */
  show(data) {
    this.data = data?.ceiling ? { ...data, points: plottedPoints(data.points ?? []) } : null;
    this.plot.hidden = !this.data;
    this.showHead(data?.points?.length ?? 0);
    this.draw(this.plot.clientWidth);
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.mark();
  }

  destroy() {
    this.release();
  }

  /** @param {number} all how many points there are, those too small to draw counted in */
  showHead(all) {
    if (!this.data)
      return fresh(
        this.head,
        h(
          "p",
          { class: "pf-empty" },
          "How near does each layer come to what this machine can do? The profile tells, in seconds.",
        ),
      );
    const { workload, machine, ceiling, points } = this.data;
    const threads = ceiling.threads
      ? `, ${ceiling.threads} thread${ceiling.threads === 1 ? "" : "s"}`
      : "";
    const title = workload
      ? h("h2", {}, `${workload} under the ceilings of ${machine}${threads}`)
      : null;
    const rest = all - points.length;
    const note = h(
      "span",
      { class: "pf-note" },
      `surface: time${rest > 0 ? `; ${rest} of the smallest left out` : ""}`,
    );
    const keys = BOUNDS.map((bound) => this.legendKey(bound)).filter(Boolean);
    return fresh(
      this.head,
      title,
      points.length > 1 && h("div", { class: "pf-legend" }, "limited by ", ...keys, note),
    );
  }

  /**
   * A word of the legend, which takes its dots out and puts them back.
   * @param {string} bound @returns {HTMLElement | null}
   */
  legendKey(bound) {
    const count = this.data?.points.filter((point) => point.bound === bound).length ?? 0;
    if (!count) return null;
    const mark = s("path", { d: markPath(bound, 7, 7, 4.6), class: `pf-dot pf-of-${bound}` });
    const sample = s("svg", { width: 14, height: 14, "aria-hidden": "true" }, mark);
    const toggle = () => {
      if (!this.hidden.delete(bound)) this.hidden.add(bound);
      key.setAttribute("aria-pressed", String(!this.hidden.has(bound)));
      this.draw(this.plot.clientWidth);
    };
    const key = h(
      "button",
      { class: "pf-key", "aria-pressed": String(!this.hidden.has(bound)), onclick: toggle },
      sample,
      `${boundWord(bound)} ${count}`,
    );
    return key;
  }

  /** @param {number} width */
  draw(width) {
    if (!this.data || width <= 0) return;
    const { ceiling, points } = this.data;
    this.frame = rooflineFrame(width, points, ceiling);
    this.dots = rooflineDots(points, this.frame).filter((dot) => !this.hidden.has(dot.bound ?? ""));
    this.marks = this.dots.map((dot, index) =>
      dotMark(dot, `${this.id}-${index}`, this.description(dot).join(", ")),
    );
    const label =
      `${this.dots.length} layers under the ceilings, the costliest first; ` +
      "arrow keys go through them, Enter selects";
    const { drawing } = this.list;
    set(drawing, {
      width,
      height: this.frame.height,
      viewBox: `0 0 ${width} ${this.frame.height}`,
      "aria-label": label,
    });
    const names = rooflineLabels(this.dots, this.frame, ceiling);
    fresh(
      drawing,
      rooflineGrid(this.frame),
      rooflineRoofs(this.frame, ceiling, this.dots),
      ...this.marks,
      names,
      this.emptyNote(),
      this.overlay,
    );
    this.mark();
  }

  /** @returns {SVGElement | false} */
  emptyNote() {
    if (!this.frame || this.data?.points.length) return false;
    const place = {
      x: this.frame.width / 2,
      y: this.frame.bottom - 14,
      class: "pf-tick pf-middle",
    };
    return s("text", place, "no layer that computes and moves bytes");
  }

  /**
   * Redraw only the rings, the line to the roof and the card of the pointed and the selected dot.
   */
  mark() {
    if (!this.frame || !this.data) return;
    const [pointed, selected] = [
      this.dotOf(this.list.pointed),
      this.selected ? this.dotOf(this.selected) : undefined,
    ];
    const shown = pointed ?? selected;
    fresh(
      this.overlay,
      shown && headroom(shown, this.frame, this.data.ceiling),
      selected && dotRing(selected, "pf-ring-selected"),
      pointed && dotRing(pointed, "pf-ring-pointed"),
    );
    this.marks.forEach((mark, index) =>
      mark.setAttribute("aria-selected", String(this.dots[index] === selected)),
    );
    const at = pointed ? this.dots.indexOf(pointed) : -1;
    this.list.describe(at < 0 ? null : `${this.id}-${at}`);
    if (pointed)
      this.list.card.show(
        pointed,
        pointed.layer || "the model itself",
        this.kindOf(pointed),
        this.figures(pointed),
      );
    else this.list.card.hide();
  }

  /** @param {string} layer */
  choose(layer) {
    this.select(layer);
    this.host.select(layer);
  }

  /** @param {string | null} layer @returns {Dot | undefined} */
  dotOf(layer) {
    return layer === null ? undefined : this.dots.find((dot) => dot.layer === layer);
  }

  /** @param {Dot} dot */
  kindOf(dot) {
    return `${dot.kind}${dot.bound ? ` · limited by ${boundWord(dot.bound)}` : ""}`;
  }

  /** @param {Dot} dot @returns {[string, string][]} */
  figures(dot) {
    const reached = dot.gflops / (this.data ? roofGflops(this.data.ceiling, dot.intensity) : 1);
    /** @type {[string, string][]} */
    const roof = reached < 1 ? [[threeDigits(dot.ms * reached), "ms at the ceiling"]] : [];
    return [
      [threeDigits(dot.ms), "ms"],
      ...roof,
      [roundedText(dot.gflops), "GFLOP/s"],
      [roundedText(dot.intensity), "FLOP/byte"],
      [readablePercent(reached), "of the ceiling"],
    ];
  }

  /** @param {Dot} dot @returns {string[]} */
  description(dot) {
    return [
      dot.layer || "the model itself",
      this.kindOf(dot),
      ...this.figures(dot).map(([value, name]) => `${value} ${name}`),
    ];
  }
}
