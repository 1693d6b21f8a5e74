/** Predicted against measured: a dot a layer and format, on two equal logarithmic axes. */

import { agreementFrame, agreementPairs, pairDots } from "./agreement_layout.js";
import { quantityOf } from "./table.js";
import { onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { heatText } from "../shared/heat_scale.js";
import { markPath, nearestDot, reachOf } from "../shared/points.js";

/** A shape beside the colour, for eyes and printers without it; names of the roofline's shapes. */
const SHAPES = ["compute", "memory", "overhead", null];

/** @typedef {import("./agreement_layout.js").PairDot} PairDot */

export class AgreementChart {
  /**
   * @param {{ onLayer: (layer: string) => void, onPoint: (dot: PairDot | null, mark: Element) =>
   * void }} handlers
   */
  constructor(handlers) {
    this.handlers = handlers;
    /** @type {import("./table.js").SensitivityTable | null} */
    this.table = null;
    /** @type {PairDot[]} */
    this.dots = [];
    /** @type {import("./agreement_layout.js").AgreementFrame | null} */
    this.frame = null;
    /** @type {PairDot | null} */
    this.pointed = null;
    this.selected = "";
    this.drawing = s("svg", { class: "pf-svg", role: "img" });
    this.overlay = s("g", { class: "pf-overlay" });
    this.plot = h("div", { class: "pf-plot" }, this.drawing);
    this.legend = h("ul", { class: "pf-agreements" });
    this.words = h("div", { class: "pf-unmeasured" });
    this.element = h(
      "div",
      { class: "pf-agreement" },
      h("h3", {}, "Predicted against measured"),
      this.plot,
      this.legend,
      this.words,
    );
    set(this.drawing, {
      onpointermove: (event) => this.point(this.dotUnder(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(null),
      onclick: () =>
        this.pointed && this.table && handlers.onLayer(this.table.layers[this.pointed.row]),
    });
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  /** @param {import("./table.js").SensitivityTable} table */
  show(table) {
    this.table = table;
    this.pairs = agreementPairs(table);
    this.pointed = null;
    this.plot.hidden = this.legend.hidden = !this.pairs.length;
    fresh(this.words, ...(this.pairs.length ? agreementWords(this.pairs) : unmeasuredWords(table)));
    fresh(this.legend, ...table.formats.map((name, format) => this.legendItem(name, format)));
    set(this.drawing, { "aria-label": agreementLabel(table, this.pairs.length) });
    this.draw(this.plot.clientWidth);
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.mark();
  }

  /**
   * Show a layer's dot of a format, pointed at elsewhere.
   * @param {number | null} row @param {number} format
   */
  follow(row, format) {
    this.pointed = this.dots.find((dot) => dot.row === row && dot.format === format) ?? null;
    this.mark();
  }

  destroy() {
    this.release();
  }

  /** @param {number} width */
  draw(width) {
    if (!this.table || !this.pairs?.length || width <= 0) return;
    const frame = agreementFrame(Math.min(width, 420), this.pairs);
    this.frame = frame;
    this.dots = pairDots(this.pairs, frame);
    set(this.drawing, {
      width: frame.width,
      height: frame.height,
      viewBox: `0 0 ${frame.width} ${frame.height}`,
    });
    fresh(
      this.drawing,
      agreementAxes(frame, quantityOf(this.table)),
      ...this.dots.map(pairMark),
      this.overlay,
    );
    this.mark();
  }

  mark() {
    const { table, frame } = this;
    if (!table || !frame) return;
    const chosen = this.dots.filter(
      (dot) => this.selected && table.layers[dot.row] === this.selected,
    );
    const rings = chosen.map((dot) =>
      s("circle", { cx: dot.x, cy: dot.y, r: 7, class: "pf-ring-selected" }),
    );
    fresh(this.overlay, ...rings, ...(this.pointed ? errorBars(this.pointed, frame) : []));
  }

  /** @param {PairDot | null} dot */
  point(dot) {
    if (dot === this.pointed) return;
    this.pointed = dot;
    this.drawing.classList.toggle("pf-is-pointing", dot !== null);
    this.mark();
    this.handlers.onPoint(dot, this.drawing);
  }

  /** @param {PointerEvent} event */
  dotUnder(event) {
    const box = this.drawing.getBoundingClientRect();
    return /** @type {PairDot | null} */ (
      nearestDot(
        /** @type {any[]} */ (this.dots),
        event.clientX - box.left,
        event.clientY - box.top,
      )
    );
  }

  /** @param {string} name @param {number} format */
  legendItem(name, format) {
    const rank = this.table?.agreement[name];
    const sign = s(
      "svg",
      { width: 12, height: 12, "aria-hidden": "true" },
      s("path", { d: shapeOf(format, 6, 6, 4), class: seriesOf(format) }),
    );
    return h(
      "li",
      {},
      sign,
      h("span", {}, name),
      h("b", {}, rank === undefined ? "–" : rank.toFixed(2)),
    );
  }
}

/** @param {number} format */
function seriesOf(format) {
  return `pf-series pf-series-${format % 6}`;
}

/** @param {number} format @param {number} x @param {number} y @param {number} radius */
function shapeOf(format, x, y, radius) {
  return markPath(SHAPES[format % SHAPES.length], x, y, radius);
}

/** @param {PairDot} dot */
function pairMark(dot) {
  return s("path", {
    d: shapeOf(dot.format, dot.x, dot.y, dot.radius),
    class: `${seriesOf(dot.format)}${dot.isBelow ? " pf-hollow" : ""}`,
  });
}

/** @param {PairDot} dot @param {import("./agreement_layout.js").AgreementFrame} frame */
function errorBars(dot, frame) {
  const across = reachOf(dot.predicted, dot.predictedError, frame.x, frame.left, frame.right);
  const up = reachOf(dot.measured, dot.measuredError, frame.y, frame.bottom, frame.top);
  return [
    across &&
      s("line", { x1: across[0], x2: across[1], y1: dot.y, y2: dot.y, class: "pf-error-bar" }),
    up && s("line", { x1: dot.x, x2: dot.x, y1: up[0], y2: up[1], class: "pf-error-bar" }),
    s("circle", { cx: dot.x, cy: dot.y, r: 7, class: "pf-ring-pointed" }),
  ];
}

/** @param {import("./agreement_layout.js").AgreementFrame} frame @param {string} quantity */
function agreementAxes(frame, quantity) {
  const { left, right, top, bottom, x, y } = frame;
  const marks = frame.ticks.flatMap((tick) => [
    s("line", { x1: left, x2: right, y1: y(tick), y2: y(tick), class: "pf-gridline" }),
    s("line", { x1: x(tick), x2: x(tick), y1: top, y2: bottom, class: "pf-gridline" }),
    s("text", { x: left - 7, y: y(tick) + 4, class: "pf-tick pf-end" }, heatText(tick)),
    s("text", { x: x(tick), y: bottom + 14, class: "pf-tick pf-middle" }, heatText(tick)),
  ]);
  const equal = s("path", { d: `M${left} ${bottom}L${right} ${top}`, class: "pf-equal" });
  const names = [
    s(
      "text",
      { x: (left + right) / 2, y: bottom + 30, class: "pf-tick pf-middle" },
      `predicted ${quantity}`,
    ),
    s(
      "text",
      {
        x: 0,
        y: 0,
        transform: `translate(10 ${(top + bottom) / 2}) rotate(-90)`,
        class: "pf-tick pf-middle",
      },
      "measured",
    ),
  ];
  return s("g", { "aria-hidden": "true" }, ...marks, equal, ...names);
}

/** @param {import("./agreement_layout.js").Pair[]} pairs */
function agreementWords(pairs) {
  const below = pairDots(pairs, agreementFrame(300, pairs)).filter((dot) => dot.isBelow).length;
  const words =
    "After each format: the rank correlation of prediction and measurement (1: the same order); " +
    "the line is equality.";
  const rest = below
    ? ` Hollow, at the edge: ${below} of ${pairs.length} are negative, 0 or below the scale.`
    : "";
  return [h("p", { class: "pf-note" }, words + rest)];
}

/** @param {import("./table.js").SensitivityTable} table */
function unmeasuredWords(table) {
  if (table.method === "ablation")
    return [
      h(
        "p",
        { class: "pf-note" },
        "Each cell was measured by itself; there is no prediction to hold against it.",
      ),
    ];
  const code = `lab.sensitivity(work, methods=("${table.method}", "ablation"))`;
  return [
    h(
      "p",
      { class: "pf-note" },
      "Not measured: the quality of the prediction is not known yet. " +
        "This measures it, one layer and format at a time:",
    ),
    h("code", {}, code),
  ];
}

/** @param {import("./table.js").SensitivityTable} table @param {number} count */
function agreementLabel(table, count) {
  const ranks = Object.entries(table.agreement).map(([name, rank]) => `${name} ${rank.toFixed(2)}`);
  const agreement = ranks.join(", ") || "not known";
  return `predicted against measured, ${count} layers and formats; rank agreement ${agreement}`;
}
