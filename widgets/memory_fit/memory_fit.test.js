import assert from "node:assert/strict";
import { test } from "node:test";
import { limitSentence } from "./layout.js";

test("the sentence says what would be enough", () => {
  const peaks = /** @type {import("./layout.js").Peaks} */ ({
    peak_bytes: 100,
    remedies: [
      ["a batch of 4", 70],
      ["bf16", 50],
    ],
  });
  assert.equal(limitSentence(peaks, 100), "It fits as it is, with 0 B to spare.");
  assert.equal(
    limitSentence(peaks, 80),
    "It needs 20 B more. Enough would be a batch of 4, or bf16.",
  );
  assert.equal(limitSentence(peaks, 60), "It needs 40 B more. Enough would be bf16.");
  assert.match(limitSentence(peaks, 10), /none of the changes below is enough/);
  assert.equal(limitSentence(null, 10), "");
});
