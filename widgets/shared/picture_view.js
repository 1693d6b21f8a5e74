/** The view of a picture: its texts, itself and those below it, tables, and the question before it. */

import { fresh, h } from "./dom.js";
import { unpackedPicture } from "./picture.js";
import { PictureDrawing } from "./picture_drawing.js";
import { plainTable } from "./plain_table.js";
import { Question } from "./question.js";

/** @typedef {import("./picture.js").Picture} Picture */

const FOLLOWED = ["state", "requests", "served"];

/**
 * @param {{ label: string, question: import("./question.js").QuestionText | null }} facts
 * @returns {import("./host.js").MakeView}
 */
export function pictureView({ label, question: text }) {
  return (root, host, model) => {
    const question = text && new Question(model, host.ask, text);
    const body = h("div", {});
    /** @type {PictureDrawing[]} */
    let drawings = [];
    let isKnown = false;
    const onChange = () => question?.show(isKnown);
    for (const name of FOLLOWED) model.on(`change:${name}`, onChange);
    const view = { class: "pf-view", "aria-label": label };
    root.append(h("section", view, body, question?.element ?? null));

    /** As many drawings as pictures; they stay, and with them what is pointed at. @param {Picture} picture */
    function build(picture) {
      const all = [picture, ...picture.below];
      for (const extra of drawings.splice(all.length)) extra.destroy();
      while (drawings.length < all.length) drawings.push(new PictureDrawing(host));
      const { title, sentence, note, items, tables } = picture;
      fresh(
        body,
        h("div", { class: "pf-view-head" }, h("h2", {}, title)),
        h("p", { class: "pf-reason" }, sentence),
        ...drawings.flatMap(({ element }, index) => [
          index > 0 && h("h3", { class: "pf-pic-heading" }, all[index].title),
          element,
        ]),
        items.length > 0 && h("ul", { class: "pf-pic-items" }, ...items.map(item)),
        ...tables.map(({ caption, rows, words }) => plainTable(caption, rows, words)),
        h("p", { class: "pf-note" }, note),
      );
      drawings.forEach((drawing, index) => drawing.show(all[index]));
    }

    return {
      show(data) {
        const picture = unpackedPicture(data);
        isKnown = Boolean(picture);
        body.hidden = !picture;
        onChange();
        if (picture) build(picture);
      },
      select(layer) {
        for (const drawing of drawings) drawing.select(layer);
      },
      destroy() {
        for (const drawing of drawings) drawing.destroy();
        for (const name of FOLLOWED) model.off(`change:${name}`, onChange);
      },
    };
  };
}

/** @param {[string, string]} item */
function item([what, about]) {
  return h("li", {}, h("b", {}, what), ` ${about}`);
}
