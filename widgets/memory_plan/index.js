/** The view of a memory plan: each buffer by time and address, the least, and what torch held. */

import { memoryGrid, memoryKeys } from "../memory/marks.js";
import { nameOrModel } from "../memory/words.js";
import { freshId, onWidth } from "../shared/chart.js";
import { fresh, h, s, set } from "../shared/dom.js";
import { readableBytes } from "../shared/format.js";
import { textWidth } from "../shared/lettering.js";
import { MarkList } from "../shared/mark_list.js";
import { Question } from "../shared/question.js";
import { bufferAt, bufferBox, bufferOrder, levelsOf, planFrame, unpackedPlan } from "./layout.js";

/** @typedef {import("./layout.js").Plan} Plan */
/** @typedef {import("./layout.js").Buffer} Buffer */
/** @typedef {import("./layout.js").PlanFrame} PlanFrame */

const FOLLOWED = ["state", "requests", "served"];
const QUESTION = {
  query: "memory_plan",
  request: "memory_plan",
  question: "How little memory could a call do with, if its buffers were packed?",
  use: "Shows when each buffer is needed and where it could lie, beside what torch's allocator held.",
};

/**
 * @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model
 * @returns {import("../shared/host.js").View}
 */
export function memoryPlan(root, host, model) {
  return new PlanView(root, host, model);
}

class PlanView {
  /** @param {HTMLElement} root @param {import("../shared/host.js").Host} host @param {any} model */
  constructor(root, host, model) {
    this.host = host;
    this.model = model;
    this.id = freshId("plan");
    this.selected = host.selected();
    this.question = new Question(model, host.ask, QUESTION);
    /** @type {Plan | null} */
    this.data = null;
    /** @type {PlanFrame | null} */
    this.frame = null;
    /** @type {Buffer[]} */
    this.order = [];
    /** @type {Map<Buffer, SVGElement>} */
    this.boxes = new Map();
    this.head = h("div", { class: "pf-view-head" });
    this.sentence = h("p", { class: "pf-reason" });
    /** @type {MarkList<Buffer>} */
    this.list = new MarkList(
      {
        order: () => this.order,
        at: (x, y) => (this.data && this.frame ? bufferAt(this.data, this.frame, x, y) : null),
        mark: () => this.mark(),
        choose: (buffer) => this.choose(buffer),
      },
      "buffers by operator and address",
    );
    this.plot = this.list.plot;
    this.legend = h("div", { class: "pf-legend", "aria-hidden": "true" });
    this.note = h("p", { class: "pf-note" });
    this.known = [this.head, this.sentence, this.plot, this.legend, this.note];
    root.append(
      h(
        "section",
        { class: "pf-view pf-plan-view", "aria-label": "memory packing" },
        ...this.known,
        this.question.element,
      ),
    );
    this.onChange = () => this.question.show(Boolean(this.data));
    for (const name of FOLLOWED) model.on(`change:${name}`, this.onChange);
    this.release = onWidth(this.plot, (width) => this.draw(width));
  }

  /** @param {any} data */
  show(data) {
    this.data = unpackedPlan(data);
    this.order = this.data ? bufferOrder(this.data) : [];
    for (const part of this.known) part.hidden = !this.data;
    this.question.show(Boolean(this.data));
    fresh(this.head, h("h2", {}, this.data?.title ?? "Memory packing"));
    fresh(this.sentence, this.data?.sentence ?? "");
    fresh(this.note, this.data?.note ?? "");
    const names = this.data?.groups ?? [];
    const stacking = { names, classes: names.map((_, group) => `pf-group-${group}`) };
    fresh(this.legend, ...memoryKeys(/** @type {any} */ (stacking)));
    this.draw(this.plot.clientWidth);
  }

  /** @param {string} layer */
  select(layer) {
    this.selected = layer;
    this.mark();
  }

  destroy() {
    this.release();
    for (const name of FOLLOWED) this.model.off(`change:${name}`, this.onChange);
  }

  /** @param {number} width */
  draw(width) {
    if (!this.data || width <= 0) return;
    const { data } = this;
    const frame = planFrame(width, data);
    this.frame = frame;
    this.list.pointed = null;
    this.boxes = new Map(this.order.map((buffer) => [buffer, this.box(buffer, frame)]));
    const { drawing } = this.list;
    set(drawing, { width, height: frame.height, viewBox: `0 0 ${width} ${frame.height}` });
    const back = [memoryGrid(frame, "operators of the call, in order"), ...this.boxes.values()];
    fresh(drawing, ...back, planLevels(data, frame));
    this.mark();
  }

  /** @param {Buffer} buffer @param {PlanFrame} frame */
  box(buffer, frame) {
    const { x, y, width, height } = bufferBox(buffer, frame);
    const attributes = {
      id: `${this.id}-${buffer.index}`,
      role: "option",
      "aria-selected": "false",
      "aria-label": this.words(buffer).flat().join(", "),
      class: `pf-plan-box pf-group-${buffer.group}`,
    };
    const least = { width: Math.max(0.5, width), height: Math.max(0.5, height) };
    return s("rect", { ...attributes, x, y, ...least });
  }

  mark() {
    const { pointed, card } = this.list;
    for (const [buffer, box] of this.boxes) {
      const { layer } = buffer;
      const isIts = layer === this.selected || layer.startsWith(`${this.selected}.`);
      box.setAttribute("aria-selected", String(Boolean(this.selected) && isIts));
      box.classList.toggle("pf-pointed-cell", buffer === pointed);
    }
    this.list.describe(pointed && `${this.id}-${pointed.index}`);
    if (!pointed || !this.frame) return card.hide();
    const box = bufferBox(pointed, this.frame);
    const [heading, line, figures] = this.words(pointed);
    const spot = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    card.show(spot, heading, line, figures);
  }

  /** @param {Buffer} buffer @returns {[string, string, [string, string][]]} */
  words(buffer) {
    const life = `operators ${buffer.begin + 1} to ${buffer.end + 1}`;
    return [
      nameOrModel(buffer.layer || (this.data?.workload ?? "")),
      `${buffer.operator}, ${life}`,
      [
        [readableBytes(buffer.size), "size"],
        [readableBytes(buffer.offset), "address"],
      ],
    ];
  }

  /** @param {Buffer} buffer */
  choose(buffer) {
    this.select(buffer.layer);
    this.host.select(buffer.layer);
  }
}

/** What is alive at each operator, and the levels with their names. @param {Plan} plan @param {PlanFrame} frame */
function planLevels(plan, frame) {
  const spots = [...plan.alive].flatMap((bytes, operator) => {
    const y = frame.y(bytes).toFixed(1);
    return [`${frame.x(operator).toFixed(1)} ${y}`, `${frame.x(operator + 1).toFixed(1)} ${y}`];
  });
  const alive = spots.length && s("path", { d: `M${spots.join("L")}`, class: "pf-plan-alive" });
  const taken = /** @type {number[]} */ ([]);
  const levels = levelsOf(plan).flatMap(({ name, bytes, kind }) => {
    const y = frame.y(bytes);
    const text = `${name} ${readableBytes(bytes)}`;
    const isBelow = taken.some((other) => Math.abs(other - y) < 14);
    taken.push(y);
    const x = isBelow ? frame.left + 6 + textWidth(text, 11) : frame.right - 4;
    return [
      s("line", { x1: frame.left, x2: frame.right, y1: y, y2: y, class: `pf-plan-${kind}` }),
      s("text", { x, y: y - 4, class: "pf-dot-name pf-end" }, text),
    ];
  });
  return s("g", { class: "pf-overlay", "aria-hidden": "true" }, alive || null, ...levels);
}
