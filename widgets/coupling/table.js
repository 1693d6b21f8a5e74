/**
 * A packed coupling as groups of channels. What `packed_coupling` of `wire.py` packed. No page in
 * here.
 */

import { int32s, spelledOut } from "../shared/unpack.js";

/**
 * @typedef {{ layer: string, parameter: string, kind: string }} GroupMember `kind`: "rows" make the
 * channels, "columns" read them, a "buffer" goes along
 * @typedef {{ name: string, width: number, unit: number, pinned: string, members: GroupMember[] }}
 * ChannelGroup
 * @typedef {{ isKnown: boolean, title: string, groups: ChannelGroup[], made: Map<string, number[]>
 * }} CouplingTable
 *   `made`: layer → the places of the groups of which it makes channels
 */

/**
 * What a panel holds; `{}` is a coupling that is not yet there.
 * @param {any} data @returns {CouplingTable}
 */
export function unpackedCoupling(data) {
  const names = /** @type {string[]} */ (data?.name ?? []);
  const [width, unit, count] = ["width", "unit", "count"].map((name) =>
    data?.[name] ? int32s(data[name]) : new Int32Array(),
  );
  const [pinned, layer, parameter, kind] = ["pinned", "layer", "parameter", "kind"].map((name) =>
    spelledOut(data?.[name]),
  );
  let start = 0;
  const groups = names.map((name, place) => {
    const from = start;
    start += count[place];
    const members = Array.from({ length: count[place] }, (_, at) => ({
      layer: layer[from + at],
      parameter: parameter[from + at],
      kind: kind[from + at],
    }));
    return { name, width: width[place], unit: unit[place], pinned: pinned[place], members };
  });
  return {
    isKnown: Array.isArray(data?.name),
    title: data?.title ?? "",
    groups,
    made: makersOf(groups),
  };
}

/**
 * The layers of some members in their order, each with the names of its weights that are meant.
 * @param {GroupMember[]} members @returns {[string, string[]][]}
 */
export function byLayer(members) {
  /** @type {Map<string, string[]>} */
  const found = new Map();
  for (const { layer, parameter } of members)
    found.set(layer, [...(found.get(layer) ?? []), parameter]);
  return [...found].map(([layer, parameters]) => [layer, [...new Set(parameters)]]);
}

/**
 * 64 → "64 channels"; units of several channels, such as heads, are named.
 * @param {ChannelGroup} group @param {number} [kept]
 */
export function unitsText({ width, unit }, kept = width) {
  const of = kept === width ? "" : `${kept.toLocaleString("en-US")} of `;
  if (unit === 1)
    return `${of}${width.toLocaleString("en-US")} ${width === 1 ? "channel" : "channels"}`;
  return `${of}${width.toLocaleString("en-US")} ${width === 1 ? "unit" : "units"} of ${unit.toLocaleString("en-US")} channels`;
}

/** @param {ChannelGroup[]} groups @returns {Map<string, number[]>} */
function makersOf(groups) {
  /** @type {Map<string, number[]>} */
  const made = new Map();
  groups.forEach(({ members }, place) => {
    for (const layer of new Set(
      members.filter((one) => one.kind === "rows").map((one) => one.layer),
    ))
      made.set(layer, [...(made.get(layer) ?? []), place]);
  });
  return made;
}
