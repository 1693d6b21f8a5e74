/** The model's graph: pan and zoom, along its edges by keys, fold and unfold, and change what is chosen. */

import { HoverCard, freshId } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { unpackedPicture, wordsOf } from "../shared/picture.js";
import { markRows } from "../shared/picture_marks.js";
import { Question } from "../shared/question.js";
import { int32s } from "../shared/unpack.js";
import { nearest, nextAlong, zoomed } from "./moves.js";

/** @typedef {import("./moves.js").View} View */

const FOLLOWED = ["state", "requests", "served"];
const QUESTION = {
  query: "graph",
  request: "graph",
  question: "What flows from layer to layer?",
  use: "One call of the model tells.",
};
const PRECISIONS = ["bf16", "fp16", "int8", "int8-weights", "int4-weights", ""];
const HEIGHT = 560;
const MOST_ZOOM = 2.5;
const FIRST_ZOOM = 0.85; // below it no name can be read

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function graph(root, host, model) {
  return new GraphView(root, host, model);
}

class GraphView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    const isBench = Boolean(model.get("state")); // Python answers: a record alone is as it is
    this.host = host;
    this.model = model;
    this.isBench = isBench;
    this.id = freshId("graph");
    this.data = /** @type {any} */ (null);
    /** @type {View} */
    this.view = { x: 0, y: 0, zoom: 1 };
    this.at = -1;
    /** Nodes chosen with shift, beside the one that the workbench selects. @type {Set<string>} */
    this.chosen = new Set();
    this.drag = /** @type {{ x: number, y: number, view: View, isMoved: boolean } | null} */ (null);
    this.asked = false;
    this.nodes = /** @type {SVGElement[]} */ ([]);
    this.content = s("g", {});
    this.svg = s(
      "svg",
      {
        role: "listbox",
        tabindex: "0",
        class: "pf-svg pf-graph-svg",
        "aria-multiselectable": "true",
      },
      this.content,
    );
    this.plot = h("div", { class: "pf-plot pf-graph-plot" }, this.svg);
    this.card = new HoverCard(this.plot);
    this.title = h("h2", {});
    this.note = h("p", { class: "pf-note" });
    this.legend = h("div", { class: "pf-legend", "aria-hidden": "true" });
    this.colours = h("select", {
      "aria-label": "colour by",
      onchange: (event) => this.colourBy(event),
    });
    this.said = h("span", { class: "pf-graph-said", role: "status" });
    this.format = /** @type {HTMLSelectElement} */ (
      h(
        "select",
        { "aria-label": "format of what is chosen" },
        h("option", { value: "?" }, "Format …"),
        ...PRECISIONS.map((name) => h("option", { value: name }, name || "as it came")),
      )
    );
    this.isByKey = false;
    const act = (
      /** @type {string} */ label,
      /** @type {string} */ kind,
      /** @type {string} */ title,
    ) =>
      h(
        "button",
        { type: "button", class: "pf-button", title, onclick: () => this.edit(kind) },
        label,
      );
    const go = (
      /** @type {string} */ label,
      /** @type {string} */ name,
      /** @type {() => void} */ onclick,
    ) =>
      h(
        "button",
        { type: "button", class: "pf-button", "aria-label": name, title: name, onclick },
        label,
      );
    this.acts = h(
      "div",
      { class: "pf-graph-acts", role: "group", "aria-label": "change what is chosen" },
      this.format,
      act("Prune ¼", "prune", "cut a quarter of the channels"),
      act("Fuse", "fuse", "run with what follows as one operator"),
      act("Sparse attention", "attention", "attend to a share of the keys"),
    );
    const ways = h(
      "div",
      { class: "pf-graph-ways" },
      isBench && h("label", {}, "Colour ", this.colours),
      isBench && go("Unfold all", "unfold all blocks", () => this.fold("", true)),
      isBench && go("Fold all", "fold all blocks", () => this.fold("", false)),
      go("−", "smaller (−)", () => this.zoom(1 / 1.25)),
      go("+", "larger (+)", () => this.zoom(1.25)),
      go("0", "the whole graph (0)", () => this.whole()),
    );
    this.question = new Question(model, host.ask, QUESTION);
    this.parts = [
      h("div", { class: "pf-view-head" }, this.title),
      ways,
      h("div", { class: "pf-graph-chosen" }, this.said, this.acts),
      this.plot,
      this.legend,
      this.note,
    ];
    const view = { class: "pf-view pf-graph", "aria-label": "graph" };
    root.append(h("section", view, ...this.parts, this.question.element));
    this.onChange = () => this.data || this.question.show(false);
    for (const name of FOLLOWED) model.on(`change:${name}`, this.onChange);
    this.listen();
  }

  destroy() {
    for (const name of FOLLOWED) this.model.off(`change:${name}`, this.onChange);
  }

  listen() {
    set(this.svg, {
      onpointerdown: (event) => this.down(/** @type {PointerEvent} */ (event)),
      onpointermove: (event) => this.move(/** @type {PointerEvent} */ (event)),
      onpointerup: (event) => this.up(/** @type {PointerEvent} */ (event)),
      onpointercancel: () => (this.drag = null),
      onpointerleave: () => this.drag || this.card.hide(),
      ondblclick: () => this.enter(),
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onblur: () => this.card.hide(),
    });
    this.svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    set(this.format, {
      onpointerdown: () => (this.isByKey = false),
      onkeydown: (event) => this.keyInFormat(/** @type {KeyboardEvent} */ (event)),
      onchange: () => this.isByKey || this.setFormat(),
      onblur: () => this.setFormat(), // it is for what is chosen now
    });
  }

  /** @param {any} data */
  show(data) {
    for (const part of this.parts) part.toggleAttribute("hidden", !data?.key);
    if (!data?.key) {
      if (!this.asked && this.isBench) this.host.ask({ do: "graph" });
      this.asked = true;
      this.onChange();
      return;
    }
    this.question.element.hidden = true;
    const isFirst = !this.data;
    const key = this.data?.key[this.at];
    const before = this.spot(this.at);
    this.card.hide();
    this.data = { ...data, ...unpackedPicture(data) };
    for (const ends of ["sources", "targets"]) this.data[ends] = [...int32s(data[ends])];
    fresh(this.title, data.title);
    fresh(this.note, data.note);
    fresh(
      this.legend,
      ...data.legend.map((/** @type {[string, string]} */ [tone, name]) =>
        h("span", { class: "pf-group-key" }, h("i", { class: `pf-pic-key pf-tone-${tone}` }), name),
      ),
    );
    fresh(
      this.colours,
      ...data.colours.map((/** @type {string} */ name) => h("option", { value: name }, name)),
    );
    /** @type {HTMLSelectElement} */ (this.colours).value = data.colour;
    this.draw();
    this.at = this.indexOf(key ?? this.host.selected());
    if (isFirst) this.first();
    else this.keep(before);
    this.mark();
  }

  /** The node of a key, or the folded block that holds it, or the first inside it. @param {string} key */
  indexOf(key) {
    const keys = /** @type {string[]} */ (this.data.key);
    const same = keys.indexOf(key);
    if (same >= 0 || !key) return same;
    const holder = keys.findIndex((other) => isInside(key, other));
    return holder >= 0 ? holder : keys.findIndex((other) => isInside(other, key));
  }

  /** @param {number} index @returns {{ x: number, y: number, width: number, height: number } | null} */
  spot(index) {
    const boxes = this.boxes();
    if (!boxes || index < 0 || index >= boxes.x.length) return null;
    const [x, y] = [boxes.x[index], boxes.y[index]];
    return { x, y, width: boxes.x2[index] - x, height: boxes.y2[index] - y };
  }

  /** The mark whose rows are the nodes. */
  boxes() {
    return this.data?.rows[0][0].marks.find((/** @type {any} */ mark) => mark.tips);
  }

  /** All marks in the layout's own units; panning and zooming only moves them. */
  draw() {
    const same = (/** @type {number} */ value) => value;
    const frame = /** @type {any} */ ({
      panel: this.data.rows[0][0],
      x: same,
      y: same,
      left: -1e9,
      right: 1e9,
      top: -1e9,
      bottom: 1e9,
    });
    const parts = this.data.rows[0][0].marks.map((/** @type {any} */ mark) => {
      const rows = markRows(mark, frame);
      if (!mark.tips) return s("g", { class: "pf-overlay", "aria-hidden": "true" }, ...rows);
      this.nodes = rows;
      rows.forEach((row, index) =>
        set(row, {
          id: `${this.id}-${index}`,
          role: "option",
          "aria-label": this.words(index),
          "aria-selected": "false",
        }),
      );
      return s("g", { role: "presentation" }, ...rows);
    });
    fresh(this.content, ...parts);
    set(this.svg, { height: HEIGHT, width: "100%", "aria-label": this.data.label });
  }

  /** @param {number} index */
  words(index) {
    const [heading, line, figures] = wordsOf(this.boxes().tips, index);
    const fold = this.data.canUnfold[index] ? "folded, Enter unfolds" : "";
    return [heading, line, ...figures.map((figure) => figure.join(" ")), fold]
      .filter(Boolean)
      .join(", ");
  }

  /** @param {string} layer */
  select(layer) {
    if (!this.data || (this.at >= 0 && this.data.layer[this.at] === layer)) return;
    this.at = layer ? this.indexOf(layer) : -1;
    this.reveal();
    this.mark();
  }

  mark() {
    this.nodes.forEach((node, index) => {
      const is = index === this.at || this.chosen.has(this.data.key[index]);
      node.setAttribute("aria-selected", String(is));
    });
    set(this.svg, { "aria-activedescendant": this.at >= 0 ? `${this.id}-${this.at}` : false });
    const layers = this.layers();
    fresh(this.said, layers.length ? layers.join(" + ") : "Choose a node; shift adds others.");
    this.acts.classList.toggle("pf-gone", !layers.length || !this.isBench);
  }

  /** The layers that a change is for: operators between layers have none of their own. */
  layers() {
    const keys = new Set([...this.chosen, this.data?.key[this.at]]);
    const rows = this.data?.key ?? [];
    return /** @type {string[]} */ (
      rows.filter(
        (/** @type {string} */ key, /** @type {number} */ row) =>
          keys.has(key) && key === this.data.layer[row],
      )
    );
  }

  // What is seen.

  place() {
    const { x, y, zoom } = this.view;
    this.content.setAttribute(
      "transform",
      `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${zoom.toFixed(3)})`,
    );
  }

  width() {
    return this.svg.getBoundingClientRect().width || 800;
  }

  /** The whole width, names large enough to read, from the input down. */
  first() {
    const [across, down] = this.data.size;
    const fit = Math.min(1, (this.width() - 24) / across, (HEIGHT - 16) / down);
    const zoom = Math.max(FIRST_ZOOM, fit);
    const spot = this.spot(0);
    const x =
      across * zoom > this.width() && spot
        ? this.width() / 2 - (spot.x + spot.width / 2) * zoom
        : (this.width() - across * zoom) / 2;
    this.view = { x, y: 8, zoom };
    this.place();
  }

  whole() {
    const [across, down] = this.data.size;
    const zoom = Math.min(MOST_ZOOM, (this.width() - 24) / across, (HEIGHT - 24) / down);
    this.view = { x: (this.width() - across * zoom) / 2, y: (HEIGHT - down * zoom) / 2, zoom };
    this.place();
  }

  /** Keep a node where it was while others fold. @param {{ x: number, y: number } | null} before */
  keep(before) {
    const now = this.spot(this.at);
    if (before && now) {
      this.view.x += (before.x - now.x) * this.view.zoom;
      this.view.y += (before.y - now.y) * this.view.zoom;
    }
    this.place();
    this.reveal();
  }

  reveal() {
    const spot = this.spot(this.at);
    if (!spot) return;
    const { x, y, zoom } = this.view;
    const left = x + spot.x * zoom;
    const top = y + spot.y * zoom;
    if (left < 0 || left + spot.width * zoom > this.width())
      this.view.x = this.width() / 2 - (spot.x + spot.width / 2) * zoom;
    if (top < 0 || top + spot.height * zoom > HEIGHT)
      this.view.y = HEIGHT / 2 - (spot.y + spot.height / 2) * zoom;
    this.place();
  }

  /** @param {number} by @param {number} [x] @param {number} [y] */
  zoom(by, x = this.width() / 2, y = HEIGHT / 2) {
    this.view = zoomed(this.view, by, x, y, MOST_ZOOM);
    this.place();
  }

  // Pointer and keys.

  /** @param {WheelEvent} event */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    const box = this.svg.getBoundingClientRect();
    this.zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
  }

  /** @param {PointerEvent} event */
  down(event) {
    if (event.button !== 0 || event.ctrlKey) return; // its menu opens
    this.svg.setPointerCapture(event.pointerId);
    this.drag = { x: event.clientX, y: event.clientY, view: { ...this.view }, isMoved: false };
  }

  /** @param {PointerEvent} event */
  move(event) {
    const { drag } = this;
    if (!drag) return this.point(this.under(event));
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    drag.isMoved ||= Math.hypot(dx, dy) > 4;
    if (!drag.isMoved) return;
    this.card.hide();
    this.view = { ...drag.view, x: drag.view.x + dx, y: drag.view.y + dy };
    this.place();
  }

  /** @param {PointerEvent} event */
  up(event) {
    const { drag } = this;
    this.drag = null;
    const index = this.under(event);
    if (!drag || drag.isMoved || index < 0) return;
    if (event.shiftKey) this.toggle(index);
    else {
      this.chosen.clear();
      this.go(index);
    }
  }

  /** @param {number} index */
  toggle(index) {
    if (this.at >= 0) this.chosen.add(this.data.key[this.at]);
    const key = this.data.key[index];
    if (this.chosen.has(key) && index !== this.at) this.chosen.delete(key);
    else this.chosen.add(key);
    this.mark();
  }

  /** @param {MouseEvent} event */
  under(event) {
    if (!this.data) return -1;
    const box = this.svg.getBoundingClientRect();
    const { x, y, zoom } = this.view;
    return nearest(
      this.boxes(),
      (event.clientX - box.left - x) / zoom,
      (event.clientY - box.top - y) / zoom,
    );
  }

  /** @param {number} index */
  point(index) {
    const spot = this.spot(index);
    if (!spot) return this.card.hide();
    const { x, y, zoom } = this.view;
    const at = { x: x + (spot.x + spot.width) * zoom, y: y + (spot.y + spot.height / 2) * zoom };
    this.card.show(at, ...wordsOf(this.boxes().tips, index));
  }

  /** @param {number} index */
  go(index) {
    if (index < 0) return;
    this.at = index;
    this.host.select(this.data.layer[index]);
    this.reveal();
    this.mark();
  }

  /** Unfold what is chosen; else go to what can be done with it. */
  enter() {
    if (this.at < 0 || !this.isBench) return;
    if (this.data.canUnfold[this.at]) this.fold(this.data.key[this.at], true);
    else this.format.focus();
  }

  /** @param {string} block @param {boolean} isOpen */
  fold(block, isOpen) {
    if (this.isBench) this.host.ask({ do: "graph_fold", block, isOpen });
  }

  /** Fold the block around what is chosen; outside of all blocks there is none to fold. */
  foldAround() {
    const block = this.data.block[this.at];
    if (block) this.fold(block, false);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || !this.data) return;
    if (key.startsWith("Arrow")) this.arrow(key);
    else if (key === "Home" || key === "End") this.go(key === "Home" ? 0 : this.nodes.length - 1);
    else if (key === "Enter") this.enter();
    else if (key === "Backspace") this.foldAround();
    else if (key === " ") this.toggle(this.at);
    else if (key === "+" || key === "=") this.zoom(1.25);
    else if (key === "-") this.zoom(1 / 1.25);
    else if (key === "0") this.whole();
    else if (key === "Escape" && this.chosen.size) this.chosen.clear();
    else return;
    event.preventDefault();
    event.stopPropagation();
    this.mark();
  }

  /** @param {string} key */
  arrow(key) {
    const next =
      this.at < 0 ? 0 : nextAlong(key, this.at, this.boxes(), this.data.sources, this.data.targets);
    this.go(next);
    this.point(next);
  }

  // Requests.

  /** @param {Event} event */
  colourBy(event) {
    this.host.ask({
      do: "graph_colour",
      name: /** @type {HTMLSelectElement} */ (event.target).value,
    });
  }

  /** Arrow keys pass formats on their way to the one that is meant. @param {KeyboardEvent} event */
  keyInFormat(event) {
    // arrows on a closed list only look; keys that open it mean what is chosen in it
    this.isByKey = !event.altKey && !["Enter", " ", "F4"].includes(event.key);
    if (event.key === "Escape") this.format.value = "?";
    if (event.key === "Enter") this.setFormat();
  }

  setFormat() {
    const { value } = this.format;
    if (value === "?") return;
    this.format.value = "?";
    this.edit("precision", value);
  }

  /** @param {string} kind @param {string} [name] */
  edit(kind, name = "") {
    this.host.ask({ do: "graph_edit", kind, layers: this.layers(), name });
  }
}

/**
 * Whether a layer, or an operator between layers, is in a block.
 * @param {string} key @param {string} block
 */
function isInside(key, block) {
  return Boolean(block) && [".", "#"].some((sign) => key.startsWith(block + sign));
}
