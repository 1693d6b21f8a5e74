/** Elements from values. Text is text: there is no way from here to HTML. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {string | number | Node | null | undefined | false} Child
 * @typedef {Record<string, string | number | boolean | null | undefined | EventListener>}
 * Properties
 */

/**
 * An HTML element: `h("button", { class: "pf-chip", onclick: undo }, "Undo")`.
 * @param {string} tag @param {Properties} [properties] @param {...Child} children @returns
 * {HTMLElement}
 */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/**
 * An SVG element.
 * @param {string} tag @param {Properties} [properties] @param {...Child} children @returns
 * {SVGElement}
 */
export function s(tag, properties = {}, ...children) {
  return fill(/** @type {SVGElement} */ (document.createElementNS(SVG, tag)), properties, children);
}

/**
 * Set attributes and listeners; false, null and undefined take an attribute away.
 * @template {Element} E @param {E} element @param {Properties} properties @returns {E}
 */
export function set(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === false || value === null || value === undefined)
      element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  return element;
}

/**
 * Replace the children of an element.
 * @template {Element} E @param {E} element @param {...Child} children @returns {E}
 */
export function fresh(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/**
 * @template {Element} E @param {E} element @param {Properties} properties @param {Child[]} children
 * @returns {E}
 */
function fill(element, properties, children) {
  element.append(...nodes(children));
  return set(element, properties);
}

/** @param {Child[]} children @returns {Node[]} */
function nodes(children) {
  const kept = children.filter((child) => child !== null && child !== undefined && child !== false);
  return kept.map((child) =>
    child instanceof Node ? child : document.createTextNode(String(child)),
  );
}
