/**
 * The view of an export: targets to choose from with what stands in their way, what each wrote or
 * why it refused, where a refused model's outputs begin to differ, and the files to take along.
 */

import { fresh, h, set } from "../shared/dom.js";
import { unserved } from "../shared/host.js";
import { plainTable } from "../shared/plain_table.js";
import { Question } from "../shared/question.js";

/** @typedef {{ name: string, title: string, obstacles: Record<string, string> }} Target */
/** @typedef {import("../shared/plain_table.js").Table} Table */
/**
 * @typedef {{ title: string, sentence: string, folder: string, targets: Table,
 *   difference: string | null, probes: Table | null, files: Table,
 *   file: { name: string, data: DataView } | null }} ExportData
 */

const ALWAYS = "onnx"; // the scripts of a folder run it
const FOLLOWED = ["state", "requests", "served"];
const QUESTION = {
  query: "export",
  request: "export",
  question: "Where is this model to run?",
  verb: "Export",
  use: "Converts it with the chosen recipe, compares the outputs with the live model's, and writes a folder: files, a script that needs ONNX Runtime alone, a Dockerfile, manifests, a model card.",
};

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function exports(root, host, model) {
  return new ExportView(root, host, model);
}

class ExportView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    /** @type {Set<string>} */
    this.chosen = new Set([ALWAYS]);
    /** The files that Download was pressed for. @type {Set<string>} */
    this.wanted = new Set();
    this.drawn = "";
    this.shown = ""; // what the found parts were drawn of
    this.isKnown = false;
    this.precision = /** @type {HTMLSelectElement} */ (h("select", {}));
    this.opset = /** @type {HTMLInputElement} */ (
      h("input", { type: "number", min: 1, max: 999, placeholder: "latest" })
    );
    this.dynamic = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
    const hint = "of ONNX; a runtime that is older needs a lower one";
    const fields = [
      h("label", {}, "precision ", this.precision),
      h("label", { title: hint }, "opset ", this.opset),
      h("label", {}, this.dynamic, " any batch size"),
    ];
    const options = () => ({
      targets: this.offered.filter((one) => this.isAsked(one)).map(({ name }) => name),
      precision: this.precision.value,
      opset: this.opset.value ? this.opset.valueAsNumber : null,
      dynamic: this.dynamic.checked,
    });
    this.question = new Question(model, host.ask, QUESTION, { fields, options });
    this.targets = h("fieldset", { class: "pf-export-targets" });
    this.question.words.after(this.targets);
    this.sentence = h("p", { class: "pf-export-sentence", role: "status" });
    this.found = h("div", {});
    const view = { class: "pf-view pf-export", "aria-label": "export" };
    root.append(h("section", view, this.question.element, this.sentence, this.found));
    this.onChange = () => this.follow();
    for (const name of FOLLOWED) model.on(`change:${name}`, this.onChange);
    this.precision.addEventListener("change", () => this.follow());
  }

  /** @returns {Target[]} */
  get offered() {
    return this.model.get("state")?.export_targets ?? [];
  }

  /** @param {Target} target */
  obstacleOf({ obstacles }) {
    return obstacles[this.precision.value] ?? "";
  }

  /** @param {Target} target */
  isAsked(target) {
    return this.chosen.has(target.name) && !this.obstacleOf(target);
  }

  /** @param {any} given */
  show(given) {
    const data = /** @type {ExportData | null} */ (given?.targets ? given : null);
    this.isKnown = Boolean(data);
    if (this.sentence.textContent !== (data?.sentence ?? "")) fresh(this.sentence, data?.sentence);
    // a file that is sent changes nothing here
    const shown = JSON.stringify({ ...data, file: null, stamp: null });
    if (shown !== this.shown) fresh(this.found, ...(data ? this.parts(data) : []));
    this.shown = shown;
    if (data?.file && this.wanted.delete(data.file.name)) {
      save(data.file.name, data.file.data);
      this.host.ask({ do: "export_file", name: "" }); // else it is sent with every later change
    }
    this.follow();
  }

  destroy() {
    for (const name of FOLLOWED) this.model.off(`change:${name}`, this.onChange);
  }

  /** @param {ExportData} data */
  parts({ title, folder, targets, difference, probes, files }) {
    const isInBench = Boolean(this.model.get("state")?.queries);
    const download = (/** @type {any} */ request) => {
      this.wanted.add(request.name);
      this.host.ask(request);
    };
    const address = folderAddress(this.model.widget_manager?.context?.path, folder);
    const name = address ? h("a", { href: address, target: "_blank" }, folder) : h("b", {}, folder);
    const how = "; python run.py there needs numpy and ONNX Runtime alone";
    return [
      h("h2", {}, title),
      plainTable(targets),
      difference && h("p", { class: "pf-export-difference" }, difference),
      probes?.rows.length && folded("layers compared", plainTable(probes)),
      folder && h("p", { class: "pf-note" }, "in ", name, how),
      folder && folded("files and their hashes", plainTable(files, isInBench ? download : null)),
    ].filter(Boolean);
  }

  /** The form: precisions, and the targets with what bars them. */
  follow() {
    this.question.show(this.isKnown);
    const { offered, precision } = this;
    const isAsked = unserved(this.model).some((open) => open.do === QUESTION.request);
    const key = JSON.stringify([offered, precision.value, isAsked]);
    this.targets.hidden = !offered.length;
    if (key === this.drawn) return;
    this.drawn = key;
    const names = Object.keys(offered[0]?.obstacles ?? {});
    if (precision.options.length !== names.length)
      fresh(precision, ...names.map((name) => h("option", { value: name }, name || "its own")));
    fresh(this.targets, h("legend", {}, "export to"), ...offered.map((one) => this.target(one)));
  }

  /** @param {Target} target */
  target(target) {
    const { name, title } = target;
    const obstacle = this.obstacleOf(target);
    const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
    set(box, {
      disabled: Boolean(obstacle) || name === ALWAYS,
      onchange: () => (box.checked ? this.chosen.add(name) : this.chosen.delete(name)),
    });
    box.checked = this.isAsked(target);
    const why = name === ALWAYS && !obstacle ? "always: the script runs it" : obstacle;
    return h(
      "label",
      { class: obstacle && "pf-export-barred" },
      box,
      h("span", {}, h("b", {}, title), why && h("small", {}, why)),
    );
  }
}

/** @param {string} summary @param {HTMLElement} table */
function folded(summary, table) {
  return h("details", {}, h("summary", {}, summary), table);
}

/** Give a file's content to the browser's downloads. @param {string} name @param {DataView} data */
function save(name, data) {
  const content = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const address = URL.createObjectURL(new Blob([/** @type {any} */ (content)]));
  h("a", { href: address, download: name.split("/").at(-1) }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/**
 * The address of a folder beside the notebook in the page's JupyterLab; '' elsewhere.
 * @param {string | undefined} notebook its path on the server @param {string} folder
 */
function folderAddress(notebook, folder) {
  const config = document.getElementById("jupyter-config-data")?.textContent;
  const base = config ? JSON.parse(config).baseUrl : "";
  if (!notebook || !base || /^([/\\]|\w:)/.test(folder)) return "";
  const parts = [...notebook.split("/").slice(0, -1), ...folder.split("/")];
  return `${base}lab/tree/${parts.map(encodeURIComponent).join("/")}`;
}
