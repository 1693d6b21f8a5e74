/**
 * Layers before and after a change: which became faster or slower, and whether the prediction held.
 */

import { freshId, indexAfterKey } from "../shared/chart.js";
import { fresh, h, set } from "../shared/dom.js";
import { readableMs } from "../shared/format.js";
import {
  signedChange,
  decimalsFor,
  kindsText,
  largestChanges,
  promiseOf,
  savedMs,
} from "./pairs.js";

/** @typedef {import("./pairs.js").Pair} Pair */
/** @typedef {import("./pairs.js").SideBySideData} SideBySideData */

const FIRST_SHOWN = 12;

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @returns
 * {import("../shared/host.js").View}
 */
export function sideBySide(root, host) {
  return new SideBySideView(root, host);
}

class SideBySideView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host */
  constructor(root, host) {
    this.host = host;
    this.id = freshId("pair");
    this.selected = host.selected();
    this.isWhole = false;
    /** @type {SideBySideData | null} */
    this.data = null;
    /** @type {Pair[]} */
    this.shown = [];
    this.head = h("div", { class: "pf-view-head" });
    this.body = h("tbody", { role: "rowgroup" });
    this.foot = h("tfoot", { role: "rowgroup" });
    this.table = h(
      "table",
      {
        role: "grid",
        class: "pf-table pf-pairs",
        tabindex: "0",
        "aria-label": "layers that changed most",
      },
      pairsHead(),
      this.body,
      this.foot,
    );
    this.more = h("button", { class: "pf-more", onclick: () => this.toggle() });
    root.append(
      h(
        "section",
        { class: "pf-view pf-side-by-side", "aria-label": "side by side" },
        this.head,
        this.table,
        this.more,
      ),
    );
    set(this.table, { onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)) });
  }

  /** @param {SideBySideData} data */
  show(data) {
    this.data = data?.rows ? data : null;
    this.table.hidden = this.more.hidden = !this.data;
    if (!this.data)
      return void fresh(
        this.head,
        h("p", { class: "pf-empty" }, "Nothing has been put side by side yet."),
      );
    const { shown, rest } = largestChanges(
      this.data.rows,
      this.isWhole ? this.data.rows.length : FIRST_SHOWN,
    );
    this.shown = shown;
    const widest =
      Math.max(...shown.map((pair) => Math.max(pair.before_ms ?? 0, pair.after_ms ?? 0)), 0) || 1;
    const places = decimalsFor(widest);
    fresh(this.head, h("h2", {}, this.data.title ?? ""), promiseLine(this.data));
    fresh(
      this.body,
      ...(shown.length
        ? shown.map((pair, index) => this.row(pair, index, widest, places))
        : [noChangeRow()]),
    );
    fresh(this.foot, rest && restRow(rest, places));
    const changed = this.data.rows.filter((pair) => savedMs(pair) !== 0).length;
    this.more.hidden = changed <= FIRST_SHOWN;
    fresh(
      this.more,
      this.isWhole ? `show the ${FIRST_SHOWN} largest` : `show all ${changed} that changed`,
    );
    this.mark();
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.mark();
  }

  toggle() {
    this.isWhole = !this.isWhole;
    if (this.data) this.show(this.data);
  }

  /** @param {Pair} pair @param {number} index @param {number} widest @param {number} places */
  row(pair, index, widest, places) {
    const saved = savedMs(pair);
    const cells = [
      h(
        "th",
        { role: "rowheader", scope: "row", class: "pf-names" },
        h("span", {}, pair.layer || `${this.data?.before} (itself)`),
        h("small", {}, kindsText(pair)),
      ),
      h("td", { role: "gridcell", class: "pf-chart" }, dumbbell(pair, widest)),
      figure(pair.before_ms, places, "before"),
      figure(pair.after_ms, places, "after"),
      h(
        "td",
        {
          role: "gridcell",
          class: `pf-value pf-delta ${saved > 0 ? "pf-is-good" : "pf-is-bad"}`,
          "data-name": "change",
        },
        signedChange(saved, places),
      ),
      h(
        "td",
        { role: "gridcell", class: "pf-pair-note" },
        pair.note || (saved > 0 ? "faster" : "slower"),
      ),
    ];
    return h(
      "tr",
      { role: "row", id: `${this.id}-${index}`, onclick: () => this.choose(index) },
      ...cells,
    );
  }

  /** @param {number} index */
  choose(index) {
    const pair = this.shown[index];
    if (!pair) return;
    this.select(pair.layer);
    this.host.select(pair.layer);
  }

  mark() {
    const at = this.selected ? this.shown.findIndex((pair) => pair.layer === this.selected) : -1;
    [...this.body.children].forEach((row, index) =>
      row.setAttribute("aria-selected", String(index === at)),
    );
    set(this.table, { "aria-activedescendant": at >= 0 && `${this.id}-${at}` });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const at = this.shown.findIndex((pair) => pair.layer === this.selected);
    const next = indexAfterKey(event.key, at, this.shown.length);
    if (next === at || next < 0 || event.key === "ArrowLeft" || event.key === "ArrowRight") return;
    event.preventDefault();
    this.choose(next);
    this.body.children[next]?.scrollIntoView({ block: "nearest" });
  }
}

function pairsHead() {
  const chart = h(
    "th",
    { role: "columnheader", scope: "col", class: "pf-chart" },
    "self time: ring before, dot after",
  );
  const names = ["before ms", "after ms", "change ms"].map((name) =>
    h("th", { role: "columnheader", scope: "col", class: "pf-value" }, name),
  );
  const first = h(
    "th",
    { role: "columnheader", scope: "col", class: "pf-names" },
    "largest changes",
  );
  return h(
    "thead",
    { role: "rowgroup" },
    h(
      "tr",
      { role: "row" },
      first,
      chart,
      ...names,
      h("th", { role: "columnheader", scope: "col" }, ""),
    ),
  );
}

/** @param {SideBySideData} data */
function promiseLine(data) {
  const promise = promiseOf(data);
  if (!promise) return null;
  const most = Math.max(Math.abs(promise.predicted), Math.abs(promise.achieved)) || 1;
  const part = (
    /** @type {string} */ name,
    /** @type {number} */ saved,
    /** @type {string} */ look,
  ) => {
    const bar = h(
      "span",
      { class: "pf-promise-bar", "aria-hidden": "true" },
      h("span", { class: look, style: `width: ${((100 * Math.abs(saved)) / most).toFixed(1)}%` }),
    );
    const sign = saved > 0 ? "−" : saved < 0 ? "+" : "";
    return h(
      "div",
      {},
      h("span", {}, name),
      bar,
      h("b", {}, `${sign}${readableMs(Math.abs(saved))} ms`),
    );
  };
  const name = `predicted${promise.basis ? ` (${promise.basis})` : ""}`;
  return h(
    "div",
    { class: "pf-promise" },
    part(name, promise.predicted, "pf-was-predicted"),
    part("achieved", promise.achieved, promise.achieved > 0 ? "pf-was-better" : "pf-was-worse"),
  );
}

/**
 * A ring at the time before, a dot at the time after, and a line between.
 * @param {Pair} pair @param {number} widest
 */
function dumbbell(pair, widest) {
  const [before, after] = [pair.before_ms, pair.after_ms].map((ms) => (100 * (ms ?? 0)) / widest);
  const [left, width] = [Math.min(before, after), Math.abs(before - after)];
  const look = savedMs(pair) > 0 ? "pf-was-better" : "pf-was-worse";
  const line = h("span", {
    class: `pf-link ${look}`,
    style: `left: ${left.toFixed(2)}%; width: ${width.toFixed(2)}%`,
  });
  const ring =
    pair.before_ms === null
      ? null
      : h("span", { class: `pf-ring ${look}`, style: `left: ${before.toFixed(2)}%` });
  const dot =
    pair.after_ms === null
      ? null
      : h("span", { class: `pf-ball ${look}`, style: `left: ${after.toFixed(2)}%` });
  return h("span", { class: "pf-axis", "aria-hidden": "true" }, line, ring, dot);
}

/** @param {number | null} ms @param {number} places @param {string} name */
function figure(ms, places, name) {
  return h(
    "td",
    { role: "gridcell", class: "pf-value", "data-name": name },
    ms === null ? "–" : ms.toFixed(places),
  );
}

/** @param {{ count: number, before_ms: number, after_ms: number }} rest @param {number} places */
function restRow(rest, places) {
  const change = signedChange(rest.before_ms - rest.after_ms, places);
  const figures = [
    figure(rest.before_ms, places, "before"),
    figure(rest.after_ms, places, "after"),
    h("td", { role: "gridcell", class: "pf-value", "data-name": "change" }, change),
  ];
  return h(
    "tr",
    { role: "row" },
    h("th", { role: "rowheader", scope: "row", class: "pf-names" }, `${rest.count} more, together`),
    h("td", { role: "gridcell", class: "pf-chart" }),
    ...figures,
    h("td", { role: "gridcell" }),
  );
}

function noChangeRow() {
  return h(
    "tr",
    { role: "row" },
    h("td", { role: "gridcell", colspan: 6, class: "pf-empty" }, "No layer's time changed."),
  );
}
