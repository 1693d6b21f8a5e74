import assert from "node:assert/strict";
import { test } from "node:test";
import { byLayer, unitsText, unpackedCoupling } from "./table.js";

const whole = (/** @type {number[]} */ ...values) => new DataView(Int32Array.from(values).buffer);
const codes = (/** @type {number[]} */ ...values) => new DataView(Uint16Array.from(values).buffer);

// Two groups: `a` and `b` make 8 channels together, which `c` reads; `c` makes the answer.
const coupling = unpackedCoupling({
  title: "net",
  name: ["a", "c"],
  width: whole(8, 5),
  unit: whole(1, 64),
  pinned: { names: ["", "the answer"], codes: codes(0, 1) },
  count: whole(4, 1),
  layer: { names: ["a", "b", "c"], codes: codes(0, 1, 1, 2, 2) },
  parameter: { names: ["weight", "bias"], codes: codes(0, 0, 1, 0, 0) },
  kind: { names: ["rows", "columns"], codes: codes(0, 0, 0, 1, 0) },
});

test("a packed coupling is groups with their members; what is not there yet has none", () => {
  assert.deepEqual(
    [coupling.isKnown, unpackedCoupling({}).isKnown, unpackedCoupling(undefined).groups],
    [true, false, []],
  );
  assert.deepEqual(
    coupling.groups.map((group) => group.members.length),
    [4, 1],
  );
  assert.deepEqual(coupling.groups[0].members[3], {
    layer: "c",
    parameter: "weight",
    kind: "columns",
  });
  assert.deepEqual(
    [...coupling.groupsMadeBy],
    [
      ["a", [0]],
      ["b", [0]],
      ["c", [1]],
    ],
    "what reads the channels does not make them",
  );
  assert.deepEqual(byLayer(coupling.groups[0].members), [
    ["a", ["weight"]],
    ["b", ["weight", "bias"]],
    ["c", ["weight"]],
  ]);
});

test("units are shown as channels, and as parts of several where they are", () => {
  assert.deepEqual(
    [
      unitsText(coupling.groups[0]),
      unitsText(coupling.groups[0], 3),
      unitsText(coupling.groups[1]),
    ],
    ["8 channels", "3 of 8 channels", "5 units of 64 channels"],
  );
});
