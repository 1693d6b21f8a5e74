import assert from "node:assert/strict";
import { test } from "node:test";
import { offerText, savingText } from "./chips.js";
import { expected, stepName } from "./expected.js";
import { precisionOf } from "./precision_column.js";
import { watchUnanswered } from "./unanswered.js";
import { doingText, farText } from "./status_line.js";

const state = {
  recipe: [{ label: "fold batch-norm" }, { label: "bf16" }],
  offers: [{ label: "channels last", step: { layout: {} } }],
  choices: ["", "bf16"],
  precisions: { conv: "bf16" },
  cannot: { norm: "it has no weights" },
  error: "no",
};

test("nothing sent yet is nothing to show, and no error", () => {
  const nothing = expected(undefined, []);
  assert.deepEqual(
    [nothing.recipe, nothing.figures, nothing.status, nothing.error],
    [[], [], "idle", null],
  );
});

test("a step that is asked for is a chip at once, and its offer is taken", () => {
  const shown = expected(state, [
    { id: 1, do: "choose", step: { layout: {} } },
    { id: 2, do: "choose", step: { my_step: {} } },
  ]);
  assert.deepEqual(shown.recipe.slice(2), [
    { label: "channels last", isPending: true },
    { label: "my step", isPending: true },
  ]);
  assert.equal(shown.offers[0].is_taken, true);
  assert.equal(state.offers.length, 1);
});

test("undo twice takes two chips, drop the one it names", () => {
  const undone = expected(state, [
    { id: 1, do: "undo" },
    { id: 2, do: "undo" },
    { id: 3, do: "undo" },
  ]);
  assert.deepEqual(
    undone.recipe.map((chip) => chip.isLeaving),
    [true, true],
  );
  const dropped = expected(state, [{ id: 1, do: "drop", index: 0 }]);
  assert.deepEqual(
    dropped.recipe.map((chip) => Boolean(chip.isLeaving)),
    [true, false],
  );
  assert.equal(expected(state, [{ id: 1, do: "dismiss" }]).error, null);
});

test("a precision that is asked for is shown before it is true", () => {
  const shown = expected(state, [{ id: 1, do: "precision", layer: "conv", name: "" }]);
  assert.deepEqual(precisionOf(shown, "conv", true), {
    value: "",
    reason: "",
    isAsked: true,
    choices: ["", "bf16"],
  });
  assert.equal(precisionOf(expected(state, []), "conv", true)?.value, "bf16");
});

test("a layer that cannot says why; one made of others has no choice, unless it was made", () => {
  const shown = expected(state, []);
  assert.equal(precisionOf(shown, "norm", true)?.reason, "it has no weights");
  assert.equal(precisionOf(shown, "block", false), null);
  assert.equal(precisionOf(expected({}, []), "conv", true), null);
  assert.deepEqual(
    precisionOf(expected({ choices: [""], precisions: { a: "int8" } }, []), "a", true)?.choices,
    ["", "int8"],
  );
});

test("steps without a name get one", () => {
  assert.deepEqual(
    [stepName("fold"), stepName({ a_b: {} }), stepName({}), stepName(null)],
    ["fold", "a b", "step", "step"],
  );
});

test("what is being done is shown in words", () => {
  assert.equal(doingText({ status: "idle", doing: "fold" }), "");
  assert.equal(doingText({ status: "applying", doing: "fold" }), "applying: fold");
  assert.equal(doingText({ status: "profiling", doing: "" }), "profiling");
  assert.deepEqual(
    [farText({ done: 31, total: 30 }), farText({ done: 0, total: 0 })],
    ["30 of 30", ""],
  );
});

test("an offer says what it saves and how that is known", () => {
  assert.equal(
    savingText({ label: "", step: {}, saves_ms: 0.9, basis: "estimated" }),
    "−0.9 ms, estimated",
  );
  assert.equal(savingText({ label: "", step: {}, saves_ms: -0.25 }), "+0.25 ms");
  assert.equal(savingText({ label: "", step: {}, saves_ms: null }), "");
  assert.equal(
    savingText({ label: "", step: {}, effect: "1.9 × faster", basis: "measured" }),
    "1.9 × faster, measured",
  );
});

test("an offer that is taken saves nothing more: it is in use", () => {
  const offer = { label: "", step: {}, saves_ms: -3.49, basis: "estimated" };
  assert.equal(offerText({ ...offer, is_taken: true }), "in use");
  assert.equal(offerText({ ...offer, is_taken: true, isPending: true }), "+3.49 ms, estimated");
  assert.equal(offerText(offer), "+3.49 ms, estimated");
});

test("no answer is reported once, later while something runs, until there is one", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const traits = /** @type {Record<string, any>} */ ({
    requests: [{ id: 1, do: "undo" }],
    served: 0,
    state: { status: "idle" },
  });
  const heard = /** @type {boolean[]} */ ([]);
  const model = { get: (/** @type {string} */ name) => traits[name] };
  const watch = watchUnanswered(model, (isUnanswered) => heard.push(isUnanswered));
  const wait = (/** @type {number} */ seconds) => {
    watch.look();
    context.mock.timers.tick(1000 * seconds);
    watch.look();
  };
  wait(4);
  assert.deepEqual(heard, []);
  wait(1);
  assert.deepEqual(heard, [true]);
  traits.served = 1;
  wait(60);
  assert.deepEqual(heard, [true, false]);
  traits.state = { status: "measuring" };
  traits.requests = [{ id: 2, do: "undo" }];
  wait(29);
  assert.deepEqual(heard, [true, false]);
  wait(1);
  assert.deepEqual(heard, [true, false, true]);
  watch.destroy();
});
