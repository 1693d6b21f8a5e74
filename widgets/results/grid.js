/** The grid of everything tried: a row per recipe, with its latency and likely range as a bar. */

import { fresh, h, set } from "../shared/dom.js";
import { readableBytes } from "../shared/format.js";
import { Grid } from "../shared/grid.js";
import { flatTree } from "../shared/tree.js";
import { barScale, capitalised, toneOf, worthText } from "./rows.js";

/** @typedef {import("./rows.js").Result} Result */
/** @typedef {import("./rows.js").ResultsData} ResultsData */
/**
 * @typedef {import("../shared/arrangement.js").GridTable & { data: ResultsData, scale: (value:
 * number) => number }} ResultsTable
 * @typedef {import("../shared/grid.js").Column<ResultsTable>} ResultColumn
 */
/**
 * @typedef {{ marks: number[], going: number | null, isInBench: boolean, mark: (number: number) =>
 * void, goBack: (number: number) => void, allow: (number: number) => void }} Choices what a person
 * may do with a row
 */

/** @type {ResultsData} */
const NOTHING = { title: "", metric: "", current: null, scatter: null, rows: [], pair: null };

/** @param {ResultsData} data @returns {ResultsTable} */
function resultsTable(data) {
  const layers = data.rows.map((row) => String(row.number));
  return {
    data,
    scale: barScale(data.rows),
    layers,
    kind: data.rows.map((row) => row.label),
    place: new Map(layers.map((number, row) => [number, row])),
    ...flatTree(layers.length),
  };
}

/** @extends {Grid<ResultsTable>} */
export class ResultsGrid extends Grid {
  /** @param {() => Choices} choices */
  constructor(choices) {
    super(
      { onChoose: () => {} },
      {
        table: resultsTable(NOTHING),
        label: "everything tried",
        rowHeight: 32,
        look: "pf-results-grid",
      },
    );
    this.choices = choices;
  }

  /** @param {ResultsData} data */
  showData(data) {
    this.show(resultsTable(data));
    const here = this.shown.table.place.get(String(data.current ?? 0)) ?? -1;
    if (this.shown.cursor < 0) this.shown.cursor = here;
    this.mark();
  }

  /** @override */
  all() {
    const { data } = this.shown.table;
    const figures = figureColumns(data.metric, () => this.isNarrow);
    const columns = [NUMBER, this.nameColumn(), this.chartColumn(), ...figures];
    if (!this.choices().isInBench) return columns;
    return [NUMBER, this.markColumn(), ...columns.slice(1), this.actionColumn()];
  }

  /** @override What was tried is whole up to a share that leaves its figures. @param {number} width */
  leastNameWidth(width) {
    const measure = this.measure(400);
    const rooms = this.shown.table.data.rows.map((row) => measure(row.label) + 20);
    return Math.round(Math.min(Math.max(100, ...rooms), 0.38 * width));
  }

  /** @override @param {number} row */
  isChosen(row) {
    const { rows, current } = this.shown.table.data;
    return rows[row].number === current;
  }

  /** @override @param {HTMLElement} element @param {number} row */
  describe(element, row) {
    const { rows } = this.shown.table.data;
    const look = `pf-row pf-result pf-tone-${toneOf(rows[row])}${this.isChosen(row) ? " pf-here" : ""}`;
    set(element, { class: look, title: rows[row].sentence, "data-number": rows[row].number });
  }

  /** @override Space marks, Enter goes back. @param {number} index @param {string} key */
  act(index, key) {
    const { number } = this.shown.table.data.rows[this.shown.rows[index]];
    const choices = this.choices();
    if (choices.isInBench) (key === "Enter" ? choices.goBack : choices.mark)(number);
  }

  /** Whether there is no room for the bars. */
  get isNarrow() {
    return !this.columns.some((column) => column.name === "chart");
  }

  /** The bar; a failure has the room of all figures. @returns {ResultColumn} */
  chartColumn() {
    const span = () => 1 + this.columns.filter((column) => column.isNumber).length;
    return {
      name: "chart",
      label: "Latency",
      hint: "and its likely range",
      width: 110,
      most: 420,
      rank: 7,
      value: ({ data }, row) => data.rows[row].ms ?? NaN,
      key: () => String(span()),
      draw(cell, { data, scale }, row) {
        const [word, why] = refusalOf(data.rows[row]);
        cell.classList.toggle("pf-refusal", Boolean(why));
        cell.style.gridColumnEnd = data.rows[row].failure ? `span ${span()}` : "";
        cell.title = why;
        if (why) fresh(cell, h("b", {}, word), why);
        else fresh(cell, latencyBar(data.rows[row], scale));
      },
    };
  }

  /** A refusal stands before the name where there is no room for the bar. @returns {ResultColumn} */
  nameColumn() {
    const isNarrow = () => this.isNarrow;
    return {
      name: "layer",
      label: "What was tried",
      width: 0,
      value: ({ data }, row) => data.rows[row].label,
      key: () => String(isNarrow()),
      draw(cell, { data }, row) {
        const { label, whole } = data.rows[row];
        const [word, why] = refusalOf(data.rows[row]);
        cell.title = [whole, why && word + why].filter(Boolean).join("\n");
        fresh(cell, why && isNarrow() && h("b", {}, word), label);
      },
    };
  }

  /** @returns {ResultColumn} */
  markColumn() {
    return {
      name: "mark",
      label: "",
      width: 26,
      value: () => "",
      key: () => this.choices().marks.join(),
      draw: (cell, { data }, row) => fresh(cell, markButton(data.rows[row], this.choices())),
    };
  }

  /** @returns {ResultColumn} */
  actionColumn() {
    return {
      name: "action",
      label: "",
      width: 86,
      value: () => "",
      key: () => String(this.choices().going),
      draw: (cell, { data }, row) =>
        fresh(cell, action(data.rows[row], this.isChosen(row), this.choices())),
    };
  }
}

/** Why a row has no figures, or may not be chosen. @param {Result} row */
function refusalOf({ failure, refused }) {
  return failure ? ["failed: ", failure] : ["refused: ", refused];
}

/** @type {ResultColumn} */
const NUMBER = {
  name: "number",
  label: "",
  width: 28,
  value: ({ data }, row) => data.rows[row].number,
  draw(cell, { data }, row) {
    cell.textContent = String(data.rows[row].number);
  },
};

/** @param {string} metric @param {() => boolean} isNarrow @returns {ResultColumn[]} */
function figureColumns(metric, isNarrow) {
  /**
   * @param {string} name @param {string} label @param {number} width @param {number} rank
   * @param {(row: Result) => number | null} number @param {(row: Result) => string} written
   * @returns {ResultColumn}
   */
  const figure = (name, label, width, rank, number, written) => ({
    name,
    label,
    width,
    rank,
    isNumber: true,
    value: ({ data }, row) => number(data.rows[row]) ?? NaN,
    key: () => String(isNarrow()),
    draw(cell, { data }, row) {
      const { failure, word } = data.rows[row];
      const spoken = name === "faster" && word;
      const isUntold = word === "not told" && ["ms", "faster"].includes(name);
      cell.hidden = Boolean(failure) && !isNarrow();
      cell.title = spoken || "";
      cell.classList.toggle("pf-untold", isUntold);
      const text = `${isUntold && name === "ms" ? "≈ " : ""}${written(data.rows[row])}`;
      fresh(cell, text, spoken && h("span", { class: "pf-spoken" }, `, ${spoken}`));
    },
  });
  const worth = figure(
    "worth",
    metric ? capitalised(metric) : "Differs by",
    76,
    8,
    (row) => (metric ? row.metric : row.error),
    (row) => worthText(row, Boolean(metric)),
  );
  return [
    figure(
      "ms",
      "ms",
      80,
      10,
      ({ ms }) => ms,
      (row) => row.ms_text,
    ),
    figure(
      "faster",
      "Faster",
      72,
      9,
      ({ speedup }) => speedup,
      (row) => row.speedup_text,
    ),
    { ...worth, hint: metric ? "" : "the relative distance of the outputs" },
    figure(
      "size",
      "Size",
      74,
      5,
      ({ size }) => size,
      ({ size }) => readableBytes(size),
    ),
  ];
}

/** @param {Result} row @param {(value: number) => number} scale */
function latencyBar(row, scale) {
  if (row.ms === null) return h("span", {}, "–");
  const percent = (/** @type {number} */ share) => `${(100 * share).toFixed(2)}%`;
  const bar = h("span", { class: "pf-result-bar", style: `width: ${percent(scale(row.ms))}` });
  const range =
    row.likely &&
    h("span", {
      class: "pf-result-range",
      style:
        `left: ${percent(scale(row.likely[0]))}; ` +
        `width: ${percent(scale(row.likely[1]) - scale(row.likely[0]))}`,
    });
  return h("span", { class: "pf-result-track", "aria-hidden": "true" }, bar, range);
}

/** @param {Result} row @param {Choices} choices */
function markButton(row, choices) {
  const place = choices.marks.indexOf(row.number);
  return h(
    "button",
    {
      type: "button",
      class: `pf-mark${place >= 0 ? ` pf-mark-${"ab"[place]}` : ""}`,
      role: "checkbox",
      tabindex: "-1",
      "aria-checked": String(place >= 0),
      "aria-label": `compare ${row.number}`,
      title: "mark to compare (Space): A, then B",
      onclick: () => choices.mark(row.number),
    },
    place >= 0 ? "AB"[place] : "",
  );
}

/** @param {Result} row @param {boolean} isCurrent @param {Choices} choices */
function action(row, isCurrent, choices) {
  if (isCurrent) return h("b", {}, "here now");
  if (row.failure) return null;
  if (row.refused) return allowButton(row, choices);
  if (choices.going === row.number) return h("span", { class: "pf-note" }, "going back …");
  return h(
    "button",
    {
      type: "button",
      class: "pf-step",
      tabindex: "-1",
      "aria-label": `go back to ${row.number}, ${row.label}`,
      onclick: () => choices.goBack(row.number),
    },
    "Go back",
  );
}

/** @param {Result} row @param {Choices} choices */
function allowButton(row, choices) {
  return h(
    "button",
    {
      type: "button",
      class: "pf-step",
      tabindex: "-1",
      "aria-label": `allow ${row.number}, ${row.label}`,
      title: "choose it all the same: the limit of its recipe becomes what it loses",
      onclick: () => choices.allow(row.number),
    },
    choices.going === row.number ? "…" : "Allow",
  );
}
