import assert from "node:assert/strict";
import { test } from "node:test";
import { askingOf, askingText, measureText } from "./question.js";

const TEXT = { query: "sensitivity", request: "sensitivity" };

/** @param {any} query @param {string[]} [asked] @param {any} [more] */
function modelOf(query, asked = [], more = {}) {
  const traits = {
    state: query && { queries: { sensitivity: query }, done: 7, total: 20, ...more },
    requests: asked.map((entry, index) => {
      const [name, stopped] = entry.split(" ");
      return { do: name, query: stopped, id: index + 3 };
    }),
    served: 2,
  };
  return { get: (/** @type {keyof traits} */ name) => traits[name] };
}

test("the button names the seconds that Python gives the query", () => {
  const asking = askingOf(modelOf({ seconds: 35, is_running: false, is_waiting: false }), TEXT);
  assert.equal(asking?.phase, "idle");
  assert.equal(measureText(asking?.seconds ?? 0, false), "Measure · 35 s");
  assert.equal(measureText(0.5, true), "Again · 0.5 s");
  assert.equal(measureText(10, false, "Export"), "Export · 10 s");
  assert.equal(askingText(/** @type {any} */ (asking)), "");
});

test("a query that is asked for waits at once, and then says how far it is", () => {
  const known = { seconds: 20, is_running: false, is_waiting: false };
  const sent = askingOf(modelOf(known, ["sensitivity"]), TEXT);
  assert.equal(sent?.phase, "waiting");
  const waiting = askingOf(modelOf({ ...known, is_waiting: true }), TEXT);
  assert.match(askingText(/** @type {any} */ (waiting)), /waits until the running measurement/);
  assert.equal(waiting?.done, 0, "the progress of another job is not this one's");
  const running = askingOf(modelOf({ ...known, is_running: true, is_waiting: true }), TEXT);
  assert.equal(askingText(/** @type {any} */ (running)), "7 of 20 s");
  assert.equal(running?.isStopping, false);
  const stopping = askingOf(modelOf({ ...known, is_running: true }, ["stop"]), TEXT);
  assert.equal(stopping?.isStopping, true);
  const isStopping = (/** @type {string} */ name) =>
    askingOf(modelOf({ ...known, is_waiting: true }, [`stop ${name}`]), TEXT)?.isStopping;
  assert.deepEqual(["sensitivity", "memory"].map(isStopping), [true, false]);
});

test("a job past its seconds does not say more than it has, one without a total no number", () => {
  const running = { seconds: 20, is_running: true, is_waiting: false };
  const late = askingOf(modelOf(running, [], { done: 23 }), TEXT);
  assert.equal(askingText(/** @type {any} */ (late)), "20 of 20 s");
  const endless = askingOf(modelOf(running, [], { total: 0 }), TEXT);
  assert.equal(askingText(/** @type {any} */ (endless)), "measuring");
});

test("outside a workbench nothing can be asked", () => {
  assert.equal(askingOf(modelOf(null), TEXT), null);
  assert.equal(askingOf(modelOf({ seconds: 1 }), { ...TEXT, query: "memory" }), null);
});
