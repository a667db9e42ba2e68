// Colors: of the page, of activities, and of values on a ramp.
"use strict";
/**
 * @typedef {object} Coloring  A way to color clients.
 * @property {string} label
 * @property {(run: Run) => boolean} has  Whether a run has the values.
 * @property {((run: Run, client: number, tick: number) => number) | null} of  A client's value, NaN for none.
 * @property {(value: number) => number} share  The value's place on the ramp.
 * @property {(value: number) => string} show
 * @property {[string, string]} ends  What stands at the ends of the ramp.
 */
const Colors = (() => {
  const RAMP = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"];  // cividis
  /** @type {Record<string, string>} */
  const LIGHT = {
    ink: "#1b1f24", soft: "#59616b", line: "#dcdfe3", faint: "#f4f5f7", paper: "#ffffff",
    compute: "#0072b2", lost: "#d55e00", wait: "#cc79a7", communicate: "#e69f00", offline: "#999999",
  };

  /**
   * The colors of the page, which are properties of its style.
   * @param {Element} page
   */
  function read(page) {
    const style = getComputedStyle(page);
    return Object.fromEntries(Object.keys(LIGHT).map((name) => [name, style.getPropertyValue(`--${name}`).trim() || LIGHT[name]]));
  }

  /**
   * Red, green and blue of a color.
   * @param {string} color
   */
  const channels = (color) => (color.startsWith("#") ? [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)) : (color.match(/\d+/g) || []).map(Number));

  const shades = Array.from({ length: 64 }, (_, i) => {
    const place = (i / 63) * (RAMP.length - 1), k = Math.min(RAMP.length - 2, Math.floor(place)), share = place - k;
    const [low, high] = [channels(RAMP[k]), channels(RAMP[k + 1])];
    return `rgb(${low.map((part, at) => Math.round(part * (1 - share) + high[at] * share)).join(",")})`;
  });

  /** @param {number} share */
  const ramp = (share) => shades[Math.max(0, Math.min(63, Math.round(share * 63)))];

  /**
   * The color of text on a color.
   * @param {string} color
   */
  function inkOn(color) {
    const [red, green, blue] = channels(color);
    return 0.3 * red + 0.59 * green + 0.11 * blue > 140 ? "#000000" : "#ffffff";
  }

  /**
   * A color as a pixel of an image.
   * @param {string} color
   */
  const pixel = (color) => channels(color).reduce((sum, part, k) => sum + part * 2 ** (8 * k), 255 * 2 ** 24);

  /**
   * A color that is mixed with white.
   * @param {string} color
   * @param {number} share
   */
  const paler = (color, share) => `rgb(${channels(color).map((part) => Math.round(part + (255 - part) * share)).join(",")})`;

  /**
   * A color that is mixed with black.
   * @param {string} color
   * @param {number} share
   */
  const darker = (color, share) => `rgb(${channels(color).map((part) => Math.round(part * (1 - share))).join(",")})`;

  /** @param {ArrayLike<number> | null | undefined} values */
  function largest(values) {
    let most = 1e-12;
    for (let i = 0; values && i < values.length; i++) if (values[i] !== Replay.NEVER && values[i] > most) most = values[i];
    return most;
  }

  /**
   * The largest values of all runs.
   * @param {Run[]} runs
   */
  function mostOf(runs) {
    const over = (/** @type {(run: Run) => ArrayLike<number> | null | undefined} */ get) => Math.max(...runs.map((run) => largest(get(run))));
    const each = (/** @type {Run} */ { updates, count }) => updates && Array.from({ length: count }, (_, k) => updates.first[k + 1] - updates.first[k]);
    return {
      staleness: Math.max(over((run) => run.updates?.staleness), over((run) => run.messages?.staleness)),
      bytes: over((run) => run.messages?.bytes), epsilon: over((run) => run.epsilon?.values),
      distance: over((run) => run.distance?.values), updates: Math.max(1, over(each)),
    };
  }

  /**
   * The ways to color clients, by name.
   * @param {Run[]} runs
   * @param {Words} words
   * @param {ReturnType<typeof mostOf>} most
   * @returns {Record<string, Coloring>}
   */
  function colorings(runs, words, most) {
    const { count, trim, show } = words;
    // Accuracies from the lowest twentieth on: a short first rise would leave one color for all the rest.
    const accuracies = runs.flatMap((run) => (run.accuracy ? Array.from(run.accuracy.values.filter(Number.isFinite)) : [])).sort((a, b) => a - b);
    const worst = accuracies[Math.floor(accuracies.length / 20)] ?? 0, best = accuracies[accuracies.length - 1] ?? 1;
    /** @type {(name: "accuracy" | "distance" | "epsilon") => (run: Run, k: number, tick: number) => number} */
    const from = (name) => (run, k, tick) => { const table = run[name]; return table ? Replay.sampled(run, table, k, tick) : NaN; };
    const none = { of: null, share: () => 0, show: trim, ends: /** @type {[string, string]} */ (["", ""]) };
    return {
      activity: { ...none, label: "activity", has: (run) => run.timeline !== null || (run.heat !== null && run.grouped) },
      accuracy: { label: "accuracy of its model", has: (run) => run.accuracy !== null, of: from("accuracy"), share: (v) => (v - worst) / (best - worst || 1), show: (v) => show("accuracy", v), ends: [show("accuracy", worst), show("accuracy", best)] },
      distance: { label: "distance from consensus", has: (run) => run.distance !== null, of: from("distance"), share: (v) => Math.sqrt(v / most.distance), show: trim, ends: ["0", trim(most.distance)] },
      staleness: {
        label: "staleness of its last update", has: (run) => run.updates !== null,
        of: (run, k, tick) => { const row = Replay.lastUpdate(run, k, tick); return row < 0 || !run.updates ? NaN : run.updates.staleness[row]; },
        share: (v) => staleShare(v, most.staleness), show: count, ends: ["0", count(Math.round(most.staleness))],
      },
      updates: { label: "updates so far", has: (run) => Replay.isWhole(run.updates), of: (run, k, tick) => Replay.updatesOf(run, k, tick), share: (v) => v / most.updates, show: count, ends: ["0", count(most.updates)] },
      epsilon: { label: "epsilon spent (before the end an upper bound)", has: (run) => run.epsilon !== null, of: from("epsilon"), share: (v) => v / most.epsilon, show: trim, ends: ["0", trim(most.epsilon)] },
    };
  }

  /**
   * The place of a staleness on the ramp, which is logarithmic.
   * @param {number} staleness
   * @param {number} most
   */
  const staleShare = (staleness, most) => Math.log1p(staleness) / Math.log1p(Math.max(1, most));

  return { RAMP, LIGHT, read, ramp, inkOn, pixel, paler, darker, mostOf, colorings, staleShare };
})();
