/** The chosen formats: Python's state plus pending requests. */

import { unserved } from "../shared/host.js";

/**
 * @typedef {{ chosen: Record<string, string>, asked: Set<string> }} ChosenFormats `asked`: layers
 * whose choice is on its way
 */

/** @param {any} model @returns {ChosenFormats} */
export function chosenFormats(model) {
  const known = model.get("state")?.precisions ?? model.get("chosen") ?? {};
  const requests = /** @type {any[]} */ (unserved(model)).filter(
    (request) => request.do === "precision",
  );
  const asked = Object.fromEntries(requests.map((request) => [request.layer, request.name]));
  return { chosen: { ...known, ...asked }, asked: new Set(Object.keys(asked)) };
}

/**
 * Why a layer cannot be in a format; "" if it can.
 * @param {{ cannot?: Record<string, string>, cannot_in?: Record<string, Record<string, string>> } |
 * null | undefined} state
 * @param {string} layer @param {string} format
 */
export function whyNot(state, layer, format) {
  return state?.cannot?.[layer] ?? state?.cannot_in?.[layer]?.[format] ?? "";
}
