/** The switches of an accelerated loop as rows with bars around 1 ×. No DOM. */

/**
 * @typedef {{ name: string, state: string, ratio: number | null, interval: [number, number] | null,
 * cells: Record<string, string> }} Switch
 * @typedef {{ title: string, captions: string[], is_enabled: boolean, steps: number, rows: Switch[] }}
 * Acceleration
 */

export const BAR_WIDTH = 150;
export const BAR_HEIGHT = 16;
const NARROWEST = 1.25; // the axis reaches at least this ratio and its inverse

/** A state's mark, around the point 0, 0: its shape tells it as well. @type {Record<string, string>} */
export const MARKS = {
  on: "M -4 0 A 4 4 0 1 1 4 0 A 4 4 0 1 1 -4 0 Z",
  judging: "M 0 -5 L 5 0 L 0 5 L -5 0 Z",
  waiting: "M -4 0 A 4 4 0 1 1 4 0 A 4 4 0 1 1 -4 0 Z",
  "taken back": "M -4 -4 L 4 4 M -4 4 L 4 -4",
  "not offered": "M -4 0 L 4 0",
};

/** The largest ratio on the axis, whose other end is its inverse. @param {Switch[]} rows */
export function furthest(rows) {
  const values = rows.flatMap(({ ratio, interval }) => [ratio ?? 1, ...(interval ?? [])]);
  return Math.max(
    NARROWEST,
    ...values.map((value) => (value > 0 ? Math.max(value, 1 / value) : 1)),
  );
}

/** Where a ratio stands, in pixels; equal factors are equally far. @param {number} ratio @param {number} most */
export function placeOf(ratio, most) {
  const share = Math.log(Math.max(ratio, 1 / most)) / Math.log(most);
  return (BAR_WIDTH / 2) * (1 + Math.min(share, 1));
}

/** The state in a sentence, for who listens. @param {Acceleration} known */
export function spokenLine({ is_enabled, steps, rows }) {
  const named = (/** @type {string} */ state) =>
    rows.filter((row) => row.state === state).map(({ name }) => name);
  const [on, judging] = [named("on"), named("judging")];
  const inForce = on.join(", ") || "nothing";
  if (!is_enabled) return `Acceleration ended after step ${steps} with ${inForce} on`;
  return `Step ${steps}: on ${inForce}${judging.length ? `; judging ${judging.join(", ")}` : ""}`;
}
