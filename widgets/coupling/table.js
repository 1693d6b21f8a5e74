/** The groups of channels packed by `packed_coupling`. No DOM. */

import { int32s, spelledOut } from "../shared/unpack.js";

/**
 * @typedef {{ layer: string, parameter: string, kind: string }} GroupMember `kind`: "rows" make the
 * channels, "columns" read them, a "buffer" goes along
 * @typedef {{ name: string, width: number, unit: number, pinned: string, members: GroupMember[] }}
 * ChannelGroup
 * @typedef {{ isKnown: boolean, title: string, groups: ChannelGroup[],
 * groupsMadeBy: Map<string, number[]>
 * }} CouplingTable
 *   `groupsMadeBy`: layer → indices of the groups whose channels it produces
 */

/**
 * Unpack the trait `data`; `{}` is an unknown coupling.
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
    groupsMadeBy: makersOf(groups),
  };
}

/**
 * The layers of some members in their order, each with its parameters.
 * @param {GroupMember[]} members @returns {[string, string[]][]}
 */
export function byLayer(members) {
  /** @type {Map<string, string[]>} */
  const byName = new Map();
  for (const { layer, parameter } of members)
    byName.set(layer, [...(byName.get(layer) ?? []), parameter]);
  return [...byName].map(([layer, parameters]) => [layer, [...new Set(parameters)]]);
}

/**
 * 64 → "64 channels"; units of several channels, such as heads, are named.
 * @param {ChannelGroup} group @param {number} [kept]
 */
export function unitsText({ width, unit }, kept = width) {
  const of = kept === width ? "" : `${kept.toLocaleString("en-US")} of `;
  const count = `${of}${width.toLocaleString("en-US")}`;
  if (unit === 1) return `${count} ${width === 1 ? "channel" : "channels"}`;
  const units = width === 1 ? "unit" : "units";
  return `${count} ${units} of ${unit.toLocaleString("en-US")} channels`;
}

/** @param {ChannelGroup[]} groups @returns {Map<string, number[]>} */
function makersOf(groups) {
  /** @type {Map<string, number[]>} */
  const groupsMadeBy = new Map();
  groups.forEach(({ members }, place) => {
    for (const layer of new Set(
      members.filter((member) => member.kind === "rows").map((member) => member.layer),
    ))
      groupsMadeBy.set(layer, [...(groupsMadeBy.get(layer) ?? []), place]);
  });
  return groupsMadeBy;
}
