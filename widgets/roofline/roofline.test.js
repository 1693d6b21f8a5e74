import assert from "node:assert/strict";
import { test } from "node:test";
import { plottedPoints, roofGflops, rooflineDots, rooflineFrame, roofsOf } from "./layout.js";
import { dotLabels, memoryName, roofNames } from "./names.js";
import { overlap } from "../shared/label_space.js";
import { markPath, nearestDot } from "../shared/points.js";

const CEILING = {
  threads: 2,
  fp32_gflops: 200,
  bf16_gflops: 400,
  fp16_gflops: null,
  int8_gops: 900,
  bandwidth_gbs: 50,
};

function point(layer, ms, intensity = 10, gflops = 100, bound = "compute") {
  return { layer, kind: "Conv2d", ms, intensity, gflops, bound };
}

test("points are ordered by time; those too small to be seen are left out", () => {
  const points = [
    point("small", 0.0001),
    point("large", 10),
    point("middle", 2),
    point("silent", 3, 0, 0),
  ];
  assert.deepEqual(
    plottedPoints(points).map((one) => one.layer),
    ["large", "middle"],
  );
  assert.equal(
    plottedPoints(Array.from({ length: 1000 }, (_, index) => point(String(index), 1))).length,
    300,
  );
  assert.deepEqual(plottedPoints([]), []);
});

test("the roof rises with the intensity up to the ridge", () => {
  assert.equal(roofGflops(CEILING, 1), 50);
  assert.equal(roofGflops(CEILING, 4), 200);
  assert.equal(roofGflops(CEILING, 100), 200);
});

test("roofs that were not measured are not drawn; the highest comes first", () => {
  assert.deepEqual(
    roofsOf(CEILING).map((roof) => roof.name),
    ["int8", "bf16", "fp32"],
  );
});

test("every dot and every roof lies inside the drawing, at each width", () => {
  const points = [
    point("a", 5, 0.01, 0.02, "overhead"),
    point("b", 3, 500, 190),
    point("c", 1, 2, 130, "memory"),
  ];
  for (const width of [200, 300, 360, 700, 1240, 1600]) {
    const frame = rooflineFrame(width, points, CEILING);
    for (const dot of rooflineDots(points, frame)) {
      assert.ok(
        dot.x > frame.left && dot.x < frame.right && dot.y > frame.top && dot.y < frame.bottom,
      );
    }
    for (const roof of roofsOf(CEILING))
      assert.ok(frame.y(roof.rate) > frame.top && frame.y(roof.rate) < frame.bottom);
  }
});

test("a roofline without points still has its roofs", () => {
  const frame = rooflineFrame(600, [], CEILING);
  assert.ok(frame.x(4) > frame.left && frame.x(4) < frame.right);
  assert.ok(frame.ticksX.length > 1 && frame.ticksY.length > 1);
});

test("a dot's surface is its share of the time", () => {
  const points = [
    point("a", 4),
    point("b", 1),
    ...Array.from({ length: 30 }, (_, index) => point(`c${index}`, 1)),
  ];
  const [large, small] = rooflineDots(points, rooflineFrame(1000, points, CEILING));
  assert.ok(Math.abs(large.radius / small.radius - 2) < 1e-9);
});

test("a pointer means the nearest rim within reach", () => {
  const dots = [
    { x: 0, y: 0, radius: 10 },
    { x: 30, y: 0, radius: 3 },
  ].map((place) => ({ ...point("a", 1), ...place }));
  assert.equal(nearestDot(dots, 5, 0), dots[0]);
  assert.equal(nearestDot(dots, 25, 0), dots[1]);
  assert.equal(nearestDot(dots, 100, 100), null);
  assert.equal(nearestDot([], 0, 0), null);
});

test("labels cover neither each other nor the names of the roofs", () => {
  const points = Array.from({ length: 12 }, (_, index) =>
    point(`stages.0.layers.${index}.convolution`, 12 - index, 20 + index * 4, 150 + index * 3),
  );
  for (const width of [460, 700, 1240]) {
    const frame = rooflineFrame(width, points, CEILING);
    const boxes = dotLabels(rooflineDots(points, frame), frame, CEILING).map((label) => label.box);
    assert.ok(boxes.length > 0);
    for (const box of boxes)
      assert.ok(boxes.every((other) => other === box || !overlap(box, other)));
    const fp32 = roofNames(frame, CEILING).find((name) => name.isMain);
    assert.ok(
      boxes.every(
        (box) => !overlap(box, { x: frame.right - 60, y: fp32.y - 12, width: 60, height: 10 }),
      ),
    );
  }
});

test("a small drawing has no labels of dots", () => {
  const points = [point("a", 1)];
  const frame = rooflineFrame(300, points, CEILING);
  assert.deepEqual(dotLabels(rooflineDots(points, frame), frame, CEILING), []);
});

test("roofs that nearly coincide share a name", () => {
  const near = { ...CEILING, fp16_gflops: 395 };
  const names = roofNames(rooflineFrame(700, [], near), near);
  assert.ok(names.some((name) => name.text === "bf16 400 · fp16 395 GFLOP/s"));
});

test("the memory roof's name keeps off the dots where it can", () => {
  const frame = rooflineFrame(1000, [point("a", 1, 0.01, 0.4)], CEILING);
  const free = memoryName(frame, CEILING, []);
  const covered = { ...point("a", 1), x: free.x + 5, y: free.y - 8, radius: 6 };
  assert.notEqual(memoryName(frame, CEILING, [covered]).x, free.x);
});

test("each bound has a shape of its own", () => {
  const shapes = ["compute", "memory", "overhead", null].map((bound) => markPath(bound, 10, 10, 5));
  assert.equal(new Set(shapes).size, 4);
});
