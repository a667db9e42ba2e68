// What graph, lanes and curves have in common: canvases, axes, and the stage that they are drawn from.
"use strict";
/**
 * @typedef {{ from: number, to: number }} Span  Seconds.
 * @typedef {{ run: Run, client?: number, message?: number }} Chosen  `client` is a node of the graph.
 *
 * @typedef {object} Sheet  A canvas that is ready to be drawn on.
 * @property {CanvasRenderingContext2D} pen
 * @property {number} width
 * @property {number} height
 * @property {number} scale  Pixels of the device per pixel of the page.
 *
 * @typedef {object} Scene  What drawing keeps about a run.
 * @property {HTMLElement} article
 * @property {HTMLCanvasElement} graph
 * @property {HTMLCanvasElement} lanes
 * @property {Map<string, { key: string, canvas: HTMLCanvasElement }>} cache
 * @property {{ key: string, x: Float32Array, y: Float32Array, radius: number } | null} placed
 * @property {number[][] | null} members  Clients of each node.
 * @property {Int8Array} activity  Of each client at the moment, -1 for none.
 * @property {number[]} flying  Messages that are drawn in the graph.
 * @property {number[]} lines  Messages that are drawn between lanes.
 * @property {Collective[]} together
 *
 * @typedef {object} Stage  The moment that is shown, and how.
 * @property {Run[]} runs
 * @property {Map<Run, Scene>} scenes
 * @property {Scene["cache"]} curveCache
 * @property {string[]} activities
 * @property {Words} words
 * @property {Record<string, string>} colors
 * @property {Record<string, Coloring>} colorings
 * @property {ReturnType<typeof Colors.mostOf>} most
 * @property {number} duration
 * @property {number} now
 * @property {Span} view  The time that lanes show.
 * @property {Span | null} brush  The time that all views are restricted to.
 * @property {Uint8Array | null} picked  The clients that all views are restricted to, by number.
 * @property {Chosen | null} chosen
 * @property {string} mode  The coloring of clients.
 * @property {string} measure  The curve.
 */
const Canvas = (() => {
  /** @type {Map<HTMLCanvasElement, [number, number]>} */
  const sizes = new Map();  // to ask for a size makes the browser lay out the page

  /**
   * Clear a canvas for a new picture.
   * @param {HTMLCanvasElement} canvas
   * @returns {Sheet}
   */
  function paper(canvas) {
    const known = sizes.get(canvas), [width, height] = known || [canvas.clientWidth, canvas.clientHeight];
    if (!known) sizes.set(canvas, [width, height]);
    const scale = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = '12px system-ui, "DejaVu Sans", sans-serif';
    return { pen, width, height, scale };
  }

  /**
   * Draw once into a canvas of its own, and again only if the key changes; then copy it.
   * @param {Scene["cache"]} cache
   * @param {string} name
   * @param {string} key
   * @param {Sheet} sheet
   * @param {(pen: CanvasRenderingContext2D) => void} draw
   */
  function cached(cache, name, key, { width, height, scale, pen }, draw) {
    let entry = cache.get(name);
    if (!entry || entry.key !== key) {
      const canvas = entry ? entry.canvas : document.createElement("canvas");
      canvas.width = Math.max(1, Math.round(width * scale));
      canvas.height = Math.max(1, Math.round(height * scale));
      const inner = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      inner.scale(scale, scale);
      inner.font = pen.font;
      draw(inner);
      entry = { key, canvas };
      cache.set(name, entry);
    }
    pen.drawImage(entry.canvas, 0, 0, width, height);
  }

  /**
   * Round values from `low` to `high`, about as many as are wanted.
   * @param {number} low
   * @param {number} high
   * @param {number} wanted
   */
  function steps(low, high, wanted) {
    const rough = (high - low) / wanted || 1, power = 10 ** Math.floor(Math.log10(rough)), values = [];
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999) || 10 * power;
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && values.length < 50; i++) values.push(i * step || 0);
    return values;
  }

  /**
   * @param {Stage} stage
   * @param {CanvasRenderingContext2D} pen
   * @param {Span} span
   * @param {{ left: number, right: number }} box
   * @param {number} y
   */
  function timeAxis({ colors, words: { unit, unit_s } }, pen, { from, to }, { left, right }, y) {
    pen.fillStyle = colors.soft;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const values = steps(from / unit_s, to / unit_s, Math.max(2, (right - left) / 90));
    const step = values.length > 1 ? values[1] - values[0] : 1;
    const isWhole = (/** @type {number} */ d) => Math.abs(step * 10 ** d - Math.round(step * 10 ** d)) < 1e-6 * step * 10 ** d;
    let digits = 0;
    while (digits < 12 && !isWhole(digits)) digits++;
    for (const value of values) {
      const x = left + ((value * unit_s - from) / (to - from)) * (right - left);
      const text = `${value.toFixed(digits)}${value === values[values.length - 1] ? ` ${unit}` : ""}`;
      pen.fillText(text, Math.min(x, right - pen.measureText(text).width / 2 + 8), y);
    }
  }

  /**
   * @param {Stage} stage
   * @param {CanvasRenderingContext2D} pen
   * @param {number} x
   * @param {{ left: number, right: number, top: number, bottom: number }} box
   */
  function playhead({ colors }, pen, x, { left, right, top, bottom }) {
    if (x < left - 1 || x > right + 1) return;
    pen.strokeStyle = colors.ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x, top - 4);
    pen.lineTo(x, bottom + 2);
    pen.stroke();
  }

  /**
   * A moment in ticks of a run.
   * @param {Run} run
   * @param {number} seconds
   */
  const tickOf = (run, seconds) => Math.min(Replay.NEVER, Math.max(0, seconds / run.tick_s + 1e-6));

  return { sizes, paper, cached, steps, timeAxis, playhead, tickOf };
})();
