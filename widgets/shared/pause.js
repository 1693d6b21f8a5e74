/** What is done once a hand rests: keys that are pressed one after another are one gesture. */

const REST_MS = 700;

/** @param {() => void} act @param {number} [ms] */
export function afterRest(act, ms = REST_MS) {
  let timer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
  const drop = () => {
    clearTimeout(timer);
    timer = undefined;
  };
  return {
    /** Wait, from now on. */
    wait() {
      clearTimeout(timer);
      timer = setTimeout(() => {
        timer = undefined;
        act();
      }, ms);
    },
    drop,
  };
}
