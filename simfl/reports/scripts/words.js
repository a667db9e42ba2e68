// Numbers in words.
"use strict";
/**
 * @typedef {ReturnType<typeof Words>} Words
 */

/**
 * Make functions that say numbers. All times have one unit, that of the `duration`, and as many digits as tell moments
 * of `span_s` seconds apart.
 * @param {number} duration
 * @param {number} span_s
 */
function Words(duration, span_s) {
  /** @type {[number, number, string][]} */
  const units = [[172800, 86400, "d"], [7200, 3600, "h"], [600, 60, "min"], [1, 1, "s"], [1e-3, 1e-3, "ms"], [0, 1e-6, "µs"]];
  const unitOf = (/** @type {number} */ seconds) => units.find(([least]) => seconds >= least) || units[units.length - 1];
  const [, unit_s, unit] = unitOf(duration);
  const decimals = Math.max(0, Math.min(9, Math.ceil(-Math.log10(span_s / unit_s)) + 2));
  const trim = (/** @type {number} */ value) => String(Number(value.toPrecision(4)));
  const count = (/** @type {number} */ value) => value.toLocaleString("en");
  const clock = (/** @type {number} */ seconds) => `${(seconds / unit_s).toFixed(decimals)} ${unit}`;

  /** @param {number} seconds */
  function long(seconds) {
    if (!seconds) return "0 s";
    const [, size, name] = unitOf(seconds);
    return `${trim(seconds / size)} ${name}`;
  }

  /** @param {number} value */
  function bytes(value) {
    const k = Math.min(5, Math.max(0, Math.floor(Math.log10(value || 1) / 3)));
    return `${trim(value / 1000 ** k)} ${["B", "kB", "MB", "GB", "TB", "PB"][k]}`;
  }

  /**
   * A value of a column of `metrics`.
   * @param {string} name
   * @param {number | null} value
   */
  function show(name, value) {
    if (value === null || Number.isNaN(value)) return "–";
    if (name.includes("accuracy")) return `${(100 * value).toFixed(2)} %`;
    if (name === "bytes_sent") return bytes(value);
    return Number.isInteger(value) ? count(value) : trim(value);
  }

  /**
   * A number with its noun.
   * @param {number} value
   * @param {string} noun
   */
  const several = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

  return { unit, unit_s, trim, count, clock, long, bytes, show, several };
}

/**
 * Make an element with a text and attributes.
 * @param {string} name
 * @param {string} [text]
 * @param {Record<string, string>} attributes
 */
function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
