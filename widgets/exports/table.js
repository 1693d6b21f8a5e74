/** The tables of an export: a row a target, and the files of the folder. */

import { fresh, h } from "../shared/dom.js";
import { readableBytes } from "../shared/format.js";
import { errorText, noteOf, sizeText, speedText, verdictOf } from "./layout.js";

/** @typedef {import("./layout.js").Row} Row */
/** @typedef {import("./layout.js").File} File */

const HASH_SHOWN = 12;

/** @param {string[]} names @param {string[]} words columns of text */
function head(names, words) {
  const kind = (/** @type {string} */ name) => words.includes(name) && "pf-names";
  const cells = names.map((name) => h("th", { scope: "col", class: kind(name) }, name));
  return h("thead", {}, h("tr", {}, ...cells));
}

/** @param {HTMLElement} table @param {Row[]} rows */
export function drawTargets(table, rows) {
  const names = ["target", "checked", "size", "error", "× live", "note"];
  const body = rows.map((row) => {
    const [word, tone] = verdictOf(row);
    return h(
      "tr",
      { class: row.refused && "pf-export-refused" },
      h("th", { scope: "row", class: "pf-names" }, row.title),
      h("td", { class: `pf-names ${tone}`, title: (row.compared ?? []).join(", ") }, word),
      h("td", {}, sizeText(row)),
      h("td", { title: "relative L2 error of the outputs, of what is allowed" }, errorText(row)),
      h("td", { title: "as fast as the live model, timed in turn" }, speedText(row)),
      h("td", { class: "pf-names pf-export-note" }, noteOf(row)),
    );
  });
  fresh(table, head(names, ["target", "checked", "note"]), h("tbody", {}, ...body));
}

/**
 * @param {HTMLElement} table @param {File[]} files
 * @param {((name: string) => void) | null} download
 */
export function drawFiles(table, files, download) {
  const names = ["file", "size", "SHA-256", ...(download ? [""] : [])];
  const body = files.map((file) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", class: "pf-names" }, file.name),
      h("td", {}, readableBytes(file.bytes)),
      h("td", { class: "pf-names", title: file.sha256 }, file.sha256.slice(0, HASH_SHOWN)),
      download && h("td", { class: "pf-names" }, downloadButton(file, download)),
    ),
  );
  fresh(table, head(names, ["file", "SHA-256", ""]), h("tbody", {}, ...body));
}

/** @param {File} file @param {(name: string) => void} download */
function downloadButton(file, download) {
  if (!file.can_download) return h("span", { class: "pf-note" }, "in the folder");
  const attributes = {
    type: "button",
    class: "pf-step",
    "aria-label": `download ${file.name}`,
    onclick: () => download(file.name),
  };
  return h("button", attributes, "Download");
}

/** Give a file's content to the browser's downloads. @param {string} name @param {DataView} data */
export function save(name, data) {
  const content = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const address = URL.createObjectURL(new Blob([/** @type {any} */ (content)]));
  const link = h("a", { href: address, download: name.split("/").at(-1) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
