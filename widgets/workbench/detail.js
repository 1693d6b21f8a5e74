/** The panel beside the table: the chosen layer's facts, reasons, and position on the roofline. */

import { boundSign, boundWord, exactBound } from "../layers/bounds.js";
import { barLength } from "../layers/columns.js";
import { isSameStep } from "./expected.js";
import { fresh, h } from "../shared/dom.js";
import { readablePercent, threeDigits } from "../shared/format.js";
import { PictureDrawing } from "../shared/picture_drawing.js";
import { unpackedPicture } from "../shared/picture.js";
import { withoutMiddle } from "../shared/lettering.js";
import { numberAt, whyUnknown } from "../shared/unpack.js";

/** @typedef {import("../shared/unpack.js").LayerTable} LayerTable */
/** @typedef {{ sentence: string, advice?: string | null, step?: any }} Reason */
/**
 * @typedef {{ layer: string, title?: string, facts?: { name: string, value: string }[], reasons?:
 * Reason[], chart?: any }} Detail
 */

export class DetailPanel {
  /**
   * @param {import("../shared/host.js").Host} host @param {(step: any) => void} onStep
   * @param {HTMLElement[]} general what stands below while no layer is chosen
   */
  constructor(host, onStep, general) {
    this.general = general;
    this.host = host;
    this.onStep = onStep;
    this.title = h("h3", {});
    this.text = h("div", { class: "pf-detail-text" });
    this.chart = new PictureDrawing(host);
    this.slot = h("div", { class: "pf-detail-roof" }, this.chart.element);
    this.close = h(
      "button",
      { type: "button", class: "pf-dismiss pf-close-detail", title: "close (Esc)" },
      "×",
    );
    this.close.setAttribute("aria-label", "close the details");
    this.times = h("div", { class: "pf-detail-times" });
    this.element = h(
      "aside",
      { class: "pf-detail", tabindex: "-1", "aria-label": "the chosen layer" },
      h("div", { class: "pf-detail-head" }, this.title, this.close),
      this.times,
      this.text,
      this.slot,
      ...general,
    );
    this.drawn = "";
    this.table = /** @type {LayerTable | null} */ (null);
    this.charted = /** @type {unknown} */ (null);
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
    this.text.classList.toggle("pf-hatched", table.isUncertain);
    const isOther = key !== this.drawn || (!layer && table !== this.table);
    if (isOther) this.write(table, layer, isTold ? /** @type {Detail} */ (detail) : null, taken);
    if (isOther || table !== this.table) fresh(this.times, ...timeBars(table, layer));
    for (const part of this.general) part.classList.toggle("pf-gone", Boolean(layer));
    this.drawn = key;
    this.table = table;
    this.chartPoint(detail?.layer === layer ? /** @type {Detail} */ (detail) : null);
  }

  /** @param {string} layer */
  select(layer) {
    this.chart.select(layer);
  }

  destroy() {
    this.chart.destroy();
  }

  /** Whether what stands here is not of the chosen layer yet. */
  get isBusy() {
    return this.element.getAttribute("aria-busy") === "true";
  }

  /** Go to what one can do with the layer, as its format or a step that helps; else to the panel. */
  enter() {
    const controls = [...this.element.querySelectorAll("select, input, button")].map(
      (control) => /** @type {HTMLElement} */ (control),
    );
    const first = controls.find(
      (control) =>
        control !== this.close &&
        !control.matches(":disabled") &&
        !(this.isBusy && this.text.contains(control)) && // still of the layer before
        control.getClientRects().length,
    );
    (first ?? this.element).focus();
  }

  /**
   * @param {LayerTable} table @param {string} layer @param {Detail | null} detail @param {{ step:
   * any }[]} taken
   */
  write(table, layer, detail, taken) {
    const hadFocus = this.text.contains(document.activeElement);
    fresh(this.title, (layer && detail?.title) || layer || "The costliest layers");
    const reasons = this.reasonList(detail?.reasons ?? [], taken);
    if (!layer) fresh(this.text, this.overview(table), reasons);
    else if (detail) fresh(this.text, factList(detail.facts ?? []), reasons);
    if (hadFocus && !this.text.contains(document.activeElement)) this.element.focus();
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
      h("h4", {}, "Why it takes its time"),
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
      onclick: () => this.isBusy || this.onStep(reason.step),
    };
    return h("button", attributes, reason.advice);
  }

  /** Without a chosen layer: the costliest layers. @param {LayerTable} table */
  overview(table) {
    const rows = costliest(table, 6);
    if (!rows.length)
      return h(
        "p",
        { class: "pf-hint" },
        table.isKnown
          ? "Choose a layer to see why it takes its time."
          : "They follow, each with its reasons, once the layers are timed.",
      );
    const longest = numberAt(table, "self_ms", rows[0]);
    const items = rows.map((row) => h("li", {}, this.costly(table, row, longest)));
    const hint = h(
      "p",
      { class: "pf-hint" },
      "Choose one to see why it takes its time and what would help.",
    );
    return h("div", {}, hint, h("ol", { class: "pf-costly" }, ...items));
  }

  /** @param {LayerTable} table @param {number} row @param {number} longest */
  costly(table, row, longest) {
    const ms = numberAt(table, "self_ms", row);
    const layer = table.layers[row];
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
      h("span", { class: "pf-text", title: layer }, withoutMiddle(layer, 22)),
      h("b", {}, `${table.isUncertain ? "≈ " : ""}${threeDigits(ms)} ms`),
      h("small", {}, readablePercent(ms / numberAt(table, "total_ms", 0))),
    );
  }

  /** The layer among the costliest; what was shown stays until the next is known. @param {Detail | null} detail */
  chartPoint(detail) {
    const chart = detail?.chart ?? null;
    if (!detail || chart === this.charted) return;
    this.charted = chart;
    this.slot.classList.toggle("pf-gone", !chart);
    this.chart.show(unpackedPicture(chart));
  }
}

/**
 * The rows that took the most time themselves, the longest first.
 * @param {LayerTable} table @param {number} count @returns {number[]}
 */
export function costliest(table, count) {
  const ms = (/** @type {number} */ row) => numberAt(table, "self_ms", row);
  const rows = Array.from(table.layers.keys()).filter((row) => table.layers[row] && ms(row) > 0);
  return rows.sort((first, second) => ms(second) - ms(first)).slice(0, count);
}

/** @param {{ name: string, value: string }[]} facts */
function factList(facts) {
  const rows = facts.map((fact) => h("div", {}, h("dt", {}, fact.name), h("dd", {}, fact.value)));
  return rows.length ? h("dl", { class: "pf-detail-facts" }, ...rows) : null;
}

/**
 * The chosen layer's time before and now.
 * @param {LayerTable} table @param {string} layer
 */
export function timeBars(table, layer) {
  const row = layer ? table.place.get(layer) : undefined;
  if (row === undefined) return [];
  const now = numberAt(table, "total_ms", row);
  const before = table.before?.total_ms[row] ?? NaN;
  const bound = table.bound[row];
  const why = whyUnknown(table, "self_ms", row);
  const whole = Math.max(now, before || 0);
  const bars = [
    !Number.isNaN(before) && timeBar("before", before, whole, "before", ""),
    why
      ? h("p", { class: "pf-hint" }, why)
      : timeBar("now", now, whole, bound || "unknown", table.isUncertain ? "≈ " : ""),
    bound &&
      h("p", { title: exactBound(bound) }, boundSign(bound), ` limited by ${boundWord(bound)}`),
  ];
  return [h("div", { class: table.isUncertain ? "pf-hatched" : "" }, ...bars)];
}

/**
 * @param {string} name @param {number} ms @param {number} whole @param {string} look
 * @param {string} sign
 */
function timeBar(name, ms, whole, look, sign) {
  const bar = h("i", { class: `pf-bar pf-${look}`, "aria-hidden": "true" });
  bar.style.width = `${100 * barLength(ms, whole)}%`;
  return h(
    "div",
    { class: "pf-time-bar" },
    h("span", {}, name),
    h("span", { class: "pf-bar-box" }, bar),
    h("b", {}, `${sign}${threeDigits(ms)} ms`),
  );
}
