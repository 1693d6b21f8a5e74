/** A recipe's step as words and as Python. */

/** @typedef {Record<string, Record<string, any>>} Step */

/** { backend: { name: "onnxruntime" } } → "backend name=onnxruntime". @param {Step} step */
export function stepText(step) {
  const parts = Object.entries(step).map(([name, options]) =>
    [
      name,
      ...Object.entries(options ?? {}).map(
        ([key, value]) => `${key}=${typeof value === "object" ? pythonText(value) : value}`,
      ),
    ].join(" "),
  );
  return parts.join(", ");
}

/** The step as in a recipe: `{"precision": {"default": "bf16"}}`. @param {Step} step */
export function stepCode(step) {
  return pythonText(step);
}

/**
 * The estimated saving of a step.
 * @param {number | null | undefined} savesMs @param {number} share of the whole time
 */
export function worthText(savesMs, share) {
  if (savesMs === null || savesMs === undefined) return "";
  const amount = `${Number(Math.abs(savesMs).toPrecision(3))} ms`;
  return savesMs < 0
    ? `costs about ${amount}`
    : `saves about ${amount}${share > 0 ? ` · ${(100 * share).toFixed(0)}%` : ""}`;
}

/**
 * A sentence without its leading topic, which is shown before it.
 * @param {string} sentence @param {string} topic
 */
export function untopical(sentence, topic) {
  const rest = sentence.toLowerCase().startsWith(`${topic.toLowerCase()}: `)
    ? sentence.slice(topic.length + 2)
    : sentence;
  return rest.charAt(0).toUpperCase() + rest.slice(1);
}

/** A plain value as Python writes it. @param {any} value @returns {string} */
function pythonText(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(pythonText).join(", ")}]`;
  return `{${Object.entries(value)
    .map(([key, item]) => `${JSON.stringify(key)}: ${pythonText(item)}`)
    .join(", ")}}`;
}
