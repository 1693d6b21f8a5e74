/**
 * A fusion map as rows: places where layers follow each other, what runs in their stead, and what
 * that brings. No page in here.
 */

import { readableBytes, readableMs } from "../shared/format.js";
import { heatText } from "../shared/heat_scale.js";
import { isMatch, wordsOf } from "../shared/order.js";
import { float32s, spelledOut } from "../shared/unpack.js";

/**
 * @typedef {{ index: number, place: string, layers: string[], where: string, names: string[],
 * pattern: string, runs: string, standing: string, reason: string,
 *   apartMs: number, fusedMs: number, speedup: number, savedBytes: number, error: number,
 *   canSwitch: boolean }} FusedPlace
 *   `where` is the path that all its layers share, `names` what each adds to it
 * @typedef {{ isKnown: boolean, title: string, machine: string, whole: string, notes: string[],
 * places: FusedPlace[], placeOf: Map<string, FusedPlace>, longestMs: number }} FusionTable
 */

/**
 * What the trait `data` holds; `{}` is no map yet.
 * @param {any} data @returns {FusionTable}
 */
export function unpackedFusion(data) {
  const isKnown = Array.isArray(data?.layers);
  const [pattern, runs, standing, reason] = ["pattern", "runs", "standing", "reason"].map((name) =>
    spelledOut(data?.[name]),
  );
  const [apart, fused, saved, error] = ["apart_ms", "fused_ms", "saved_bytes", "error"].map(
    (name) => (isKnown ? float32s(data.numbers[name]) : []),
  );
  const places = /** @type {string[][]} */ (data?.layers ?? []).map((layers, index) => ({
    index,
    place: layers[0],
    layers,
    ...sharedPath(layers),
    pattern: pattern[index],
    runs: runs[index],
    standing: standing[index],
    reason: reason[index],
    apartMs: apart[index],
    fusedMs: fused[index],
    speedup: apart[index] / fused[index],
    savedBytes: saved[index],
    error: error[index],
    canSwitch: standing[index] !== "apart",
  }));
  const longestMs = Math.max(
    0,
    ...places.flatMap((one) => [one.apartMs, one.fusedMs]).filter((ms) => ms > 0),
  );
  const placeOf = new Map(places.flatMap((one) => one.layers.map((layer) => [layer, one])));
  return {
    isKnown,
    title: data?.title ?? "",
    machine: data?.machine ?? "",
    whole: data?.whole ?? "",
    notes: data?.notes ?? [],
    places,
    placeOf,
    longestMs,
  };
}

/**
 * What all paths begin with, up to a dot, and the rest of each.
 * @param {string[]} layers @returns {{ where: string, names: string[] }}
 */
export function sharedPath(layers) {
  const [first, ...others] = layers.map((layer) => layer.split("."));
  let shared = 0;
  while (
    shared < first.length - 1 &&
    others.every((path) => shared < path.length - 1 && path[shared] === first[shared])
  )
    shared += 1;
  const where = first
    .slice(0, shared)
    .map((part) => `${part}.`)
    .join("");
  return { where, names: layers.map((layer) => layer.slice(where.length)) };
}

/**
 * The places that a filter leaves: by a layer's path, the pattern or what runs.
 * @param {FusionTable} table @param {string} query @returns {FusedPlace[]}
 */
export function filteredPlaces(table, query) {
  const words = wordsOf(query);
  return table.places.filter((one) =>
    isMatch(one.layers.join(" "), `${one.pattern} ${one.runs}`, words),
  );
}

/**
 * What it is worth as one: "1.37 ×", and "0.83 ×, slower" where it is not; "" where nobody timed
 * it.
 * @param {FusedPlace} one
 */
export function fusionSpeedText(one) {
  if (!Number.isFinite(one.speedup)) return "";
  return `${one.speedup.toFixed(2)} ×${one.speedup < 0.995 ? ", slower" : ""}`;
}

/** "0.412 → 0.301": a call of the layers apart, and as one. @param {FusedPlace} one */
export function timesText(one) {
  if (Number.isNaN(one.apartMs) && Number.isNaN(one.fusedMs)) return "";
  return `${readableMs(one.apartMs)} → ${readableMs(one.fusedMs)}`;
}

/** @param {FusedPlace} one */
export function savedText(one) {
  return Number.isNaN(one.savedBytes) ? "" : readableBytes(one.savedBytes);
}

/** @param {FusedPlace} one */
export function fusionErrorText(one) {
  return Number.isNaN(one.error) ? "" : heatText(one.error);
}

/**
 * What a column is sorted by.
 * @param {FusedPlace} one @param {string} column @returns {number | string}
 */
export function fusionValue(one, column) {
  /** @type {Record<string, number | string>} */
  const values = {
    layer: one.place,
    runs: one.runs,
    ms: one.apartMs,
    speed: one.speedup,
    saved: one.savedBytes,
    error: one.error,
  };
  return values[column] ?? "";
}

/**
 * Whether a place stays apart because it would be slower as one: its standing says so, or it is off
 * and was timed so.
 * @param {FusedPlace} one
 */
export function isSlower(one) {
  return one.standing === "slower" || (one.standing === "off" && one.speedup < 1);
}

/** Whether it would run as one if it were up to the step. @param {FusedPlace} one */
export function canGain(one) {
  return one.canSwitch && !isSlower(one);
}

/** How a place stands, in a few words. @param {FusedPlace} one @param {boolean} isOn */
export function standingWords(one, isOn) {
  if (isOn) return one.speedup < 1 ? "runs as one, and is slower so" : "runs as one";
  if (!one.canSwitch) return "cannot be one";
  if (isSlower(one)) return "would be slower as one, so it stays apart";
  return one.speedup > 1 ? "apart; would gain as one" : "apart; could be one";
}

/**
 * Why it stays apart, where that says more than that nobody asked for it.
 * @param {FusedPlace} one @param {boolean} isOn
 */
export function reasonText(one, isOn) {
  return isOn || one.standing === "off" ? "" : one.reason;
}

/**
 * A place in a sentence, for the line under the table and for whoever does not see it.
 * @param {FusedPlace} one @param {boolean} isOn
 */
export function placeSentence(one, isOn) {
  const facts = [
    one.pattern,
    one.runs,
    timesText(one) && `${timesText(one)} ms`,
    fusionSpeedText(one),
    savedText(one) && `${savedText(one)} less through memory at each call`,
    fusionErrorText(one) && `error ${fusionErrorText(one)}`,
  ];
  return [standingWords(one, isOn), reasonText(one, isOn), ...facts].filter(Boolean).join(" · ");
}

/**
 * How many places stand how, and what those that run as one save.
 * @param {FusionTable} table @param {Set<string>} on
 */
export function fusionSummary(table, on) {
  const { places } = table;
  if (!places.length)
    return [
      "No layers of this model follow each other in a way that could run as one.",
      ...table.notes,
    ].join(" · ");
  const [fused, off] = [
    places.filter((one) => on.has(one.place)),
    places.filter((one) => !on.has(one.place)),
  ];
  const left = off.filter(canGain);
  const [slower, apart] = [off.filter(isSlower).length, off.filter((one) => !one.canSwitch).length];
  const saved = savedAsOne(fused.length ? fused : left);
  const first = fused.length
    ? `${fused.length} of ${places.length} places run as one${saved ? `, which ${saved > 0 ? "saves" : "costs"} ${readableMs(Math.abs(saved))} ms, each timed by itself` : ""}`
    : `Nothing runs as one: ${left.length} of ${places.length} places could${saved > 0 ? `, which would save ${readableMs(saved)} ms, each timed by itself` : ""}`;
  const isAsTimed = places.every((one) => (one.standing === "fused") === on.has(one.place));
  const rest = [
    isAsTimed && table.whole && `the whole model ${table.whole}`,
    fused.length && left.length && `${left.length} more could`,
    slower && `${slower} would be slower`,
    apart && `${apart} cannot be one`,
  ];
  return [first, ...rest].filter(Boolean).join(" · ");
}

/** What places save of a call as one; 0 where none was timed. @param {FusedPlace[]} places */
function savedAsOne(places) {
  return places.reduce(
    (sum, one) => sum + (Number.isFinite(one.speedup) ? one.apartMs - one.fusedMs : 0),
    0,
  );
}
