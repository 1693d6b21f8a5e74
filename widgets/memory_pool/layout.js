/** The switches of memory that is kept or used again, and what they say. No DOM. */

/**
 * A step as Python sends it, and as the page shows it: `isAsked` until Python has served the press.
 * @typedef {{ is_on: boolean, obstacle: string, notes: string[] }} MemoryStep
 * @typedef {MemoryStep & { kind: string, isOn: boolean, isAsked: boolean }} ShownStep
 */

/** In the order in which they are shown: what it is called, what it does. @type {[string, string, string][]} */
export const STEPS = [
  [
    "pool",
    "Keep freed memory",
    "A memory pool: what a call has freed stays for the next one, instead of being faulted in again, page by page.",
  ],
  [
    "reuse",
    "Use memory again",
    "Activations and sums write over their input where it is proven that nobody else reads it; the output stays the same to the bit.",
  ],
];

/**
 * A step with the presses that are not served yet.
 * @param {string} kind @param {Record<string, MemoryStep> | undefined} known @param {any[]} open requests
 * @returns {ShownStep}
 */
export function shownStep(kind, known, open) {
  const step = known?.[kind] ?? { is_on: false, obstacle: "", notes: [] };
  const asked = open.filter((one) => one.do === "memory_step" && one.kind === kind).at(-1);
  return { ...step, kind, isOn: asked ? asked.is_on : step.is_on, isAsked: Boolean(asked) };
}

/**
 * The line under a switch: why it cannot be on, or what the step did.
 * @param {ShownStep} step @param {boolean} isBusy the worker applies or measures
 */
export function stepLine({ obstacle, notes, isOn, isAsked }, isBusy) {
  if (obstacle) return `There is none here: ${obstacle}.`;
  if (!isOn) return "";
  if (isAsked || (!notes.length && isBusy)) return "it is applied and measured now";
  return notes.join(" · ");
}
