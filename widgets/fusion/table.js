/** A fusion map as the rows of a grid. No DOM. */

import { flatTree } from "../shared/tree.js";

/**
 * A site as Python packs it: `where` is the path that all its layers share, `names` what each adds
 * to it; `off` and `on` say what it is while it is apart and while it runs as one.
 * @typedef {{ sentence: string, reason: string, hint: string }} Words
 * @typedef {{ layers: string[], where: string, names: string[], pattern: string, runs: string,
 *   reason: string, is_fused: boolean, can_switch: boolean, can_gain: boolean, has_facts: boolean,
 *   look: string, bars: [number, string][], ms: number | null, off: Words, on: Words }} FusedPlace
 * @typedef {import("../shared/figure_column.js").Figure} Figure
 * @typedef {import("../shared/arrangement.js").GridTable & { isKnown: boolean, title: string,
 *   summary: string, places: FusedPlace[], columns: Figure[], placeOf: Map<string, string> }}
 *   FusionTable `kind` is what a filter looks at beside the place
 */

/** @param {any} data the trait; `{}` is an unknown map @returns {FusionTable} */
export function fusionTable(data) {
  const { title = "", summary = "", columns = [] } = data ?? {};
  const places = /** @type {FusedPlace[]} */ (data?.places ?? []);
  const layers = places.map((site) => site.layers[0]);
  return {
    isKnown: Boolean(data?.places),
    title,
    summary,
    columns,
    places,
    layers,
    kind: places.map((site) => `${site.layers.join(" ")} ${site.pattern} ${site.runs}`),
    place: new Map(layers.map((place, row) => [place, row])),
    placeOf: new Map(places.flatMap((site, row) => site.layers.map((one) => [one, layers[row]]))),
    ...flatTree(places.length),
  };
}
