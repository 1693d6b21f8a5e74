/** A fusion map as rows: sites, what runs in place of their layers, and the gain. No DOM. */

import { readableBytes, readableMs } from "../shared/format.js";
import { heatText } from "../shared/heat_scale.js";
import { flatTree } from "../shared/tree.js";
import { float32s, spelledOut } from "../shared/unpack.js";

/**
 * @typedef {{ index: number, place: string, layers: string[], where: string, names: string[],
 * pattern: string, runs: string, standing: string, reason: string,
 *   apartMs: number, fusedMs: number, speedup: number, savedBytes: number, error: number,
 *   canSwitch: boolean }} FusedPlace
 *   `where` is the path that all its layers share, `names` what each adds to it
 * @typedef {import("../shared/arrangement.js").GridTable & { isKnown: boolean, title: string,
 * machine: string, whole: string, notes: string[], places: FusedPlace[], placeOf: Map<string,
 * FusedPlace>, longestMs: number }} FusionTable `kind` is what a filter looks at beside the place
 */

/** Unpack the trait `data`; `{}` is an unknown map. @param {any} data @returns {FusionTable} */
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
    ...places.flatMap((site) => [site.apartMs, site.fusedMs]).filter((ms) => ms > 0),
  );
  const placeOf = new Map(places.flatMap((site) => site.layers.map((layer) => [layer, site])));
  return {
    isKnown,
    title: data?.title ?? "",
    machine: data?.machine ?? "",
    whole: data?.whole ?? "",
    notes: data?.notes ?? [],
    layers: places.map((site) => site.place),
    kind: places.map((site) => `${site.layers.join(" ")} ${site.pattern} ${site.runs}`),
    place: new Map(places.map((site) => [site.place, site.index])),
    ...flatTree(places.length),
    places,
    placeOf,
    longestMs,
  };
}

/**
 * The common prefix of all paths, up to a dot, and the rest of each.
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
 * The speed-up of a fused site: "1.37 ×" or "0.83 ×, slower"; "" if it was not timed.
 * @param {FusedPlace} site
 */
export function fusionSpeedText(site) {
  if (!Number.isFinite(site.speedup)) return "";
  return `${site.speedup.toFixed(2)} ×${site.speedup < 0.995 ? ", slower" : ""}`;
}

/** @param {FusedPlace} site */
export function savedText(site) {
  return Number.isNaN(site.savedBytes) ? "" : readableBytes(site.savedBytes);
}

/** @param {FusedPlace} site */
export function fusionErrorText(site) {
  return Number.isNaN(site.error) ? "" : heatText(site.error);
}

/**
 * Whether fusing a site would be slower: by its standing, or by its times if it is off.
 * @param {FusedPlace} site
 */
export function isSlower(site) {
  return site.standing === "slower" || (site.standing === "off" && site.speedup < 1);
}

/** Whether the step would fuse the site by itself. @param {FusedPlace} site */
export function canGain(site) {
  return site.canSwitch && !isSlower(site);
}

/** The state of a site in a few words. @param {FusedPlace} site @param {boolean} isOn */
export function standingWords(site, isOn) {
  if (isOn) return site.speedup < 1 ? "runs as one, and is slower so" : "runs as one";
  if (!site.canSwitch) return "cannot be one";
  if (isSlower(site)) return "would be slower as one, so it stays apart";
  return site.speedup > 1 ? "apart; would gain as one" : "apart; could be one";
}

/**
 * Why a site is not fused; "" if it is merely switched off.
 * @param {FusedPlace} site @param {boolean} isOn
 */
export function reasonText(site, isOn) {
  return isOn || site.standing === "off" ? "" : site.reason;
}

/**
 * A site in a sentence, for the line under the table and for screen readers.
 * @param {FusedPlace} site @param {boolean} isOn
 */
export function placeSentence(site, isOn) {
  const facts = [
    site.pattern,
    site.runs,
    fusionSpeedText(site),
    savedText(site) && `${savedText(site)} less through memory at each call`,
    fusionErrorText(site) && `error ${fusionErrorText(site)}`,
  ];
  return [standingWords(site, isOn), reasonText(site, isOn), ...facts].filter(Boolean).join(" · ");
}

/**
 * The numbers of sites by state, and the time that the fused ones save.
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
    places.filter((site) => on.has(site.place)),
    places.filter((site) => !on.has(site.place)),
  ];
  const left = off.filter(canGain);
  const [slower, apart] = [
    off.filter(isSlower).length,
    off.filter((site) => !site.canSwitch).length,
  ];
  const saved = savedAsOne(fused.length ? fused : left);
  const effect = `${readableMs(Math.abs(saved))} ms, each timed by itself`;
  const first = fused.length
    ? `${fused.length} of ${places.length} places run as one` +
      (saved ? `, which ${saved > 0 ? "saves" : "costs"} ${effect}` : "")
    : `Nothing runs as one: ${left.length} of ${places.length} places could` +
      (saved > 0 ? `, which would save ${effect}` : "");
  const isAsTimed = places.every((site) => (site.standing === "fused") === on.has(site.place));
  const rest = [
    isAsTimed && table.whole && `the whole model ${table.whole}`,
    fused.length && left.length && `${left.length} more could`,
    slower && `${slower} would be slower`,
    apart && `${apart} cannot be one`,
  ];
  return [first, ...rest].filter(Boolean).join(" · ");
}

/** The time that fused sites save per call; 0 if none was timed. @param {FusedPlace[]} places */
function savedAsOne(places) {
  return places.reduce(
    (sum, site) => sum + (Number.isFinite(site.speedup) ? site.apartMs - site.fusedMs : 0),
    0,
  );
}
