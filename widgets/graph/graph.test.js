import assert from "node:assert/strict";
import test from "node:test";
import "../shared/fake_page.js";
import { graph } from "./index.js";
import { nearest, nextAlong, zoomed } from "./moves.js";

/** A view of nodes in a workbench, and what it asks for. */
function opened(nodes) {
  const asked = [];
  const host = { ask: (request) => asked.push(request), select() {}, selected: () => "" };
  const traits = { state: {}, requests: [], served: 0 };
  const view = graph(document.createElement("div"), host, { get: (name) => traits[name], on() {} });
  view.data = nodes;
  return { view, asked };
}
const pressed = (key) => ({ key, preventDefault() {}, stopPropagation() {} });

// 0 → 1, 0 → 2, 1 → 3, 2 → 3; 1 is left of 2
const BOXES = {
  x: [50, 0, 100, 50],
  x2: [80, 30, 130, 80],
  y: [0, 40, 40, 80],
  y2: [20, 60, 60, 100],
};
const [SOURCES, TARGETS] = [
  [0, 0, 1, 2],
  [1, 2, 3, 3],
];

test("arrows go along edges, and across a rank", () => {
  const next = (key, at) => nextAlong(key, at, BOXES, SOURCES, TARGETS);
  assert.equal(next("ArrowDown", 0), 1);
  assert.equal(next("ArrowRight", 1), 2);
  assert.equal(next("ArrowLeft", 2), 1);
  assert.equal(next("ArrowDown", 2), 3);
  assert.equal(next("ArrowUp", 2), 0);
  assert.equal(next("ArrowUp", 0), -1);
  assert.equal(next("ArrowLeft", 1), -1);
});

test("a spot is in a box or in none", () => {
  assert.equal(nearest(BOXES, 110, 50), 2);
  assert.equal(nearest(BOXES, 90, 50), -1);
});

test("zooming keeps the spot under the pointer, within limits", () => {
  const view = zoomed({ x: 10, y: 20, zoom: 1 }, 2, 100, 50, 4);
  assert.equal(view.zoom, 2);
  assert.equal((100 - view.x) / view.zoom, 90);
  assert.equal((50 - view.y) / view.zoom, 30);
  assert.equal(zoomed(view, 10, 0, 0, 4).zoom, 4);
});

test("Backspace folds the block around, which then holds the place, and no more", () => {
  const nodes = { key: ["fc", "b.0#12"], layer: ["fc", "b.0"], block: ["", "b.0"] };
  const { view, asked } = opened(nodes);
  for (view.at of [1, 0, -1]) view.key(pressed("Backspace"));
  assert.deepEqual(asked, [{ do: "graph_fold", block: "b.0", isOpen: false }]);
  view.data.key = ["fc", "b.0"];
  const places = ["b.0#12", "b.0.conv", "fc", "b", "b.01"].map((key) => view.indexOf(key));
  assert.deepEqual(places, [1, 1, 0, 1, -1]);
});

test("arrows look through the formats, and Enter or leaving the field applies", () => {
  const { view, asked } = opened({ key: ["fc"], layer: ["fc"] });
  view.at = 0;
  const { keydown, pointerdown, change, blur } = view.format.listeners;
  const choose = (value) => {
    view.format.value = value;
    change();
  };
  const ends = [() => keydown(pressed("Enter")), blur, () => keydown(pressed("Escape"))];
  for (const end of ends) {
    keydown(pressed("ArrowDown"));
    for (const value of ["bf16", "int8"]) choose(value);
    end();
    blur();
  }
  assert.deepEqual(
    asked.map((request) => request.name),
    ["int8", "int8"],
  );
  for (const open of [pointerdown, () => keydown({ ...pressed("ArrowDown"), altKey: true })]) {
    open();
    choose("fp16");
  }
  const names = asked.slice(2).map((request) => request.name);
  assert.deepEqual([...names, view.format.value], ["fp16", "fp16", "?"]);
});

test("only a press of the main button that ends on a node chooses it", () => {
  const { view } = opened({ key: ["a", "b"], layer: ["a", "b"] });
  const mark = { tips: {}, x: [0, 50], x2: [20, 70], y: [0, 0], y2: [20, 20] };
  view.data.rows = [[{ marks: [mark] }]];
  const { pointerdown, pointerup, pointercancel } = view.svg.listeners;
  const event = { clientX: 60, clientY: 10, button: 0 };
  for (const other of [{ button: 2 }, { button: 1 }, { ctrlKey: true }]) {
    pointerdown({ ...event, ...other });
    pointerup({ ...event, ...other });
  }
  pointerdown(event);
  pointercancel(event);
  pointerup(event);
  assert.deepEqual([view.at, view.drag], [-1, null]);
  pointerdown(event);
  pointerup(event);
  assert.equal(view.at, 1);
});
