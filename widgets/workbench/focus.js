/** Keeps the keyboard in the workbench when the control that has the focus goes. */

/**
 * A control that hides or removes itself, as Stop does, leaves the focus to the page, where no key
 * of the workbench is heard; it goes to the workbench instead.
 * @param {HTMLElement} element @param {any} model whose changes draw the controls
 */
export function keepFocus(element, model) {
  /** @type {Element | null} */
  let held = null;
  let frame = 0;

  function look() {
    const active = document.activeElement;
    const isThere = held?.isConnected && held.getClientRects().length > 0;
    if (active !== document.body && active !== held)
      held = element.contains(active) ? active : null;
    else if (held && !isThere) element.focus({ preventScroll: true });
    else if (active === document.body) held = null; // left by hand
  }
  const wait = () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(look);
  };
  element.addEventListener("focusin", (event) => (held = /** @type {Element} */ (event.target)));
  for (const event of ["focusout", "click", "keyup"]) element.addEventListener(event, wait);
  model.on("change", wait);
  return {
    destroy() {
      cancelAnimationFrame(frame);
      model.off("change", wait);
    },
  };
}
