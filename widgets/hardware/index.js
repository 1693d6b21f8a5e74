/** The hardware view: a machine's facts, and its ceilings by number of threads and format. */

import { fresh, h } from "../shared/dom.js";
import { readableBytes } from "../shared/format.js";
import { bandwidthText, ceilingGroups, formatRates, machineFacts } from "./facts.js";
import { roundedText } from "../shared/scale.js";

/** @typedef {import("./facts.js").HardwareData} HardwareData */
/** @typedef {import("./facts.js").CeilingGroup} CeilingGroup */

/** @param {HTMLElement} root @returns {import("../shared/host.js").View} */
export function hardware(root) {
  const box = h("section", { class: "pf-view pf-hardware", "aria-label": "hardware" });
  root.append(box);
  return {
    /** @param {HardwareData} data */
    show(data) {
      if (!data?.name)
        return void fresh(
          box,
          h(
            "p",
            { class: "pf-empty" },
            "What can this machine do? Its ceilings are measured in a few seconds.",
          ),
        );
      const source = h(
        "span",
        { class: "pf-note" },
        data.source === "measured" ? "ceilings measured here" : "published figures, not measured",
      );
      const head = h("div", { class: "pf-view-head" }, h("h2", {}, data.name), source);
      const note = data.note ? h("p", { class: "pf-note" }, data.note) : null;
      fresh(
        box,
        head,
        machineFactList(data),
        isaChips(data.isa ?? []),
        ...ceilingGroups(data).map(ceilingTable),
        note,
      );
    },
  };
}

/** @param {HardwareData} data */
function machineFactList(data) {
  const facts = machineFacts(data).map(([name, value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value)),
  );
  return h("dl", { class: "pf-machine-facts" }, ...facts);
}

/** @param {string[]} isa */
function isaChips(isa) {
  if (!isa.length) return null;
  return h(
    "ul",
    { class: "pf-isa-list", "aria-label": "instruction sets" },
    ...isa.map((name) => h("li", { class: "pf-isa" }, name)),
  );
}

/**
 * Rows of threads, columns of formats; bars of one device share one scale.
 * @param {CeilingGroup} group
 */
function ceilingTable(group) {
  const columns = ["", ...group.formats, "memory"].map((name) => h("th", { scope: "col" }, name));
  const rows = group.ceilings.map(({ label, ceiling }) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, label),
      ...group.formats.map((format) =>
        rateCell(formatRates(ceiling)[format], ceiling.fp32_gflops, group, format),
      ),
      barCell(
        bandwidthText(ceiling.bandwidth_gbs),
        "",
        ceiling.bandwidth_gbs / group.mostGbs,
        "pf-of-memory-bar",
      ),
    ),
  );
  const memory = group.memory_bytes
    ? ` · ${readableBytes(group.memory_bytes)}${group.detail ? ` · ${group.detail}` : ""}`
    : "";
  const caption = h(
    "caption",
    {},
    h("b", {}, group.name),
    `${memory} `,
    h(
      "small",
      {},
      `${group.isLarge ? "trillion" : "billion"} operations a second; beside it × fp32`,
    ),
  );
  return h(
    "table",
    { class: "pf-table pf-ceilings" },
    caption,
    h("thead", {}, h("tr", {}, ...columns)),
    h("tbody", {}, ...rows),
  );
}

/**
 * @param {number | null} rate @param {number} fp32 @param {CeilingGroup} group @param {string}
 * format
 */
function rateCell(rate, fp32, group, format) {
  if (rate === null) return h("td", { class: "pf-no-rate" }, "–");
  const ratio = rate / fp32;
  const beside = format === "fp32" ? "" : `${ratio.toFixed(ratio < 10 ? 1 : 0)} ×`;
  return barCell(
    roundedText(group.isLarge ? rate / 1000 : rate),
    beside,
    rate / group.mostGflops,
    ratio < 1 ? "pf-of-slower-bar" : "pf-of-compute-bar",
  );
}

/** @param {string} value @param {string} beside @param {number} share @param {string} look */
function barCell(value, beside, share, look) {
  const bar = h(
    "span",
    { class: "pf-rate-bar", "aria-hidden": "true" },
    h("span", { class: look, style: `width: ${(100 * share).toFixed(1)}%` }),
  );
  return h(
    "td",
    {},
    h("span", { class: "pf-rate" }, beside ? h("small", {}, beside) : null, h("b", {}, value)),
    bar,
  );
}
