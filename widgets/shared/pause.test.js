import assert from "node:assert/strict";
import { test } from "node:test";

import { afterRest } from "./pause.js";

test("keys pressed one after another are one act, at rest", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let acts = 0;
  const rest = afterRest(() => (acts += 1), 100);
  for (let key = 0; key < 5; key += 1) {
    rest.wait();
    context.mock.timers.tick(90);
  }
  assert.equal(acts, 0);
  context.mock.timers.tick(10);
  assert.equal(acts, 1);
  rest.wait();
  rest.drop();
  context.mock.timers.tick(500);
  assert.equal(acts, 1, "what is dropped is not done");
});
