/** The panel beside the table: the chosen layer's facts, reasons, and position on the roofline. */

import { barLength, boundSign } from "../layers/columns.js";
import { isSameStep } from "./expected.js";
import { fresh, h } from "../shared/dom.js";
import { readableMs, readablePercent } from "../shared/format.js";
import { roofline } from "../roofline/index.js";
import { costliest, roofPoints } from "./rank.js";
import { numberAt } from "../shared/unpack.js";

/** @typedef {import("../shared/unpack.js").LayerTable} LayerTable */
/** @typedef {{ sentence: string, advice?: string | null, step?: any }} Reason */
/**
 * @typedef {{ layer: string, title?: string, facts?: { name: string, value: string }[], reasons?:
 * Reason[],
 *   point?: { intensity: number, gflops: number, ms: number, bound: string | null } | null }}
 *   Detail
 */

export class DetailPanel {
  /** @param {import("../shared/host.js").Host} host @param {(step: any) => void} onStep */
  constructor(host, onStep) {
    this.host = host;
    this.onStep = onStep;
    this.title = h("h3", {});
    this.text = h("div", { class: "pf-detail-text" });
    this.slot = h("div", { class: "pf-detail-roof" });
    this.chart = roofline(this.slot, host);
    this.element = h(
      "aside",
      { class: "pf-detail", "aria-label": "the chosen layer" },
      this.title,
      this.text,
      this.slot,
    );
    this.drawn = "";
    this.table = /** @type {LayerTable | null} */ (null);
    this.charted = /** @type {unknown[]} */ ([]);
  }

  /**
   * @param {LayerTable} table @param {string} layer the chosen one @param {Partial<Detail> | null |
   * undefined} detail what Python sent last
   * @param {{ step: any }[]} taken steps that are asked for
   */
  show(table, layer, detail, taken) {
    const isTold = Boolean(detail?.title) && detail?.layer === layer;
    const key = JSON.stringify([layer, isTold && detail, taken]);
    this.element.setAttribute("aria-busy", String(Boolean(layer) && !isTold));
    const isOther = key !== this.drawn || (!layer && table !== this.table);
    if (isOther) this.write(table, layer, isTold ? /** @type {Detail} */ (detail) : null, taken);
    this.drawn = key;
    this.table = table;
    this.chartPoint(table, layer, isTold ? /** @type {Detail} */ (detail) : null);
  }

  /** @param {string} layer */
  select(layer) {
    this.chart.select?.(layer);
  }

  destroy() {
    this.chart.destroy?.();
  }

  /**
   * @param {LayerTable} table @param {string} layer @param {Detail | null} detail @param {{ step:
   * any }[]} taken
   */
  write(table, layer, detail, taken) {
    fresh(this.title, (layer && detail?.title) || layer || "Where the time goes");
    const reasons = this.reasonList(detail?.reasons ?? [], taken);
    if (!layer)
      fresh(this.text, this.overview(table), reasons, table.layers.length > 0 && legend());
    else if (detail) fresh(this.text, factList(detail.facts ?? []), reasons);
  }

  /** @param {Reason[]} reasons @param {{ step: any }[]} taken */
  reasonList(reasons, taken) {
    if (!reasons.length) return null;
    const items = reasons.map((reason) =>
      h("li", {}, h("span", {}, reason.sentence), this.advice(reason, taken)),
    );
    return h(
      "section",
      {},
      h("h4", {}, "Why it is not faster"),
      h("ul", { class: "pf-detail-reasons" }, ...items),
    );
  }

  /** @param {Reason} reason @param {{ step: any }[]} taken */
  advice(reason, taken) {
    if (!reason.advice) return null;
    if (!reason.step) return h("span", { class: "pf-detail-advice" }, reason.advice);
    const isAsked = taken.some((entry) => isSameStep(entry.step, reason.step));
    const attributes = {
      type: "button",
      class: `pf-offer ${isAsked ? "pf-asked" : ""}`,
      onclick: () => this.onStep(reason.step),
    };
    return h("button", attributes, reason.advice);
  }

  /** Without a chosen layer: the costliest layers. @param {LayerTable} table */
  overview(table) {
    const rows = costliest(table, 6);
    if (!rows.length)
      return h("p", { class: "pf-hint" }, "Choose a layer to see why it takes its time.");
    const longest = numberAt(table, "self_ms", rows[0]);
    const items = rows.map((row) => h("li", {}, this.costly(table, row, longest)));
    const hint = h(
      "p",
      { class: "pf-hint" },
      "The costliest layers. Choose one to see why it takes its time and what would help.",
    );
    return h("div", {}, hint, h("ol", { class: "pf-costly" }, ...items));
  }

  /** @param {LayerTable} table @param {number} row @param {number} longest */
  costly(table, row, longest) {
    const ms = numberAt(table, "self_ms", row);
    const bar = h("i", {
      class: `pf-bar pf-${table.bound[row] || "unknown"}`,
      "aria-hidden": "true",
    });
    bar.style.width = `${100 * barLength(ms, longest)}%`;
    return h(
      "button",
      { type: "button", onclick: () => this.host.select(table.layers[row]) },
      bar,
      boundSign(table.bound[row]),
      h("span", { class: "pf-text" }, table.layers[row]),
      h("b", {}, `${readableMs(ms)} ms`),
      h("small", {}, readablePercent(ms / numberAt(table, "total_ms", 0))),
    );
  }

  /** @param {LayerTable} table @param {string} layer @param {Detail | null} detail */
  chartPoint(table, layer, detail) {
    const isSeen = Boolean(
      table.ceiling && (detail ? detail.point : !layer && table.layers.length),
    );
    this.slot.classList.toggle("pf-gone", !isSeen && (detail !== null || !layer));
    if (!isSeen || (this.charted[0] === table && this.charted[1] === detail)) return;
    this.charted = [table, detail];
    this.chart.show({
      title: "",
      ceiling: table.ceiling,
      points: roofPoints(table, layer, detail?.point ?? null),
      workload: "",
      machine: "",
    });
    this.chart.select?.(layer);
  }
}

/** @param {{ name: string, value: string }[]} facts */
function factList(facts) {
  const rows = facts.map((fact) => h("div", {}, h("dt", {}, fact.name), h("dd", {}, fact.value)));
  return rows.length ? h("dl", { class: "pf-detail-facts" }, ...rows) : null;
}

function legend() {
  const bounds = {
    compute: "the arithmetic units",
    memory: "reading and writing memory",
    overhead: "calling operators, not running them",
  };
  const items = Object.entries(bounds).map(([bound, meaning]) =>
    h("li", {}, boundSign(bound), h("b", {}, bound), h("span", {}, meaning)),
  );
  return h(
    "section",
    {},
    h("h4", {}, "What bounds a layer"),
    h("ul", { class: "pf-bounds" }, ...items),
  );
}
