/** Why the numbers are grey: who used the machine, how much of it, and what to do. */

import { fresh, h, s } from "../shared/dom.js";
import { readablePercent } from "../shared/format.js";

/** @typedef {import("./expected.js").Expected} Expected */

const CHART = { width: 288, height: 56 };
const SECONDS = 60;

/** @returns {{ element: HTMLElement, show: (state: Expected) => void }} */
export function qualityPanel() {
  const element = h("section", { class: "pf-quality", "aria-label": "how quiet the machine is" });
  let drawn = "";
  return {
    element,
    show(state) {
      const key = JSON.stringify([state.quality, state.others]);
      if (key === drawn) return;
      drawn = key;
      fresh(element, ...qualityParts(state));
    },
  };
}

/** @param {Expected} state @returns {(Node | null)[]} */
function qualityParts(state) {
  const { quality, others } = state;
  const isQuiet = !quality || quality.state === "quiet";
  const reasons = (quality?.reasons ?? []).map(([name, value]) => row(name, value));
  const busiest = (quality?.busiest ?? []).map(([name, cores]) => row(name, coresText(cores)));
  return [
    h("h3", {}, isQuiet ? "How quiet the machine is" : "Why the numbers are grey"),
    quality?.sentence ? h("p", {}, `${quality.sentence}.`) : null,
    reasons.length ? h("dl", { class: "pf-detail-facts" }, ...reasons) : null,
    ...othersChart(others),
    busiest.length ? h("h4", {}, "Who") : null,
    busiest.length ? h("dl", { class: "pf-detail-facts" }, ...busiest) : null,
    isQuiet ? null : h("h4", {}, "What you can do"),
    isQuiet
      ? null
      : h(
          "p",
          {},
          h("b", {}, "Wait for quiet"),
          ": it measures by itself once the machine is quiet. ",
          h("b", {}, "Measure anyway"),
          ": a large effect may still be told.",
        ),
  ];
}

/** 0.9 → "0.9 cores". @param {number} cores */
export function coresText(cores) {
  const text = String(Number(cores.toFixed(1)));
  return `${text === "0" ? "< 0.1" : text} ${text === "1" ? "core" : "cores"}`;
}

/** @param {string} name @param {string} value */
function row(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

/** @param {number[]} others @returns {Node[]} */
function othersChart(others) {
  if (others.length < 2) return [];
  const { width, height } = CHART;
  const step = width / SECONDS;
  const bars = others.map((share, place) => {
    const tall = Math.max(1, Math.min(1, share) * height);
    const x = (SECONDS - others.length + place) * step;
    return s("rect", { x, y: height - tall, width: step - 1, height: tall });
  });
  const most = readablePercent(Math.max(...others));
  const name = `processor taken by others in the last ${others.length} seconds, at most ${most}`;
  return [
    h("h4", {}, "Processor taken by others"),
    s(
      "svg",
      {
        class: "pf-others",
        viewBox: `0 0 ${width} ${height}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": name,
      },
      ...bars,
    ),
    h("p", { class: "pf-ends" }, h("span", {}, `${SECONDS} s ago`), h("span", {}, "now")),
  ];
}
