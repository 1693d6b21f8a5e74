import assert from "node:assert/strict";
import { test } from "node:test";

import { insertBelow } from "./notebook_cell.js";

/** @param {string | undefined} place */
function shownIn(place) {
  return /** @type {any} */ ({ closest: () => ({ dataset: { windowedListIndex: place } }) });
}

test("a cell is inserted below the one that shows the element", () => {
  /** @type {any[]} */
  const inserted = [];
  const sharedModel = { insertCell: (/** @type {any[]} */ ...given) => inserted.push(given) };
  const model = { widget_manager: { context: { model: { sharedModel } } } };
  assert.equal(insertBelow(shownIn("3"), model, "x = 1"), true);
  assert.deepEqual(inserted, [[4, { cell_type: "code", source: "x = 1" }]]);
  assert.equal(insertBelow(shownIn(undefined), model, "x = 1"), false);
  assert.equal(insertBelow(/** @type {any} */ ({ closest: () => null }), model, "x"), false);
  assert.equal(insertBelow(shownIn("3"), {}, "x = 1"), false);
  assert.equal(inserted.length, 1);
});
