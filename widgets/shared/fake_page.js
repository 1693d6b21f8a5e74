/** Elements for the tests of views, which have no page: what they hold, and what they listen to. */

class FakeElement {
  constructor(text = "") {
    this.text = text;
    /** @type {FakeElement[]} */
    this.parts = [];
    /** @type {Record<string, (event: any) => void>} */
    this.listeners = {};
    this.style = {};
    this.classList = { toggle() {} };
  }

  /** @returns {string} */
  get textContent() {
    return this.text + this.parts.map((part) => part.textContent).join("");
  }

  get options() {
    return this.parts;
  }

  /** @param {...FakeElement} parts */
  append(...parts) {
    this.parts.push(...parts);
  }

  /** @param {...FakeElement} parts */
  replaceChildren(...parts) {
    this.parts = parts;
  }

  /** @param {string} name @param {(event: any) => void} listener */
  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }

  after() {}
  click() {}
  removeAttribute() {}
  setAttribute() {}
  setPointerCapture() {}

  getBoundingClientRect() {
    return { left: 0, top: 0, width: 0 };
  }
}

Object.assign(globalThis, {
  Node: FakeElement,
  document: {
    createElement: () => new FakeElement(),
    createElementNS: () => new FakeElement(),
    createTextNode: (/** @type {string} */ text) => new FakeElement(text),
    getElementById: () => null,
  },
});
