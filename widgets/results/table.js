/** The table of everything tried: a row per recipe, with its latency and likely range as a bar. */

import { fresh, h } from "../shared/dom.js";
import { readableBytes } from "../shared/format.js";
import { barScale, toneOf, worthText } from "./rows.js";

/** @typedef {import("./rows.js").Result} Result */
/** @typedef {import("./rows.js").ResultsData} ResultsData */

/**
 * @typedef {{ marks: number[], going: number | null, isInBench: boolean, mark: (number: number) =>
 * void, goBack: (number: number) => void, allow: (number: number) => void }} Choices what a person
 * may do with a row
 */

/** @param {ResultsData} data @param {Choices} choices */
export function resultsTable(data, choices) {
  const scale = barScale(data.rows);
  const body = h(
    "tbody",
    { role: "rowgroup" },
    ...data.rows.map((row) => resultRow(row, data, scale, choices)),
  );
  const table = h(
    "table",
    { role: "grid", class: "pf-table pf-results-table", "aria-label": "everything tried" },
    resultsHead(data, choices),
    body,
  );
  table.addEventListener("keydown", (event) => onKey(event, body, choices));
  return table;
}

/** @param {ResultsData} data @param {Choices} choices */
function resultsHead(data, choices) {
  const names = [
    ["", "pf-of-number"],
    ["", "pf-of-mark"],
    ["What was tried", "pf-names"],
    ["Latency and likely range", "pf-chart"],
    ["ms", ""],
    ["Faster", ""],
    [data.metric ? capitalised(data.metric) : "Outputs differ by", "pf-of-worth"],
    ["Size", "pf-of-size"],
    ["", "pf-of-action"],
  ];
  const shown = names.filter(([, look]) => choices.isInBench || !isForBench(look));
  return h(
    "thead",
    { role: "rowgroup" },
    h(
      "tr",
      { role: "row" },
      ...shown.map(([text, look]) =>
        h("th", { role: "columnheader", scope: "col", class: look || null }, text),
      ),
    ),
  );
}

/** @param {string} look */
function isForBench(look) {
  return look === "pf-of-mark" || look === "pf-of-action";
}

/**
 * @param {Result} row @param {ResultsData} data @param {(value: number) => number} scale
 * @param {Choices} choices
 */
function resultRow(row, data, scale, choices) {
  const isCurrent = row.number === data.current;
  const cells = [
    h("td", { role: "gridcell", class: "pf-of-number" }, row.number),
    choices.isInBench &&
      h("td", { role: "gridcell", class: "pf-of-mark" }, markButton(row, choices)),
    nameCell(row),
    ...figures(row, data, scale),
    choices.isInBench &&
      h("td", { role: "gridcell", class: "pf-of-action" }, action(row, isCurrent, choices)),
  ];
  return h(
    "tr",
    {
      role: "row",
      class: `pf-result pf-tone-${toneOf(row)}${isCurrent ? " pf-here" : ""}`,
      tabindex: isCurrent || (data.current === null && row.number === 0) ? "0" : "-1",
      "data-number": row.number,
      "aria-selected": String(isCurrent),
      title: row.sentence,
    },
    ...cells,
  );
}

/** The name; a refusal stands before it where there is no room for the bar. @param {Result} row */
function nameCell(row) {
  const refused = row.refused && `refused: ${row.refused}`;
  return h(
    "th",
    {
      role: "rowheader",
      scope: "row",
      class: "pf-names",
      title: [row.whole, refused].filter(Boolean).join("\n"),
    },
    refused && h("b", { class: "pf-if-narrow" }, "refused: "),
    row.label,
  );
}

/** @param {Result} row @param {ResultsData} data @param {(value: number) => number} scale */
function figures(row, data, scale) {
  if (row.failure)
    return [
      h(
        "td",
        { role: "gridcell", class: "pf-chart pf-refusal", colspan: 5, title: row.failure },
        h("b", {}, "failed: "),
        row.failure,
      ),
    ];
  const bar = row.refused
    ? h("span", { class: "pf-refusal", title: row.refused }, h("b", {}, "refused: "), row.refused)
    : latencyBar(row, scale);
  const isUntold = row.word === "not told";
  return [
    h("td", { role: "gridcell", class: "pf-chart" }, bar),
    value("ms", `${isUntold ? "≈ " : ""}${row.ms_text}`, isUntold),
    value("faster", row.speedup_text, isUntold, row.word),
    value(
      data.metric || "outputs differ by",
      worthText(row, Boolean(data.metric)),
      false,
      "",
      "pf-of-worth",
    ),
    value("size", readableBytes(row.size), false, "", "pf-of-size"),
  ];
}

/**
 * @param {string} name @param {string} text @param {boolean} isDim @param {string} [word]
 * @param {string} [look]
 */
function value(name, text, isDim, word = "", look = "") {
  return h(
    "td",
    {
      role: "gridcell",
      class: `pf-value${isDim ? " pf-untold" : ""} ${look}`,
      "data-name": name,
      title: word || null,
    },
    text,
    word ? h("span", { class: "pf-spoken" }, `, ${word}`) : null,
  );
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

/**
 * Arrow keys go through the rows, Space marks one, Enter goes back to it.
 * @param {KeyboardEvent} event @param {HTMLElement} body @param {Choices} choices
 */
function onKey(event, body, choices) {
  const rows = /** @type {HTMLElement[]} */ ([...body.children]);
  const at = rows.findIndex((row) => row.contains(/** @type {Node} */ (event.target)));
  if (at < 0) return;
  const number = Number(rows[at].dataset.number);
  const isOnRow = event.target === rows[at];
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (next !== undefined) focusRow(rows, Math.max(0, Math.min(next, rows.length - 1)));
  else if (isOnRow && event.key === " " && choices.isInBench) choices.mark(number);
  else if (isOnRow && event.key === "Enter" && choices.isInBench) choices.goBack(number);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** @param {HTMLElement[]} rows @param {number} at */
export function focusRow(rows, at) {
  for (const [index, row] of rows.entries()) row.tabIndex = index === at ? 0 : -1;
  rows[at]?.focus();
}

/**
 * Replace a table and keep the focus in the same row.
 * @param {HTMLElement} box @param {HTMLElement} table
 */
export function replaceTable(box, table) {
  const focused = /** @type {HTMLElement | null} */ (
    box.contains(document.activeElement) ? document.activeElement?.closest("[data-number]") : null
  );
  fresh(box, table);
  if (!focused) return;
  const rows = /** @type {HTMLElement[]} */ ([...table.querySelectorAll("[data-number]")]);
  const at = rows.findIndex((row) => row.dataset.number === focused.dataset.number);
  if (at >= 0) focusRow(rows, at);
}

/** @param {string} text */
export function capitalised(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
