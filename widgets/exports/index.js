/**
 * The view of an export: targets to choose from with what stands in their way, what each wrote or
 * why it refused, where a refused model's outputs begin to differ, and the files to take along.
 */

import { fresh, h, set } from "../shared/dom.js";
import { unserved } from "../shared/host.js";
import { plainTable } from "../shared/plain_table.js";
import { Question } from "../shared/question.js";
import {
  ALWAYS,
  PRECISIONS,
  askedTargets,
  folderAddress,
  obstacleOf,
  opsetOf,
  probeRows,
} from "./layout.js";
import { drawFiles, drawTargets, save } from "./table.js";

/** @typedef {import("./layout.js").ExportData} ExportData */
/** @typedef {import("./layout.js").Target} Target */

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
    /** @type {ExportData | null} */
    this.data = null;
    /** @type {Set<string>} */
    this.chosen = new Set([ALWAYS]);
    this.wanted = "";
    this.drawn = "";
    this.precision = /** @type {HTMLSelectElement} */ (
      h("select", {}, ...PRECISIONS.map((name) => h("option", { value: name }, name || "its own")))
    );
    this.opset = /** @type {HTMLInputElement} */ (
      h("input", { type: "text", inputmode: "numeric", size: 4, placeholder: "latest" })
    );
    this.dynamic = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
    const fields = [
      h("label", {}, "precision ", this.precision),
      h(
        "label",
        { title: "of ONNX; a runtime that is older needs a lower one" },
        "opset ",
        this.opset,
      ),
      h("label", {}, this.dynamic, " any batch size"),
    ];
    this.question = new Question(model, host.ask, QUESTION, {
      fields,
      options: () => this.options(),
    });
    this.targets = h("fieldset", { class: "pf-export-targets" });
    this.sentence = h("p", { class: "pf-export-sentence", role: "status" });
    this.table = h("table", {
      class: "pf-table pf-export-rows",
      "aria-label": "what was exported",
    });
    this.difference = h("p", { class: "pf-export-difference" });
    this.probes = h("div", {});
    this.folder = h("p", { class: "pf-note" });
    this.files = h("table", { class: "pf-table pf-export-files", "aria-label": "files" });
    this.title = h("h2", {});
    const files = h("details", {}, h("summary", {}, "files and their hashes"), this.files);
    const found = h("details", {}, h("summary", {}, "layers compared"), this.probes);
    this.more = { files, found };
    this.known = [this.title, this.sentence, this.table];
    this.question.words.after(this.targets);
    const all = [
      ...[this.question.element, ...this.known],
      ...[this.difference, found, this.folder, files],
    ];
    root.append(h("section", { class: "pf-view pf-export", "aria-label": "export" }, ...all));
    this.onChange = () => this.follow();
    for (const name of FOLLOWED) model.on(`change:${name}`, this.onChange);
    this.precision.addEventListener("change", () => this.follow());
    this.opset.addEventListener("input", () => this.opset.setCustomValidity(""));
  }

  /** @returns {Target[]} */
  get offered() {
    return this.model.get("state")?.export_targets ?? [];
  }

  /** @param {any} data */
  show(data) {
    this.data = data && "rows" in data ? data : null;
    const { data: shown } = this;
    for (const part of this.known) part.hidden = !shown;
    fresh(this.title, shown?.title ?? "");
    if (this.sentence.textContent !== (shown?.sentence ?? ""))
      fresh(this.sentence, shown?.sentence);
    drawTargets(this.table, shown?.rows ?? []);
    this.drawDifference();
    this.drawFolder();
    const file = shown?.file;
    if (file && file.name === this.wanted) {
      this.wanted = "";
      save(file.name, file.data);
    }
    this.follow();
  }

  destroy() {
    for (const name of FOLLOWED) this.model.off(`change:${name}`, this.onChange);
  }

  /** The options of the request; null if the opset is no number. */
  options() {
    const opset = opsetOf(this.opset.value);
    this.opset.setCustomValidity(opset === undefined ? "Type a whole number, such as 17." : "");
    if (!this.opset.reportValidity() || opset === undefined) return null;
    const precision = this.precision.value;
    const targets = askedTargets(this.offered, this.chosen, precision);
    return { targets, precision, opset, dynamic: this.dynamic.checked };
  }

  follow() {
    const isKnown = Boolean(this.data);
    this.question.show(isKnown);
    this.targets.hidden = !this.offered.length;
    const isAsked = unserved(this.model).some((open) => open.do === QUESTION.request);
    const key = JSON.stringify([this.offered, this.precision.value, isAsked]);
    if (key === this.drawn) return;
    this.drawn = key;
    const rows = this.offered.map((target) => this.target(target));
    fresh(this.targets, h("legend", {}, "export to"), ...rows);
  }

  /** @param {Target} target */
  target(target) {
    const { name, title } = target;
    const obstacle = obstacleOf(target, this.precision.value);
    const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
    set(box, { disabled: Boolean(obstacle) || name === ALWAYS });
    box.checked = !obstacle && this.chosen.has(name);
    box.addEventListener("change", () => {
      if (box.checked) this.chosen.add(name);
      else this.chosen.delete(name);
    });
    const why = name === ALWAYS && !obstacle ? "always: the script runs it" : obstacle;
    return h(
      "label",
      { class: obstacle && "pf-export-barred" },
      box,
      h("span", {}, h("b", {}, title), why && h("small", {}, why)),
    );
  }

  drawDifference() {
    const difference = this.data?.difference;
    this.difference.hidden = !difference;
    this.more.found.hidden = !difference?.probes.length;
    fresh(this.difference, difference?.sentence ?? "");
    const caption = "the bisection, in the order of its steps";
    const words = ["layer", ""];
    fresh(this.probes, difference && plainTable({ caption, rows: probeRows(difference), words }));
  }

  drawFolder() {
    const folder = this.data?.folder ?? "";
    const isInBench = Boolean(this.model.get("state")?.queries);
    this.folder.hidden = !folder;
    this.more.files.hidden = !folder;
    const address = folderAddress(
      this.model.widget_manager?.context?.path,
      baseOf(document),
      folder,
    );
    const name = address ? h("a", { href: address, target: "_blank" }, folder) : h("b", {}, folder);
    const how = "; python run.py there needs numpy and ONNX Runtime alone";
    fresh(this.folder, "in ", name, how);
    const download = (/** @type {string} */ file) => {
      this.wanted = file;
      this.host.ask({ do: "export_file", name: file });
    };
    drawFiles(this.files, this.data?.files ?? [], isInBench ? download : null);
  }
}

/** The base of the server's addresses, as JupyterLab's page states it. @param {Document} page */
function baseOf(page) {
  const config = page.getElementById("jupyter-config-data")?.textContent;
  return config ? JSON.parse(config).baseUrl : undefined;
}
