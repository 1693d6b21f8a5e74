/** The view of a picture: its texts, itself and those below it, tables, and the question before it. */

import { fresh, h } from "./dom.js";
import { unpackedPicture } from "./picture.js";
import { LayerChoice } from "./picture_choice.js";
import { PictureDrawing } from "./picture_drawing.js";
import { signOf } from "./picture_marks.js";
import { Photo } from "./picture_photo.js";
import { plainTable } from "./plain_table.js";
import { Question } from "./question.js";
import { SpokenLine } from "./spoken_line.js";

/** @typedef {import("./picture.js").Picture} Picture */

const FOLLOWED = ["state", "requests", "served"];

/**
 * @param {{ label: string, question: import("./question.js").QuestionText | null,
 *   before: string }} facts
 * @returns {import("./host.js").MakeView}
 */
export function pictureView({ label, question: text, before }) {
  return (root, host, model) => {
    const question = text && new Question(model, host.ask, text, typed(text));
    const sheet = new PictureSheet(host);
    let isKnown = false;
    const onChange = () => question?.show(isKnown);
    for (const name of FOLLOWED) model.on(`change:${name}`, onChange);
    const view = { class: "pf-view", "aria-label": label };
    const waiting = h("p", { class: "pf-reason" }, before);
    root.append(h("section", view, waiting, sheet.element, question?.element ?? null));
    return {
      show(data) {
        const picture = unpackedPicture(data);
        isKnown = Boolean(picture);
        sheet.element.hidden = !picture;
        waiting.hidden = isKnown || !before;
        onChange();
        if (picture) sheet.show(picture);
      },
      select(layer) {
        sheet.select(layer);
      },
      destroy() {
        sheet.destroy();
        for (const name of FOLLOWED) model.off(`change:${name}`, onChange);
      },
    };
  };
}

/**
 * The field of a question that has one, and what is typed in it.
 * @param {import("./question.js").QuestionText} text
 */
function typed({ field, hint }) {
  if (!field) return {};
  const looks = { type: "text", size: 32, "aria-label": field, placeholder: hint };
  const input = /** @type {HTMLInputElement} */ (h("input", looks));
  return {
    fields: [h("span", { class: "pf-lead" }, field), input],
    options: () => ({ [field]: input.value }),
  };
}

/** All of a picture. Its parts stay while it is shown again, and with them focus and pointer. */
export class PictureSheet {
  /**
   * @param {import("./host.js").Host} host
   * @param {import("./picture_drawing.js").Handlers} [handlers]
   * @param {((request: any) => void) | null} [press] what is asked for in a table
   */
  constructor(host, handlers, press = null) {
    this.host = host;
    this.handlers = handlers;
    this.press = press;
    /** @type {PictureDrawing[]} */
    this.drawings = [];
    this.title = h("h2", {});
    this.spoken = new SpokenLine();
    this.news = "";
    this.sentence = h("p", { class: "pf-reason" });
    this.facts = h("p", { class: "pf-readout pf-pic-facts" });
    this.photo = new Photo();
    this.panels = h("div", { class: "pf-pic-drawings" });
    this.items = h("ol", { class: "pf-pic-items" });
    this.choice = new LayerChoice(host);
    this.tables = h("div", { class: "pf-pic-tables" });
    this.note = h("p", { class: "pf-note" });
    this.element = h(
      "div",
      { onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)) },
      h("div", { class: "pf-view-head" }, this.title),
      this.spoken.element,
      this.sentence,
      this.facts,
      h("div", { class: "pf-pic-body" }, this.photo.element, this.panels),
      this.items,
      this.choice.element,
      this.tables,
      this.note,
    );
  }

  /** @param {Picture} picture */
  show(picture) {
    const { title, sentence, note, facts, items, tables, spoken } = picture;
    filled(this.title, title);
    this.speak(spoken);
    filled(this.sentence, sentence);
    filled(this.facts, ...facts.map(figure));
    this.photo.show(picture.photo);
    this.draw([picture, ...picture.below]);
    filled(this.items, ...items.map(item));
    this.items.setAttribute("aria-label", picture.items_name || picture.label);
    this.choice.show(picture);
    filled(this.tables, ...tables.map((table) => plainTable(table, this.press)));
    filled(this.note, note);
  }

  /** @param {Picture["spoken"]} spoken */
  speak(spoken) {
    this.spoken.element.hidden = !spoken;
    if (!spoken) return;
    this.spoken.tell(spoken.line, spoken.news !== this.news);
    this.news = spoken.news;
  }

  /** As many drawings as pictures. @param {Picture[]} all */
  draw(all) {
    if (this.drawings.length !== all.length) {
      for (const extra of this.drawings.splice(all.length)) extra.destroy();
      while (this.drawings.length < all.length)
        this.drawings.push(new PictureDrawing(this.host, this.handlers));
      const headed = this.drawings.flatMap(({ element }, index) => [
        index > 0 && h("h3", { class: "pf-pic-heading" }),
        element,
      ]);
      fresh(this.panels, ...headed);
    }
    const headings = this.panels.querySelectorAll("h3");
    all.slice(1).forEach((picture, index) => fresh(headings[index], picture.title));
    this.drawings.forEach((drawing, index) => drawing.show(all[index]));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!(event.target instanceof SVGElement)) return;
    const drawings = [...this.drawings, this.choice.drawing];
    this.choice.zoom(event, drawings.map(({ pointedKey }) => pointedKey).find(Boolean));
  }

  /** @param {string} layer */
  select(layer) {
    for (const drawing of this.drawings) drawing.select(layer);
    this.choice.select(layer);
  }

  /** Describe a row of the cursor. @param {number | null} row */
  place(row) {
    this.drawings[0]?.place(row);
  }

  destroy() {
    for (const part of [...this.drawings, this.choice, this.photo]) part.destroy();
  }
}

/** Put into an element, or away with it. @param {HTMLElement} element @param {...any} children */
function filled(element, ...children) {
  element.hidden = !children.some(Boolean);
  fresh(element, ...children);
}

/** @param {import("./picture.js").Fact} fact */
function figure({ value, name, shape }) {
  return h(
    "span",
    {},
    shape && signOf(shape, "pf-tone-bad"),
    shape && " ",
    h("b", {}, value),
    ` ${name}`,
  );
}

/** @param {[string, string]} item */
function item([what, about]) {
  return h("li", {}, h("b", {}, what), ` ${about}`);
}
