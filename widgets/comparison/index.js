/** A baseline and its variants: the cost of each on shared axes, and its loss of accuracy. */

import {
  doDiffer,
  furtherNotes,
  isTelling,
  latencyAxis,
  readableError,
  recipeLine,
  speedupAxis,
  verdictOf,
} from "./rows.js";
import { fresh, h } from "../shared/dom.js";
import { readableBytes, readableCount, threeFigures } from "../shared/format.js";
import { tickText } from "../shared/scale.js";

/** @typedef {import("./rows.js").Measured} Measured */
/** @typedef {import("./rows.js").ComparisonData} ComparisonData */
/** @typedef {import("./rows.js").Axis} Axis */
/** @typedef {{ name: string, text: (row: Measured) => string }} FigureColumn */

/** @param {HTMLElement} root @returns {import("../shared/host.js").View} */
export function comparison(root) {
  const box = h("section", { class: "pf-view pf-comparison", "aria-label": "comparison" });
  root.append(box);
  return {
    /** @param {ComparisonData} data */
    show(data) {
      const rows = data?.rows ?? [];
      const title = h("div", { class: "pf-view-head" }, h("h2", {}, data?.title ?? ""));
      if (!rows.length)
        fresh(box, title, h("p", { class: "pf-empty" }, "Nothing has been compared yet."));
      else fresh(box, title, comparisonTable(data), comparisonLegend());
    },
  };
}

/** @param {ComparisonData} data */
function comparisonTable(data) {
  const axes = { latency: latencyAxis(data.rows), speedup: speedupAxis(data.rows) };
  const columns = figureColumns(data);
  const head = h(
    "tr",
    { role: "row" },
    variantHead("variant", "pf-names"),
    variantHead(
      "latency, ms",
      "pf-chart pf-of-latency",
      markedCell(axisTicks(axes.latency, ""), null),
    ),
    variantHead(
      "speed-up",
      "pf-chart pf-of-speedup",
      markedCell(axisTicks(axes.speedup, "×"), null),
    ),
    ...columns.map((column) => variantHead(column.name, "pf-value")),
  );
  const body = data.rows.flatMap((row) => [
    row.failure ? failedRow(row, columns.length + 2) : timedRow(row, data, axes, columns),
    ...notesRow(row, columns.length + 3),
  ]);
  return h(
    "table",
    { role: "table", class: "pf-table" },
    h("thead", { role: "rowgroup" }, head),
    h("tbody", { role: "rowgroup" }, ...body),
  );
}

/**
 * Columns of plain figures; those in which nothing is known, or in which sizes hardly differ, are
 * left out.
 * @param {ComparisonData} data @returns {FigureColumn[]}
 */
function figureColumns({ rows, baseline, metric_name }) {
  const varied = rows.filter(
    (row) =>
      row.name !== baseline && row.relative_error !== null && row.relative_error !== undefined,
  );
  /** @type {(FigureColumn | false)[]} */
  const columns = [
    isTelling(rows.map((row) => row.peak_bytes)) && {
      name: "memory",
      text: (row) => readableBytes(row.peak_bytes),
    },
    isTelling(rows.map((row) => row.size_bytes)) && {
      name: "size",
      text: (row) => readableBytes(row.size_bytes),
    },
    doDiffer(rows.map((row) => row.parameters)) && {
      name: "parameters",
      text: (row) => readableCount(row.parameters),
    },
    doDiffer(rows.map((row) => row.flops)) && {
      name: "FLOPs",
      text: (row) => readableCount(row.flops),
    },
    varied.length > 0 && {
      name: "output error",
      text: (row) => (varied.includes(row) ? readableError(row.relative_error) : "–"),
    },
    isTelling(rows.map((row) => row.metric)) && {
      name: metric_name || "metric",
      text: (row) => row.metric?.toFixed(4) ?? "–",
    },
  ];
  return columns.filter((column) => column !== false);
}

/**
 * @param {Measured} row @param {ComparisonData} data @param {{latency: Axis, speedup: Axis}} axes
 * @param {FigureColumn[]} columns
 */
function timedRow(row, data, axes, columns) {
  const verdict = verdictOf(row, data.baseline);
  return h(
    "tr",
    { role: "row", class: `pf-tone-${verdict.tone}`, title: furtherFigures(row) },
    nameCell(row),
    h(
      "td",
      { role: "cell", class: "pf-chart pf-of-latency" },
      markedCell(latencyMark(row, axes.latency), latencyFigure(row)),
    ),
    h(
      "td",
      { role: "cell", class: "pf-chart pf-of-speedup" },
      markedCell(speedupMark(row, axes.speedup, verdict.tone), speedupFigure(row, verdict)),
    ),
    ...columns.map((column) =>
      h("td", { role: "cell", class: "pf-value", "data-name": column.name }, column.text(row)),
    ),
  );
}

/** @param {Measured} row @param {number} span */
function failedRow(row, span) {
  const word = h("b", { class: "pf-is-bad" }, "failed ");
  return h(
    "tr",
    { role: "row", class: "pf-failed-row" },
    nameCell(row),
    h("td", { role: "cell", colspan: span }, word, row.failure ?? ""),
  );
}

/** @param {Measured} row */
function nameCell(row) {
  const line = recipeLine(row);
  return h(
    "th",
    { role: "rowheader", scope: "row", class: "pf-names" },
    h("span", {}, row.name),
    line && h("small", {}, line),
  );
}

/** The notes of the row above, over the whole width. @param {Measured} row @param {number} span */
function notesRow(row, span) {
  const notes = furtherNotes(row);
  if (!notes.length) return [];
  return [
    h(
      "tr",
      { role: "row", class: "pf-row-notes" },
      h("td", { role: "cell", colspan: span }, h("small", {}, notes.join(" · "))),
    ),
  ];
}

/** @param {Measured} row */
function furtherFigures(row) {
  const parts = [
    row.threads && `${row.threads} thread${row.threads === 1 ? "" : "s"}`,
    row.best_ms && `best ${threeFigures(row.best_ms)} ms`,
    row.cpu_ms && `${threeFigures(row.cpu_ms)} ms of CPU time`,
    row.build_s && `built in ${threeFigures(row.build_s)} s`,
  ];
  return parts.filter(Boolean).join(" · ");
}

/**
 * A mark on an axis and its figure: beside each other, or below in narrow places.
 * @param {HTMLElement | null} mark @param {HTMLElement | null} figure
 */
function markedCell(mark, figure) {
  return h("div", { class: "pf-marked" }, mark ?? h("span", {}), figure);
}

/**
 * A bar to the median, a line over the middle half of the rounds.
 * @param {Measured} row @param {Axis} axis
 */
function latencyMark(row, axis) {
  if (row.latency_ms === null || row.latency_ms === undefined) return null;
  const [low, high] = row.spread_ms ?? [row.latency_ms, row.latency_ms];
  const marks = [
    stretch("pf-latency-bar", 0, axis.place(row.latency_ms)),
    stretch("pf-range", axis.place(low), axis.place(high)),
  ];
  return h(
    "span",
    { class: "pf-axis", "aria-hidden": "true" },
    ...marks,
    stretch("pf-median", axis.place(row.latency_ms)),
  );
}

/**
 * A line over the interval, and the mark of 1.
 * @param {Measured} row @param {Axis} axis @param {string} tone
 */
function speedupMark(row, axis, tone) {
  const equality = stretch("pf-one", axis.place(1));
  if (!row.speedup || !row.speedup_interval || tone === "baseline")
    return h("span", { class: "pf-axis", "aria-hidden": "true" }, equality);
  const [low, high] = row.speedup_interval.map(axis.place);
  const at = axis.place(row.speedup);
  const reach = stretch("pf-reach", Math.min(at, axis.place(1)), Math.max(at, axis.place(1)));
  return h(
    "span",
    { class: "pf-axis", "aria-hidden": "true" },
    reach,
    equality,
    stretch("pf-range", low, high),
    stretch("pf-median", at),
  );
}

/** @param {Measured} row */
function latencyFigure(row) {
  if (row.latency_ms === null || row.latency_ms === undefined)
    return h("span", { class: "pf-said" }, "–");
  const spread =
    row.spread_ms &&
    h("small", {}, `${threeFigures(row.spread_ms[0])}–${threeFigures(row.spread_ms[1])}`);
  return h("span", { class: "pf-said" }, h("b", {}, threeFigures(row.latency_ms)), " ", spread);
}

/** @param {Measured} row @param {import("./rows.js").Verdict} verdict */
function speedupFigure(row, verdict) {
  if (verdict.tone === "baseline")
    return h("span", { class: "pf-said" }, h("b", {}, "1 ×"), " ", h("small", {}, "baseline"));
  if (!row.speedup || !row.likely) return h("span", { class: "pf-said" }, "–");
  const words = h("small", {}, `${row.likely} `, h("i", {}, verdict.word));
  if (verdict.tone === "untold") return h("span", { class: "pf-said" }, "≈ ", words);
  return h("span", { class: "pf-said" }, h("b", {}, `${row.speedup.toFixed(2)} ×`), " ", words);
}

/** @param {Axis} axis @param {string} unit */
function axisTicks(axis, unit) {
  const ticks = axis.ticks.map((value) =>
    h("span", { style: `left: ${percent(axis.place(value))}` }, `${tickText(value)}${unit}`),
  );
  return h("span", { class: "pf-axis pf-axis-ticks", "aria-hidden": "true" }, ...ticks);
}

/**
 * A mark on an axis from one share of it to another.
 * @param {string} look @param {number} from @param {number} [to]
 */
function stretch(look, from, to = from) {
  return h("span", {
    class: look,
    style: `left: ${percent(from)}; width: ${percent(Math.max(0, to - from))}`,
  });
}

/** @param {string} text @param {string} look @param {...HTMLElement} more */
function variantHead(text, look, ...more) {
  return h(
    "th",
    { role: "columnheader", scope: "col", class: look },
    h("span", { class: "pf-column" }, text),
    ...more,
  );
}

/** @param {number} share */
function percent(share) {
  return `${(100 * share).toFixed(2)}%`;
}

function comparisonLegend() {
  return h(
    "p",
    { class: "pf-note" },
    "latency: median and the middle half of the rounds · " +
      "speed-up: against the baseline round by round, with its 95% interval",
  );
}
