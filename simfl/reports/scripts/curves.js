// Curves over time, on the axis of all runs.
"use strict";
const Curves = (() => {
  const ORDER = ["test_accuracy", "test_loss", "train_loss", "consensus_distance", "bytes_sent", "epsilon"];
  /** @typedef {{ run: Run, position: number, time: ArrayLike<number>, values: (number | null)[], chosen: boolean }} Curve */

  /**
   * The curves that runs have: names and labels, the usual ones first.
   * @param {Run[]} runs
   */
  function names(runs) {
    /** @type {Record<string, string>} */
    const labels = {};
    for (const run of runs) for (const [name, { label }] of Object.entries(run.metrics.columns)) labels[name] = label;
    const place = (/** @type {string} */ name) => ORDER.indexOf(name) + 1 || 99;
    return Object.entries(labels).sort(([a], [b]) => place(a) - place(b));
  }

  /**
   * @param {number} width
   * @param {number} height
   */
  const boxOf = (width, height) => ({ left: 58, right: width - 8, top: 6, bottom: height - 20 });

  /**
   * The curve of some clients alone, where the run has their values: the mean of accuracies, the root mean square of
   * distances from consensus, or the largest epsilon.
   * @param {Run} run
   * @param {string} name
   * @param {Uint8Array} picked
   */
  function ofClients(run, name, picked) {
    const table = { test_accuracy: run.accuracy, consensus_distance: run.distance, epsilon: run.epsilon }[name];
    if (!table) return null;
    const values = Array.from(table.time, (_, row) => {
      const each = [];
      for (let k = 0; k < run.count; k++) if (picked[k] && Number.isFinite(table.values[row * run.count + k])) each.push(table.values[row * run.count + k]);
      if (!each.length) return null;
      if (name === "epsilon") return each.reduce((a, b) => Math.max(a, b));
      const square = name === "consensus_distance", mean = each.reduce((sum, v) => sum + (square ? v * v : v), 0) / each.length;
      return square ? Math.sqrt(mean) : mean;
    });
    return { time: table.time, values };
  }

  /**
   * @param {Stage} stage
   * @returns {Curve[]}
   */
  function curvesOf({ runs, measure, picked }) {
    return runs.flatMap((run, position) => {
      const column = run.metrics.columns[measure], own = picked && ofClients(run, measure, picked);
      const curves = column ? [{ run, position, time: run.metrics.time, values: column.values, chosen: false }] : [];
      return own ? [...curves, { run, position, ...own, chosen: true }] : curves;
    });
  }

  /**
   * The least and the greatest value of an axis.
   * @param {string} name
   * @param {number[]} values
   */
  function range(name, values) {
    let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
    if (name === "test_accuracy") {  // not from 0 if all but a short first rise takes place above
      const usual = [...values].sort((a, b) => a - b)[Math.floor(values.length / 20)];
      low = usual >= 0.5 ? Math.floor((usual - 0.1) * 10) / 10 : 0;
    } else if (low > 0 && low < 0.4 * high) low = 0;
    return high <= low ? [low - 0.5, high + 0.5] : [low, high];
  }

  /**
   * The color of a run's algorithm, paler on a dark page.
   * @param {Stage} stage
   * @param {Run} run
   */
  const lineColor = ({ colors }, run) => (Colors.inkOn(colors.paper) === "#000000" ? run.color : Colors.paler(run.color, 0.35));

  /**
   * @param {Stage} stage
   * @param {HTMLCanvasElement} canvas
   */
  function draw(stage, canvas) {
    const sheet = Canvas.paper(canvas), { pen, width, height, scale } = sheet, box = boxOf(width, height);
    const { view, brush, picked, colors, measure, duration, now } = stage, span = brush || { from: 0, to: duration };
    const curves = curvesOf(stage), px = (/** @type {number} */ seconds) => box.left + ((seconds - span.from) / (span.to - span.from)) * (box.right - box.left);
    /** @type {((value: number) => number) | null} */
    let py = null;
    const inside = curves.flatMap(({ run, time, values }) => values.filter((value, row) => {
      const seconds = time[row] * run.tick_s;
      return value !== null && seconds >= span.from && seconds <= span.to;
    }));
    const all = inside.length ? inside : curves.flatMap(({ values }) => values.filter((value) => value !== null));
    if (all.length) {
      const [low, high] = range(measure, /** @type {number[]} */ (all));
      py = (value) => box.bottom - ((Math.max(low, Math.min(high, value)) - low) / (high - low)) * (box.bottom - box.top);
    }
    const key = [width, height, scale, view.from, view.to, span.from, span.to, colors.ink, measure, picked ? picked.join("") : ""].join();
    Canvas.cached(stage.curveCache, "curve", key, sheet, (inner) => {
      inner.fillStyle = colors.faint;
      const from = Math.max(box.left, px(view.from)), to = Math.min(box.right, px(view.to));
      inner.fillRect(from, box.top, Math.max(2, to - from), box.bottom - box.top);
      Canvas.timeAxis(stage, inner, span, box, box.bottom + 4);
      if (!py) return;
      axis(stage, inner, box, range(measure, /** @type {number[]} */ (all)), py);
      inner.save();
      inner.beginPath();
      inner.rect(box.left, 0, box.right - box.left, height);
      inner.clip();
      for (const curve of curves) line(stage, inner, curve, px, py);
      inner.restore();
      if (curves.length > 1) legend(stage, inner, curves, box);
    });
    for (const { run, time, values } of py ? curves : []) {
      const row = Replay.upTo(time, Canvas.tickOf(run, now)) - 1, value = row < 0 ? null : values[row];
      if (value === null || !py || time[row] * run.tick_s < span.from) continue;
      pen.beginPath();
      pen.arc(px(time[row] * run.tick_s), py(value), 4, 0, 2 * Math.PI);
      pen.fillStyle = lineColor(stage, run);
      pen.fill();
    }
    Canvas.playhead(stage, pen, px(now), box);
  }

  /**
   * @param {Stage} stage
   * @param {CanvasRenderingContext2D} pen
   * @param {ReturnType<typeof boxOf>} box
   * @param {number[]} range
   * @param {(value: number) => number} py
   */
  function axis({ colors, measure, words }, pen, box, [low, high], py) {
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of Canvas.steps(low, high, 4)) {
      pen.fillStyle = colors.soft;
      pen.fillText(measure.includes("accuracy") ? `${words.trim(100 * value)} %` : measure === "bytes_sent" ? words.bytes(value) : words.trim(value), box.left - 6, py(value));
      pen.strokeStyle = colors.line;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(box.left, py(value));
      pen.lineTo(box.right, py(value));
      pen.stroke();
    }
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Curve} curve
   */
  function dashes(pen, { position, chosen }) {
    pen.lineWidth = chosen ? 1.5 : 2;
    pen.setLineDash(chosen ? [2, 3] : position ? [8, 4] : []);
  }

  /**
   * @param {Stage} stage
   * @param {CanvasRenderingContext2D} pen
   * @param {Curve} curve
   * @param {(seconds: number) => number} px
   * @param {(value: number) => number} py
   */
  function line(stage, pen, curve, px, py) {
    let begun = false;
    pen.strokeStyle = lineColor(stage, curve.run);
    dashes(pen, curve);
    pen.beginPath();
    curve.values.forEach((value, row) => {
      if (value === null) { begun = false; return; }
      const x = px(curve.time[row] * curve.run.tick_s), y = py(value);
      if (begun) pen.lineTo(x, y); else pen.moveTo(x, y);
      begun = true;
    });
    pen.stroke();
    pen.setLineDash([]);
  }

  /**
   * @param {Stage} stage
   * @param {CanvasRenderingContext2D} pen
   * @param {Curve[]} curves
   * @param {ReturnType<typeof boxOf>} box
   */
  function legend(stage, pen, curves, box) {
    pen.textAlign = "right";
    pen.textBaseline = "alphabetic";
    curves.forEach((curve, place) => {
      const y = box.bottom - 10 - 16 * (curves.length - 1 - place), x = box.right - 8;
      const who = curve.chosen ? "these clients" : "all clients";
      const shown = stage.runs.length === 1 ? who : curve.chosen ? `${curve.run.title}, ${who}` : curve.run.title;
      pen.fillStyle = stage.colors.ink;
      pen.fillText(shown, x, y);
      pen.strokeStyle = lineColor(stage, curve.run);
      dashes(pen, curve);
      pen.beginPath();
      pen.moveTo(x - pen.measureText(shown).width - 32, y - 4);
      pen.lineTo(x - pen.measureText(shown).width - 6, y - 4);
      pen.stroke();
      pen.setLineDash([]);
    });
  }

  return { names, boxOf, draw };
})();
