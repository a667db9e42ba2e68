// Lanes: what each client does over time, and messages between them.
"use strict";
const Lanes = (() => {
  const MOST_LINES = 700;
  /** @type {Record<string, (x: number, y: number) => boolean>} */
  const HATCHES = {
    lost: (x, y) => (x + y) % 3 === 0, wait: (x, y) => x % 3 === 1 && y % 3 === 1, communicate: (x, y) => (x + y) % 6 === 0,
    offline: (x, y) => (x + y) % 6 === 0 || (x - y) % 6 === 0,
  };
  /** @typedef {{ rows: number[], left: number, right: number, top: number, bottom: number, row: number }} Box  `rows` are nodes or groups. */

  /**
   * The rows that are shown: clients and servers, or groups.
   * @param {Stage} stage
   * @param {Run} run
   */
  function rowsOf({ picked }, run) {
    const { heat } = run, total = heat ? heat.labels.length : run.node_of.length, all = Array.from({ length: total }, (_, k) => k);
    if (!picked) return all;
    if (!heat) return all.filter((k) => k >= run.count || picked[k]);
    const within = new Set();
    for (let k = 0; k < run.count; k++) if (picked[k]) within.add(heat.group[k]);
    return all.filter((k) => within.has(k));
  }

  /**
   * @param {Stage} stage
   * @param {Run} run
   * @param {number} width
   * @param {number} height
   * @returns {Box}
   */
  function boxOf(stage, run, width, height) {
    const rows = rowsOf(stage, run), left = run.heat ? 64 : 34, bottom = height - 20;
    return { rows, left, right: width - 8, top: 4, bottom, row: Math.min(80, (bottom - 4) / Math.max(1, rows.length)) };
  }

  /**
   * @param {Stage} stage
   * @param {Box} box
   * @param {number} seconds
   */
  const xOf = ({ view }, box, seconds) => box.left + ((seconds - view.from) / (view.to - view.from)) * (box.right - box.left);

  /**
   * Messages that are drawn in the span of lanes: all of them, or none if there are too many.
   * @param {Stage} stage
   * @param {Run} run
   * @param {Box} box
   */
  function linesOf({ view, picked }, run, box) {
    /** @type {number[]} */
    const lines = [];
    if (!run.messages || run.heat || box.rows.length > 64) return lines;
    Replay.between(run, Canvas.tickOf(run, view.from), Canvas.tickOf(run, view.to), (i) => {
      if (lines.length <= MOST_LINES && (!picked || Replay.touches(run, i, picked))) lines.push(i);
    });
    return lines.length <= MOST_LINES ? lines : [];
  }

  /**
   * The lines of a message: an attempt that was lost ends before its target. One without a row is not drawn.
   * @param {Stage} stage
   * @param {Run} run
   * @param {number} i
   * @param {Box} box
   * @param {Map<number, number>} rowOf
   */
  function segments(stage, run, i, box, rowOf) {
    const { messages } = run, lines = [];
    if (!messages) return [];
    const a = rowOf.get(messages.source[i]), b = rowOf.get(messages.target[i]);
    if (a === undefined && b === undefined) return [];
    const middle = (/** @type {number} */ row) => box.top + (row + 0.5) * box.row - 1;
    // The other end is left out by a restriction: the line points to the edge that is nearer to its number.
    const edge = (/** @type {number} */ node, /** @type {number} */ other) => (node < other ? box.top : box.bottom);
    const from = a === undefined ? edge(messages.source[i], messages.target[i]) : middle(a);
    const to = b === undefined ? edge(messages.target[i], messages.source[i]) : middle(b);
    const { resends, flight, period } = Replay.attempts(run, i);
    for (let attempt = 0; attempt <= Math.min(resends, 20); attempt++) {
      const last = attempt === Math.min(resends, 20), begin = last ? messages.delivered[i] - flight : messages.sent[i] + attempt * period;
      const share = last ? 1 : Replay.lostAt(i, attempt);
      const [x1, x2] = [begin, begin + share * flight].map((tick) => xOf(stage, box, tick * run.tick_s));
      lines.push({ x1, y1: from, x2, y2: from + share * (to - from), lost: !last });
    }
    return lines;
  }

  /** @param {Box} box */
  const positions = (box) => new Map(box.rows.map((node, row) => [node, row]));

  /**
   * Draw the lanes of a run.
   * @param {Stage} stage
   * @param {Run} run
   */
  function draw(stage, run) {
    const scene = /** @type {Scene} */ (stage.scenes.get(run)), { colors, view, chosen, picked } = stage;
    const sheet = Canvas.paper(scene.lanes), { pen, width, height, scale } = sheet;
    const key = [width, height, scale, view.from, view.to, colors.ink, colors.compute, picked ? picked.join("") : ""].join();
    const fresh = scene.cache.get("lanes")?.key !== key, box = boxOf(stage, run, width, height);
    if (fresh) scene.lines = linesOf(stage, run, box);
    Canvas.cached(scene.cache, "lanes", key, sheet, (inner) => {
      const thick = Math.max(0.7, box.row - (box.row > 4 ? 2 : 0));
      if (run.heat) heatRows(stage, run, inner, box); else image(stage, run, inner, box, thick, scale);
      names(stage, run, inner, box, thick);
      inner.save();
      inner.beginPath();
      inner.rect(box.left, 0, box.right - box.left, box.bottom);
      inner.clip();
      lines(stage, run, scene, inner, box);
      inner.restore();
      Canvas.timeAxis(stage, inner, view, box, box.bottom + 4);
    });
    if (chosen && chosen.run === run) {
      const rowOf = positions(box), { client } = chosen;
      const row = client === undefined ? undefined : run.heat && !run.grouped && client < run.count ? rowOf.get(run.heat.group[client]) : rowOf.get(client);
      pen.strokeStyle = colors.ink;
      if (row !== undefined) {
        pen.lineWidth = 2;
        pen.strokeRect(box.left, box.top + row * box.row - 1, box.right - box.left, Math.max(3, box.row));
      }
      pen.lineWidth = 3;
      for (const { x1, y1, x2, y2 } of chosen.message === undefined || run.heat ? [] : segments(stage, run, chosen.message, box, rowOf)) {
        pen.beginPath();
        pen.moveTo(x1, y1);
        pen.lineTo(x2, y2);
        pen.stroke();
      }
    }
    Canvas.playhead(stage, pen, xOf(stage, box, stage.now), box);
  }

  /**
   * @param {Stage} stage
   * @param {Run} run
   * @param {CanvasRenderingContext2D} pen
   * @param {Box} box
   * @param {number} thick
   */
  function names({ colors }, run, pen, box, thick) {
    const step = box.row >= 8 ? 1 : Math.ceil(10 / box.row);
    pen.fillStyle = colors.soft;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    if (run.heat) {
      for (const { name, row } of run.heat.marks) {
        const at = box.rows.indexOf(row);
        if (at >= 0) pen.fillText(name, box.left - 5, box.top + at * box.row + Math.max(6, box.row / 2), box.left - 8);
      }
      return;
    }
    box.rows.forEach((node, row) => {
      if (row % step === 0) pen.fillText(node < run.count ? String(node) : "S", box.left - 5, box.top + row * box.row + thick / 2);
    });
  }

  /**
   * Messages as lines, over an outline that sets them apart.
   * @param {Stage} stage
   * @param {Run} run
   * @param {Scene} scene
   * @param {CanvasRenderingContext2D} pen
   * @param {Box} box
   */
  function lines(stage, run, scene, pen, box) {
    const { colors } = stage, rowOf = positions(box);
    for (const outline of [true, false]) {
      for (const i of scene.lines) {
        for (const { x1, y1, x2, y2, lost } of segments(stage, run, i, box, rowOf)) {
          pen.strokeStyle = outline ? colors.paper : lost ? colors.lost : Graph.messageColor(stage, run.messages ? run.messages.staleness[i] : Replay.NEVER);
          pen.lineWidth = outline ? 2.6 : 1.2;
          pen.beginPath();
          pen.moveTo(x1, y1);
          pen.lineTo(x2, y2);
          pen.stroke();
          if (lost) Graph.cross(pen, x2, y2, 3.5, outline ? 4 : 1.8);
        }
      }
    }
  }

  /**
   * Draw all lanes into one image: thousands of rectangles would take longer than a frame. A pixel has the activity at
   * its middle; of few intervals each has at least one pixel. Activities are hatched, to be told apart in gray.
   * @param {Stage} stage
   * @param {Run} run
   * @param {CanvasRenderingContext2D} pen
   * @param {Box} box
   * @param {number} thick
   * @param {number} scale
   */
  function image({ view, colors, activities }, run, pen, box, thick, scale) {
    const { timeline } = run, width = Math.max(1, Math.round((box.right - box.left) * scale)), height = Math.max(1, Math.round((box.bottom - box.top) * scale));
    const image = pen.createImageData(width, height), pixels = new Uint32Array(image.data.buffer), line = new Uint8Array(width);
    const faint = activities.length, gap = faint + 1, cell = Math.max(1, Math.round(scale)), size = 6 * cell, at = (/** @type {number} */ x) => Math.floor(x / cell) % 6;
    // Six lines of six pixels for each activity, then for none and for a gap.
    const tiles = [...activities.map((name) => [colors[name], HATCHES[name]]), [colors.faint, undefined], [colors.paper, undefined]].map(([color, hatch]) => {
      const plain = Colors.pixel(String(color)), dark = Colors.pixel(Colors.darker(String(color), 0.25));
      return Uint32Array.from({ length: size * size }, (_, i) => (typeof hatch === "function" && thick >= 5 && hatch(at(i % size), at(Math.floor(i / size))) ? dark : plain));
    });
    const start = Canvas.tickOf(run, view.from), end = Canvas.tickOf(run, view.to), rate = width / (end - start || 1), high = Math.max(1, Math.round(thick * scale));
    box.rows.forEach((k, position) => {
      line.fill(faint);
      if (k < run.count && timeline) {
        const first = timeline.first[k], last = timeline.first[k + 1], to = Replay.upTo(timeline.start, end, first, last);
        const from = Math.max(first, Replay.upTo(timeline.start, start, first, last) - 1), least = to - from > 2 * width ? 0 : 1;
        for (let i = from; i < to; i++) {
          const x = (timeline.start[i] - start) * rate, a = Math.max(0, least ? Math.floor(x) : Math.ceil(x - 0.5));
          const b = Math.min(width, Math.max(a + least, Math.ceil((timeline.end[i] - start) * rate - 0.5)));
          if (timeline.end[i] <= start || b <= a) continue;
          line.fill(timeline.activity[i], a, b);
          if (b - a > 4 * scale && b < width) line[b - 1] = gap;  // a gap between equal activities
        }
      }
      const y = Math.round(position * box.row * scale);
      for (let row = y; row < Math.min(height, y + high); row++) {
        const from = row * width, tile = ((row - y) % size) * size;
        for (let x = 0; x < width; x++) pixels[from + x] = tiles[line[x]][tile + (x % size)];
      }
    });
    pen.putImageData(image, Math.round(box.left * scale), Math.round(box.top * scale));
  }

  /**
   * Rows of groups: in a bin of time, the height of a color is the share of its activity.
   * @param {Stage} stage
   * @param {Run} run
   * @param {CanvasRenderingContext2D} pen
   * @param {Box} box
   */
  function heatRows(stage, run, pen, box) {
    const { heat } = run, { view, colors, activities } = stage;
    if (!heat) return;
    const width_s = run.duration_s / heat.bins, thick = Math.max(0.7, box.row - (box.row > 4 ? 1 : 0.3));
    pen.fillStyle = colors.faint;
    box.rows.forEach((_, row) => pen.fillRect(box.left, box.top + row * box.row, box.right - box.left, thick));
    box.rows.forEach((group, row) => {
      for (let bin = Math.floor(view.from / width_s); bin < Math.min(heat.bins, Math.ceil(view.to / width_s)); bin++) {
        const x1 = Math.max(box.left, xOf(stage, box, bin * width_s)), x2 = Math.min(box.right, xOf(stage, box, (bin + 1) * width_s));
        let y = box.top + row * box.row + thick;
        for (let k = 0; k < activities.length; k++) {
          const share = heat.shares[(group * heat.bins + bin) * activities.length + k] / 255;
          if (!share) continue;
          pen.fillStyle = colors[activities[k]];
          pen.fillRect(x1, y - share * thick, x2 - x1 + 0.3, share * thick);
          y -= share * thick;
        }
      }
    });
  }

  /**
   * @param {Stage} stage
   * @param {Run} run
   */
  function boxNow(stage, run) {
    const { lanes } = /** @type {Scene} */ (stage.scenes.get(run));
    return boxOf(stage, run, lanes.clientWidth, lanes.clientHeight);
  }

  /**
   * What is at a point of the picture: a message, a client or a group, or null.
   * @param {Stage} stage
   * @param {Run} run
   * @param {number} px
   * @param {number} py
   * @returns {Chosen | null}
   */
  function at(stage, run, px, py) {
    const box = boxNow(stage, run), rowOf = positions(box), scene = /** @type {Scene} */ (stage.scenes.get(run));
    let best = null, distance = 4;
    for (const i of scene.lines) {
      for (const { x1, y1, x2, y2 } of segments(stage, run, i, box, rowOf)) {
        const dx = x2 - x1, dy = y2 - y1, share = Math.max(0, Math.min(1, ((px - x1) * dx + (py - y1) * dy) / (dx * dx + dy * dy || 1)));
        const away = Math.hypot(x1 + share * dx - px, y1 + share * dy - py);
        if (away < distance) { distance = away; best = { run, message: i }; }
      }
    }
    const row = box.rows[Math.floor((py - box.top) / box.row)];
    return best || (row !== undefined && (!run.heat || run.grouped) ? { run, client: row } : null);
  }

  /**
   * The time and the clients that a rectangle of the picture covers; `picked` is null if it lies within one or two rows.
   * @param {Stage} stage
   * @param {Run} run
   * @param {[number, number, number, number]} rectangle
   */
  function within(stage, run, [x1, y1, x2, y2]) {
    const box = boxNow(stage, run), { view } = stage, seconds = (/** @type {number} */ x) => view.from + ((x - box.left) / (box.right - box.left)) * (view.to - view.from);
    const clamp = (/** @type {number} */ s) => Math.max(view.from, Math.min(view.to, s));
    const span = { from: clamp(seconds(x1)), to: clamp(seconds(x2)) };
    if (y2 - y1 < Math.max(24, 1.5 * box.row)) return { span, picked: null };
    const rows = new Set(box.rows.filter((_, row) => box.top + (row + 1) * box.row > y1 && box.top + row * box.row < y2)), picked = new Uint8Array(run.count);
    for (let k = 0; k < run.count; k++) if (rows.has(run.heat ? run.heat.group[k] : k)) picked[k] = 1;
    return { span, picked: picked.includes(1) ? picked : null };
  }

  return { draw, at, within };
})();
