import assert from "node:assert/strict";
import { test } from "node:test";
import {
  drawnMoments,
  momentWords,
  peakMoment,
  segmentRows,
  stacksAt,
  unpackedSnapshot,
} from "./layout.js";

const floats = (/** @type {number[]} */ ...values) => new DataView(new Float64Array(values).buffer);
const integers = (/** @type {number[]} */ ...values) => new DataView(new Int32Array(values).buffer);

function sent(more = {}) {
  return {
    title: "run.pickle",
    sentence: "",
    unit: "ms",
    categories: ["weights", "activations"],
    time: floats(0, 1, 2),
    held_bytes: [floats(4e9, 4e9, 4e9), floats(0, 8e9, 2e9)],
    reserved_bytes: floats(20e9, 20e9, 20e9),
    peak_time: 1,
    peak_bytes: 12e9,
    refused_time: null,
    refused_bytes: null,
    maps: [
      {
        moment: "at the peak",
        sentence: "a map",
        segment_bytes: floats(4e9, 16e9),
        segment_allocated: floats(4e9, 8e9),
        segment_stream: integers(0, 7),
        segment_kind: ["small", "expandable"],
        sites: ["net.py:3 forward", "train.py:9 main"],
        categories: ["weights", "activations"],
        block_segment: integers(0, 1),
        block_offset: floats(0, 4e9),
        block_bytes: floats(4e9, 8e9),
        block_site: integers(1, 0),
        block_category: integers(0, 1),
      },
    ],
    layers: [],
    sites: [{ "call site": "net.py:3 forward", held: "8 GB" }],
    out_of_memory: "",
    remedies: [],
    replay: "",
    settings: [],
    ...more,
  };
}
const snapshot = (more = {}) => /** @type {any} */ (unpackedSnapshot(sent(more)));

test("a snapshot is unpacked to the byte, with the sums of its categories", () => {
  assert.deepEqual(snapshot().whole, [4e9, 12e9, 6e9]);
  assert.deepEqual(stacksAt(snapshot(), [1, 2]), [
    [4e9, 8e9],
    [4e9, 2e9],
  ]);
  assert.equal(unpackedSnapshot({}), null);
});

test("a moment names what is reserved and the categories, the largest first", () => {
  assert.deepEqual(momentWords(snapshot(), 1), [
    "12 GB allocated at 1 ms",
    "20 GB reserved",
    [
      ["8 GB", "activations"],
      ["4 GB", "weights"],
    ],
  ]);
  assert.deepEqual(momentWords(snapshot(), 0)[2], [["4 GB", "weights"]]);
  assert.equal(peakMoment(snapshot()), 1);
  assert.equal(momentWords(snapshot({ reserved_bytes: floats() }), 1)[1], "", "on a CPU");
});

test("of many moments one a pixel is drawn, and the peak is one of them", () => {
  const count = 3000;
  const held = Array.from({ length: count }, (_, at) => (at === 1234 ? 9 : 1));
  const many = snapshot({
    time: floats(...held.map((_, at) => at)),
    held_bytes: [floats(...held), floats(...held.map(() => 0))],
    reserved_bytes: floats(...held),
  });
  const drawn = drawnMoments(many, 500);
  assert.ok(drawn.length <= 501 && drawn.includes(1234));
  assert.deepEqual(
    drawn,
    [...drawn].sort((one, other) => one - other),
  );
});

test("segments are rows, the largest first, and blocks lie inside theirs", () => {
  const [map] = snapshot().maps;
  const { rows, boxes, height } = segmentRows(map, 400);
  assert.deepEqual(
    rows.map((row) => [row.segment, row.width]),
    [
      [1, 400],
      [0, 100],
    ],
  );
  assert.equal(rows[0].label, "expandable segment of stream 7: 16 GB, 8 GB free");
  assert.deepEqual(
    boxes.map(({ block, x, y, width }) => [block.site, x, y, width]),
    [
      ["net.py:3 forward", 100, rows[0].y, 200],
      ["train.py:9 main", 0, rows[1].y, 100],
    ],
  );
  for (const box of boxes) assert.ok(box.y + box.height <= height && box.x + box.width <= 400);
});

test("blocks of segments that are left out are not drawn", () => {
  const count = 60;
  const each = Array.from({ length: count }, (_, index) => index);
  const [sentMap] = sent().maps;
  const [map] = snapshot({
    maps: [
      {
        ...sentMap,
        segment_bytes: floats(...each.map((index) => 100 + index)),
        segment_allocated: floats(...each.map(() => 1)),
        segment_stream: integers(...each.map(() => 0)),
        segment_kind: each.map(() => "small"),
        block_segment: integers(...each),
        block_offset: floats(...each.map(() => 0)),
        block_bytes: floats(...each.map(() => 1)),
        block_site: integers(...each.map(() => 0)),
        block_category: integers(...each.map(() => 0)),
      },
    ],
  }).maps;
  const { rows, boxes } = segmentRows(map, 300);
  assert.equal(rows.length, 40);
  assert.deepEqual([...new Set(boxes.map((box) => box.block.segment))].length, 40);
  assert.ok(
    boxes.every((box) => box.block.segment >= 20),
    "the smallest are left out",
  );
});

test("only tables with rows are shown, under what they are about", () => {
  assert.deepEqual(
    snapshot().tables.map((/** @type {any} */ table) => table.caption),
    ["call sites that hold most at the peak"],
  );
  const ended = snapshot({ out_of_memory: "It ran out.", remedies: [{ what: "trim" }] });
  assert.equal(ended.tables[1].caption, "It ran out.");
  const byLayer = snapshot({ layers: [{ layer: "conv1", held: "8 GB" }] });
  assert.deepEqual(byLayer.tables[0], {
    caption: "layers that hold most at the peak",
    rows: [{ layer: "conv1", held: "8 GB" }],
  });
});
