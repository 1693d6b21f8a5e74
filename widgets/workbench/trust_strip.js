/** The strip that says how far the numbers can be trusted: the state, its reasons, the way out. */

import { fresh, h, s, set } from "../shared/dom.js";
import { readablePercent } from "../shared/format.js";

/** @typedef {import("./expected.js").Expected} Expected */

const SIGNS = /** @type {Record<string, string>} */ ({ quiet: "✓", busy: "◷", unusable: "✕" });
const SPARK = { width: 120, height: 16 };
const SECONDS = 60;

/**
 * @param {(request: { do: string }) => void} ask
 * @returns {{ element: HTMLElement, show: (state: Expected) => void, wait: () => void }}
 */
export function trustStrip(ask) {
  const sign = h("i", { class: "pf-trust-sign", "aria-hidden": "true" });
  const label = h("b", {});
  const reasons = h("ul", { class: "pf-reasons" });
  const spark = h("span", { class: "pf-spark" });
  const wait = button("Wait for quiet", "starts by itself after some quiet seconds (w)", () =>
    ask({ do: "wait_for_quiet" }),
  );
  const measure = button("Measure anyway", "now, on a busy machine (m)", () =>
    ask({ do: "measure" }),
  );
  wait.classList.add("pf-primary");
  const spoken = h("div", { class: "pf-trust-state", role: "status", "aria-live": "polite" });
  spoken.append(sign, label);
  const ways = h("div", { class: "pf-ways" }, measure, wait);
  const element = h("section", { class: "pf-trust", "aria-label": "how far to trust the numbers" });
  element.append(spoken, reasons, spark, ways);
  let told = "";
  let drawn = "";

  return {
    element,
    wait: () => !wait.hidden && wait.click(),
    show(shown) {
      const kind = trustOf(shown);
      const text = trustLabel(shown);
      element.dataset.trust = kind;
      if (text !== told) fresh(label, text);
      label.title = text; // it may be cut
      told = text;
      if (sign.textContent !== (SIGNS[kind] ?? "–")) fresh(sign, SIGNS[kind] ?? "–");
      const given = reasonsOf(shown);
      if (JSON.stringify(given) !== drawn) fresh(reasons, ...given.map(drawReason));
      drawn = JSON.stringify(given);
      const isTroubled = kind === "busy" || kind === "unusable";
      for (const way of [wait, measure]) way.hidden = !isTroubled || shown.waiting;
      wait.classList.toggle("pf-asked", shown.asked.has("wait_for_quiet"));
      ways.hidden = wait.hidden;
      fresh(spark, ...(isTroubled ? [] : sparkline(shown.others)));
    },
  };
}

/** "quiet", "busy", "unusable", or "" before it is known. @param {Expected} state */
export function trustOf(state) {
  return state.quality?.state ?? "";
}

/** @param {Expected} state */
export function trustLabel(state) {
  if (state.waiting) return "Waiting for quiet …";
  if (state.quality) return state.quality.label;
  return state.status === "idle" ? "Not measured yet" : "Measuring …";
}

/** The reasons, then how it was measured. @param {Expected} state @returns {[string, string][]} */
export function reasonsOf(state) {
  /** @type {[string, string][]} */
  const how = state.threads
    ? [["", `${state.threads} thread${state.threads === 1 ? "" : "s"}`]]
    : [];
  return [...(state.quality?.reasons ?? []), ...how, ["", state.machine]];
}

/** What a reason means exactly, by how Python begins it. @type {Record<string, string>} */
const EXACT = {
  "others took": "CPU contention: share of the cores' time that other processes used",
  "calls waited": "share of a call in which the process had less than one core",
  "rounds agree within": "half of the middle 90% of the rounds, over their median",
  "each call slept": "context switches of a call, beside the OpenMP threads of another thread",
  "layers add up to": "the sum of the layers' times over the model's, where they were timed",
  "as it came it drifted": "the fastest and the slowest of its timings, one in each comparison",
  "the clock ran at": "clock frequency over the processor's highest",
  "while layers were timed": "the profile was taken at another moment than the comparison",
};

/** @param {[string, string]} reason */
function drawReason([name, value]) {
  if (!value) return null;
  const parts = [name && `${name} `, name ? h("b", {}, value) : value];
  const whole = `${name} ${value}`.trim(); // it may be cut
  return h("li", { title: EXACT[name] ? `${whole}: ${EXACT[name]}` : whole }, ...parts);
}

/** @param {string} text @param {string} title @param {() => void} onclick */
function button(text, title, onclick) {
  return h("button", { type: "button", class: "pf-button", title, onclick }, text);
}

/**
 * The share of the cores that others took, the last second at the right end.
 * @param {number[]} others @returns {Node[]}
 */
function sparkline(others) {
  if (others.length < 2) return [];
  const { width, height } = SPARK;
  const first = SECONDS - others.length;
  const points = others.map((share, place) => {
    const x = ((first + place) / (SECONDS - 1)) * width;
    return `${x.toFixed(1)},${(height - 1 - Math.min(1, share) * (height - 2)).toFixed(1)}`;
  });
  const name = `share of the processor that others took, now ${readablePercent(others.at(-1))}`;
  const line = s("polyline", { points: points.join(" "), class: "pf-spark-line" });
  const chart = s("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, line);
  set(chart, { role: "img", "aria-label": name });
  return [h("small", {}, `others, ${SECONDS} s`), chart];
}
