/** The photograph beside a picture: a JPEG that is replaced while it is looked at. */

import { h, set } from "./dom.js";

export class Photo {
  constructor() {
    this.address = "";
    this.element = h("img", { class: "pf-pic-photo", alt: "the current frame" });
    this.element.hidden = true;
  }

  /** @param {DataView | null} content */
  show(content) {
    this.element.hidden = !content?.byteLength;
    if (!content?.byteLength) return;
    const { buffer, byteOffset, byteLength } = content;
    const bytes = new Uint8Array(/** @type {ArrayBuffer} */ (buffer), byteOffset, byteLength);
    const earlier = this.address;
    this.address = URL.createObjectURL(new Blob([bytes], { type: "image/jpeg" }));
    set(this.element, { src: this.address });
    if (earlier) URL.revokeObjectURL(earlier);
  }

  destroy() {
    if (this.address) URL.revokeObjectURL(this.address);
  }
}
