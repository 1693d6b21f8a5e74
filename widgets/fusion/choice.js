/** Which sites are fused: Python's state plus pending requests. No DOM. */

import { unserved } from "../shared/host.js";

/** @typedef {import("./table.js").FusionTable} FusionTable */
/**
 * @typedef {{ on: Set<string>, asked: Set<string>, hasStep: boolean }} FusionChoice `asked` are on
 * their way to Python
 */

/** @param {any} model @param {FusionTable} table @returns {FusionChoice} */
export function fusionChoice(model, table) {
  const known = model.get("state")?.fused;
  if (!known)
    return {
      on: new Set(table.places.filter((site) => site.is_fused).map((site) => site.layers[0])),
      asked: new Set(),
      hasStep: true,
    }; // without a workbench: the map's own state
  const requests = /** @type {any[]} */ (unserved(model)).filter(
    (request) => request.do === "fuse" || request.do === "fuse_all",
  );
  const before = {
    on: new Set(/** @type {string[]} */ (known.on)),
    asked: new Set(),
    hasStep: known.has_step,
  };
  return requests.reduce((choice, request) => afterRequest(table, choice, request), before);
}

/**
 * @param {FusionTable} table @param {FusionChoice} choice @param {{ do: string, place?: string,
 * is_on: boolean }} request @returns {FusionChoice}
 */
function afterRequest(table, choice, request) {
  const all = request.do === "fuse_all";
  const meant = all
    ? table.places.filter((site) => site.can_gain).map((site) => site.layers[0])
    : [request.place ?? ""];
  const on = all ? new Set(request.is_on ? meant : []) : new Set(choice.on);
  if (!all) for (const place of meant) request.is_on ? on.add(place) : on.delete(place);
  return { on, asked: new Set([...choice.asked, ...meant]), hasStep: on.size > 0 };
}
