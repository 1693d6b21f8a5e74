/**
 * The state that the workbench shows: the one that Python sent plus the expected effect of pending
 * requests.
 */

/**
 * @typedef {{ name: string, before?: number | null, now?: number | null, unit?: string,
 *   is_less_better?: boolean }} Figure
 * @typedef {{ tone: string, sentence: string }} Story
 * @typedef {{ state: string, label: string, reasons: [string, string][], sentence?: string,
 *   advice: string, busiest: [string, number][] }} Quality
 * @typedef {{ label: string, kind?: string, why?: string, note?: string, error?: string | null,
 * isPending?: boolean, isLeaving?: boolean }} Chip
 * @typedef {{ label: string, step: any, saves_ms?: number | null, effect?: string,
 * basis?: string, why?: string,
 * is_taken?: boolean, isPending?: boolean }} Offer
 * @typedef {{ id: number, do: string, [key: string]: any }} Request
 * @typedef {{
 *   workload: string, machine: string, inputs: string, parameters: number | null, flops: number |
 *   null, figures: Figure[],
 *   is_partial: boolean, recipe: Chip[], status: string, doing: string, done: number, total:
 *   number, error: string | null, refused: string | null, allowable: number | null,
 *   can_undo: boolean, can_redo: boolean, choices: string[], precisions: Record<string, string>,
 *   cannot: Record<string, string>,
 *   changes: Record<string, string>, channels: Record<string, [number, number]>, pruned:
 *   Record<string, number>, cut?: any, allocated?: number | null, offers: Offer[], code: string |
 *   null, saved: string | null, story: Story | null, quality: Quality | null, others: number[],
 *   threads: number | null, waiting: boolean, absent: Record<string, string>,
 * }} BenchState
 * @typedef {BenchState & { asked: Set<string>, askedPrecisions: Record<string, string> }} Expected
 */

/** @type {BenchState} */
const NOTHING_YET = {
  workload: "",
  machine: "",
  inputs: "",
  parameters: null,
  flops: null,
  figures: [],
  is_partial: false,
  recipe: [],
  status: "idle",
  doing: "",
  done: 0,
  total: 0,
  error: null,
  refused: null,
  allowable: null,
  can_undo: false,
  can_redo: false,
  choices: [],
  precisions: {},
  cannot: {},
  changes: {},
  channels: {},
  pruned: {},
  offers: [],
  code: null,
  saved: null,
  story: null,
  quality: null,
  others: [],
  threads: null,
  waiting: false,
  absent: {},
};

/**
 * @param {Partial<BenchState> | null | undefined} state @param {Request[]} requests those that are
 * not yet served @returns {Expected}
 */
export function expected(state, requests) {
  const known = { ...NOTHING_YET, ...state };
  const start = {
    ...known,
    asked: new Set(requests.map((request) => request.do)),
    askedPrecisions: {},
  };
  return requests.reduce(foreseen, start);
}

/** Whether two steps are the same. @param {any} first @param {any} second */
export function isSameStep(first, second) {
  return JSON.stringify(first) === JSON.stringify(second);
}

/** The default name of a step: {"fold": {}} → "fold". @param {any} step */
export function stepName(step) {
  return typeof step === "string"
    ? step
    : (Object.keys(step ?? {})[0] ?? "step").replaceAll("_", " ");
}

/** @param {Expected} before @param {Request} request @returns {Expected} */
function foreseen(before, request) {
  switch (request.do) {
    case "choose":
      return withStep(before, request.step);
    case "precision":
      return {
        ...before,
        askedPrecisions: { ...before.askedPrecisions, [request.layer]: request.name },
      };
    case "undo":
      return withoutChip(
        before,
        before.recipe.findLastIndex((chip) => !chip.isLeaving),
      );
    case "drop":
      return withoutChip(before, request.index);
    case "dismiss":
      return { ...before, error: null };
    default:
      return before;
  }
}

/** @param {Expected} before @param {any} step @returns {Expected} */
function withStep(before, step) {
  const chosen = before.offers.find((offer) => isSameStep(offer.step, step));
  const chip = { label: chosen?.label ?? stepName(step), isPending: true };
  const offers = before.offers.map((offer) =>
    offer === chosen ? { ...offer, is_taken: true, isPending: true } : offer,
  );
  return { ...before, offers, recipe: [...before.recipe, chip] };
}

/** @param {Expected} before @param {number} index @returns {Expected} */
function withoutChip(before, index) {
  return {
    ...before,
    recipe: before.recipe.map((chip, place) =>
      place === index ? { ...chip, isLeaving: true } : chip,
    ),
  };
}
