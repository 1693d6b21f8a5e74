import assert from "node:assert/strict";
import { test } from "node:test";
import "../shared/fake_page.js";
import { exports } from "./index.js";

test("files asked for in a row are all saved, and their list stays as it is", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const sizes = /** @type {number[]} */ ([]);
  context.mock.method(URL, "createObjectURL", (/** @type {Blob} */ blob) => sizes.push(blob.size));
  const asked = /** @type {string[]} */ ([]);
  const host = { ask: (/** @type {any} */ request) => asked.push(request.name) };
  const traits = /** @type {any} */ ({ state: { queries: {} }, requests: [], served: 0 });
  const model = { get: (/** @type {string} */ name) => traits[name], on() {} };
  const view = /** @type {any} */ (exports(document.createElement("div"), host, model));

  const row = (/** @type {string} */ name) => ({ "": { text: "Download", ask: { name } } });
  const table = { caption: "", words: [], rows: [row("run.py"), row("model.onnx")] };
  const data = { folder: "out", targets: table, files: table, file: null };
  view.show({ ...data, stamp: 1 });
  const list = view.found.parts;
  const inside = (/** @type {any} */ part) => [part, ...part.parts.flatMap(inside)];
  for (const part of inside(view.found)) part.listeners.click?.();
  assert.deepEqual(asked, ["run.py", "model.onnx"]);
  for (const [stamp, name] of [...asked, "another page's"].entries())
    view.show({ ...data, stamp, file: { name, data: new DataView(new ArrayBuffer(stamp)) } });
  assert.deepEqual(sizes, [0, 1]);
  assert.equal(view.found.parts, list);
});
