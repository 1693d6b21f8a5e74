/** The rows of the candidates: rank, change and why, bar, figures, and what can be done with it. */

import { h } from "../shared/dom.js";
import { threeDigits } from "../shared/format.js";
import { allowText, barOf, lossHead, lossText, sizeText, speedTexts, splitRows } from "./layout.js";

/** @typedef {import("./layout.js").CandidateRow} CandidateRow */
/** @typedef {import("./layout.js").CandidatesData} CandidatesData */
/** @typedef {(row: CandidateRow) => void} Act */

const WIDE = { colspan: "8", class: "pf-faster-part" };

/**
 * The table of candidates; without `act` there is nothing to press.
 * @param {CandidatesData} data @param {{ apply: Act, allow: Act } | null} act
 * @param {boolean} hasRecipe whether applying one replaces steps
 */
export function candidateTable(data, act, hasRecipe = false) {
  const { ranked, others } = splitRows(data);
  const first = ["", "Change", "Dashed: as it came", "ms", "Times as fast (likely)"];
  const head = [...first, lossHead(data), "Size", ""].map((name) =>
    h("th", { scope: "col" }, name),
  );
  const part = others.length
    ? [h("tr", {}, h("th", { ...WIDE, scope: "colgroup" }, "Outside your limits, or lost"))]
    : [];
  return h(
    "table",
    { class: "pf-faster-list", "aria-label": "candidates, best first" },
    h("thead", {}, h("tr", {}, ...head)),
    h(
      "tbody",
      {},
      ...ranked.map((row) => candidateRow(row, data, act, hasRecipe)),
      ...part,
      ...others.map((row) => candidateRow(row, data, act, hasRecipe)),
    ),
  );
}

/**
 * @param {CandidateRow} row @param {CandidatesData} data @param {any} act
 * @param {boolean} hasRecipe
 */
function candidateRow(row, data, act, hasRecipe) {
  const [speed, range] = speedTexts(row);
  const place = { "data-label": row.label, tabindex: "-1", "data-tone": row.tone };
  return h(
    "tr",
    {
      ...place,
      class: `pf-candidate${row.rank === 1 ? " pf-best" : ""}${row.rank ? "" : " pf-out"}`,
    },
    h("td", { class: "pf-rank" }, row.rank ?? ""),
    h(
      "th",
      { scope: "row", title: `${row.label}: ${row.reason || row.why}` },
      h("b", {}, row.label),
      h("small", {}, row.reason || row.why),
    ),
    h("td", { class: "pf-bar-cell" }, barElement(row, data)),
    h("td", {}, threeDigits(row.latency_ms)),
    h("td", { title: `${speed} ${range}`.trim() }, speed, h("small", {}, range)),
    h("td", {}, lossText(row)),
    h("td", {}, sizeText(row)),
    h("td", { class: "pf-act-cell" }, act ? actionOf(row, act, hasRecipe) : row.status),
  );
}

/** @param {CandidateRow} row @param {CandidatesData} data */
function barElement(row, data) {
  const bar = barOf(row, data);
  if (!bar) return null;
  const percent = (/** @type {number} */ share) => `${(100 * share).toFixed(2)}%`;
  const { from, to } = bar;
  const range =
    from !== null && to !== null
      ? h("i", { style: `left:${percent(from)};width:${percent(Math.max(0, to - from))}` })
      : null;
  return h(
    "div",
    { class: "pf-candidate-bar", "aria-hidden": "true" },
    h("b", { style: `width:${percent(bar.now)}` }),
    h("s", { style: `left:${percent(bar.before)}` }),
    range,
  );
}

/**
 * @param {CandidateRow} row @param {{ apply: Act, allow: Act }} act @param {boolean} hasRecipe
 */
function actionOf(row, act, hasRecipe) {
  if (row.rank !== null) {
    const primary = row.rank === 1 ? " pf-primary" : "";
    const hint = hasRecipe ? "replaces the recipe; undo returns" : "";
    return button("Apply", `pf-button${primary}`, hint, () => act.apply(row));
  }
  const label = allowText(row);
  if (label) return button(label, "pf-button", "search again with it", () => act.allow(row));
  const word = row.word === "slower" ? "slower" : row.status;
  return h("span", { class: "pf-verdict", title: row.reason || word }, word);
}

/** @param {string} label @param {string} name @param {string} title @param {() => void} onclick */
function button(label, name, title, onclick) {
  const properties = { type: "button", tabindex: "-1", class: name, title: title || null, onclick };
  return h("button", properties, label);
}
