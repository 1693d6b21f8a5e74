/** The grid of everything tried: a row per recipe, with its latency and likely range as a bar. */

import { barElement } from "../shared/bar.js";
import { fresh, h, set } from "../shared/dom.js";
import { figureColumn } from "../shared/figure_column.js";
import { Grid } from "../shared/grid.js";
import { pressOf } from "../shared/plain_table.js";
import { flatTree } from "../shared/tree.js";

/**
 * Rows and columns of figures as Python packs them.
 * @typedef {{ number: number, label: string, whole: string, tone: string, sentence: string,
 *   ms: number | null, bar: import("../shared/bar.js").Bar | null, refusal: string,
 *   action: import("../shared/plain_table.js").Cell }} Result
 * @typedef {{ rows: Result[], columns: import("../shared/figure_column.js").Figure[], current: number | null }} ResultsData
 * @typedef {import("../shared/arrangement.js").GridTable & { data: ResultsData }} ResultsTable
 * @typedef {import("../shared/grid.js").Column<ResultsTable>} ResultColumn
 * @typedef {{ marks: number[], going: number | null, isInBench: boolean,
 *   mark: (number: number) => void, press: (request: any) => void }} Choices what a person may do
 */

/** @param {ResultsData} data @returns {ResultsTable} */
function resultsTable(data) {
  const layers = data.rows.map((row) => String(row.number));
  return {
    data,
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
    const table = resultsTable({ rows: [], columns: [], current: null });
    const how = { label: "everything tried", rowHeight: 32, look: "pf-results-grid" };
    super({ onChoose: () => {} }, { table, ...how });
    this.choices = choices;
  }

  /** @param {ResultsData} data */
  showData(data) {
    this.show(resultsTable(data));
    const here = this.shown.table.place.get(String(data.current ?? 0)) ?? -1;
    if (this.shown.cursor < 0) this.shown.cursor = here;
    this.mark();
  }

  /** @param {number} row */
  result(row) {
    return this.shown.table.data.rows[row];
  }

  /** @override @returns {ResultColumn[]} */
  all() {
    const [number, mark, name, bar, action] = this.ownColumns();
    const figures = this.shown.table.data.columns.map(figureColumn);
    const { isInBench } = this.choices();
    return [number, ...(isInBench ? [mark] : []), name, bar, ...figures].concat(
      isInBench ? [action] : [],
    );
  }

  /** @override What was tried is whole up to a share that leaves its figures. @param {number} width */
  leastNameWidth(width) {
    const measure = this.measure(400);
    const rooms = this.shown.table.data.rows.map((row) => measure(row.label) + 20);
    return Math.round(Math.min(Math.max(100, ...rooms), 0.38 * width));
  }

  /** @override @param {number} row */
  isChosen(row) {
    return this.result(row).number === this.shown.table.data.current;
  }

  /** @override @param {HTMLElement} element @param {number} row */
  describe(element, row) {
    const { tone, sentence, number } = this.result(row);
    const here = this.isChosen(row) ? " pf-here" : "";
    const look = `pf-row pf-result${here}${tone === "untold" ? " pf-untold" : ""}`;
    set(element, { class: look, title: sentence, "data-number": number });
  }

  /** @override Space marks, Enter goes back. @param {number} index @param {string} key */
  act(index, key) {
    const { number, action } = this.result(this.shown.rows[index]);
    const choices = this.choices();
    const ask = typeof action === "string" ? null : action.ask;
    if (!choices.isInBench) return;
    if (key !== "Enter") choices.mark(number);
    else if (ask?.do === "go_back") choices.press(ask);
  }

  /** Whether there is no room for the bars: a refusal then stands before the name. */
  get isNarrow() {
    return !this.columns.some((column) => column.name === "chart");
  }

  /** @returns {ResultColumn[]} */
  ownColumns() {
    const choices = this.choices;
    return [
      {
        name: "number",
        label: "",
        width: 28,
        value: (_, row) => this.result(row).number,
        draw: (cell, _, row) => fresh(cell, this.result(row).number),
      },
      {
        name: "mark",
        label: "",
        width: 26,
        value: () => "",
        key: () => choices().marks.join(),
        draw: (cell, _, row) => fresh(cell, markButton(this.result(row).number, choices())),
      },
      {
        name: "layer",
        label: "What was tried",
        width: 0,
        value: (_, row) => this.result(row).label,
        key: () => String(this.isNarrow),
        draw: (cell, _, row) => {
          const { label, whole, refusal } = this.result(row);
          cell.title = [whole, refusal].filter(Boolean).join("\n");
          const [word] = refusal.split(" ");
          fresh(cell, refusal && this.isNarrow && h("b", {}, `${word} `), label);
        },
      },
      {
        name: "chart",
        label: "Latency",
        hint: "and its likely range",
        width: 110,
        most: 420,
        rank: 7,
        value: (_, row) => this.result(row).ms ?? NaN,
        draw: (cell, _, row) => {
          const { refusal, bar, tone } = this.result(row);
          set(cell, { title: refusal || null });
          cell.classList.toggle("pf-refusal", Boolean(refusal));
          fresh(cell, refusal || (bar && barElement(bar, tone)) || "–");
        },
      },
      {
        name: "action",
        label: "",
        width: 86,
        value: () => "",
        key: () => String(choices().going),
        draw: (cell, _, row) => {
          const { number, action } = this.result(row);
          const { going, press } = choices();
          const isGoing = going === number && typeof action !== "string";
          fresh(
            cell,
            isGoing ? "going …" : typeof action === "string" ? action : pressOf(action, press),
          );
        },
      },
    ];
  }
}

/** @param {number} number @param {Choices} choices */
function markButton(number, { marks, mark }) {
  const place = marks.indexOf(number);
  const attributes = {
    type: "button",
    class: `pf-mark${place >= 0 ? ` pf-mark-${"ab"[place]}` : ""}`,
    role: "checkbox",
    "aria-checked": String(place >= 0),
    "aria-label": `compare ${number}`,
    title: "mark to compare (Space): A, then B",
    onclick: () => mark(number),
  };
  return h("button", attributes, place >= 0 ? "AB"[place] : "");
}
