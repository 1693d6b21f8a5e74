/** The rows of ONNX Runtime's session options as texts. No DOM. */

/**
 * @typedef {{ name: string, threads: number, speedup: number | null,
 *   likely: string | null, failure: string | null, word: string, tone: string,
 *   is_option: boolean, is_used: boolean }} Setting
 */

/** An option with its number of threads; the model in torch. @param {Setting} row */
export function nameOf({ name, threads, is_option }) {
  if (!is_option) return `the model in torch · ${threadsText(threads)}`;
  return name === "one thread" ? name : `${name} · ${threadsText(threads)}`;
}

/** @param {number} threads */
function threadsText(threads) {
  return threads === 1 ? "1 thread" : `${threads} threads`;
}

/** How many times as fast as the model in torch, and the likely range. @param {Setting} row */
export function speedUpText({ speedup, likely, is_option }) {
  if (!is_option || speedup === null) return "–";
  return `${speedup.toFixed(2)}${likely ? ` (${likely})` : ""}`;
}

/** The colour of a verdict; none where it is not told. @param {Setting} row */
export function toneOf({ tone, is_option, failure }) {
  if (!is_option || failure) return "";
  return tone === "good" || tone === "bad" ? `pf-is-${tone}` : "";
}

/** What can be done with a row: "use", or what stands there instead. @param {Setting} row */
export function actionOf({ is_option, is_used, failure }) {
  if (!is_option || failure) return "";
  return is_used ? "in the recipe" : "use";
}
