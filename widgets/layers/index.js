/** The layer table: where a model spends its time, one row per layer. */

import { fresh, h } from "../shared/dom.js";
import { filterField } from "../shared/filter_field.js";
import { isField, isPlainKey } from "../shared/grid_keys.js";
import { LayerGrid } from "./grid.js";
import { TimeStrip } from "./time_strip.js";
import { unpackedProfile } from "../shared/unpack.js";

/**
 * A layer table is a view that takes columns: `extras([...])` adds them, `refresh()` draws their
 * cells where their key changed.
 * `tools` is the filter, for whoever wants it elsewhere; `filter()` goes to it. `enter(go)`: Enter on
 * a layer goes there where its row has nothing to press; `focus()` comes back.
 * @typedef {import("../shared/host.js").View & {
 *   extras: (columns: import("./columns.js").Column[]) => void, refresh: () => void, tools:
 *   HTMLElement, filter: () => void, enter: (go: () => void) => void, focus: () => void,
 *   table: () => import("../shared/unpack.js").LayerTable,
 * }} LayersView
 */

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @returns {LayersView}
 */
export function layers(root, host) {
  const title = h("h2", { class: "pf-layers-title" });
  const empty = h("p", { class: "pf-layers-empty", role: "status" });
  const note = h("p", { class: "pf-layers-note" });
  let pendingLayer = /** @type {string | null} */ (null);
  let enter = () => {};
  const grid = new LayerGrid({
    onChoose(layer, isPassing) {
      pendingLayer = layer;
      if (!isPassing) host.select(layer);
    },
    onShown: (shown, all) => showCount(shown, all),
    onEnter: () => enter(),
  });
  const strip = new TimeStrip((layer) => host.select(layer));
  const field = filterField({
    onChange: (query) => grid.filter(query),
    onLeave: (isChosen) => (isChosen ? grid.enter() : grid.element.focus()),
  });
  const box = h(
    "section",
    { class: "pf-layers" },
    h("div", { class: "pf-layers-head" }, title, field.element),
    strip.element,
    grid.element,
    empty,
    note,
  );

  /** @param {number} shown @param {number} all */
  function showCount(shown, all) {
    field.count(grid.shown.query.trim() ? shown : null, all);
    empty.textContent = shown ? "" : emptyText(grid.shown.table.isKnown, all);
    empty.hidden = shown > 0;
    grid.element.hidden = !grid.shown.table.isKnown;
  }

  /** @param {KeyboardEvent} event */
  function onKey(event) {
    if (event.key === "/" && isPlainKey(event) && !isField(event.target)) {
      event.preventDefault();
      field.focus();
    } else if (event.key === "Escape" && !event.defaultPrevented) field.clear();
  }

  /** Choose the layer selected elsewhere, once it is in the table. */
  function follow() {
    const { shown } = grid;
    if (
      pendingLayer === null ||
      pendingLayer === shown.chosen ||
      (pendingLayer && !shown.table.place.has(pendingLayer))
    )
      return;
    if (
      pendingLayer &&
      shown.query &&
      !shown.rows.includes(Number(shown.table.place.get(pendingLayer)))
    )
      field.clear();
    grid.choose(pendingLayer || null);
  }

  box.addEventListener("keydown", onKey);
  root.append(box);
  return {
    show(data) {
      const table = unpackedProfile(data);
      fresh(title, table.title);
      fresh(note, table.note);
      note.hidden = !table.note;
      note.title = table.note;
      box.classList.toggle("pf-uncertain", table.isUncertain);
      strip.show(table);
      grid.show(table);
      follow();
    },
    select(layer) {
      pendingLayer = layer;
      strip.select(layer);
      follow();
    },
    destroy() {
      strip.destroy();
      grid.destroy();
    },
    extras: (columns) => grid.addColumns(columns),
    refresh: () => grid.refresh(),
    tools: field.element,
    filter: () => field.focus(),
    enter: (go) => (enter = go),
    focus: () => grid.element.focus({ preventScroll: true }),
    table: () => grid.shown.table,
  };
}

const NOT_YET =
  "Where does the time go? The whole model is measured first; its layers follow in a few seconds.";

/** @param {boolean} isKnown @param {number} all */
function emptyText(isKnown, all) {
  if (!isKnown) return NOT_YET;
  return all ? "no layer matches" : "no layer ran";
}
