// The player: draws the state that replay.js computes, and moves the clock.
"use strict";
/**
 * Show runs on the page. `live` starts at their end and follows it. The runs that were shown `before` are replaced:
 * moment, view, menus and the chosen client stay as they are.
 */
async function showRuns({ runs: packed, activities, live = false }, before = null) {
  const $ = (id) => document.getElementById(id);
  const runs = await Promise.all(packed.map(Replay.prepare)), kept = before && before.leave();
  const left = new AbortController();
  const listen = (target, type, action) => target.addEventListener(type, action, { signal: left.signal });
  const duration = Math.max(...runs.map((run) => run.duration_s)) || 1;
  const calm = matchMedia("(prefers-reduced-motion: reduce)"), dark = matchMedia("(prefers-color-scheme: dark)");
  const NEVER = 2 ** 32 - 1, MOST_DOTS = 5000, MOST_LINES = 700;
  const RAMP = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"];  // cividis
  const LIGHT = {
    ink: "#1b1f24", soft: "#59616b", line: "#dcdfe3", faint: "#f4f5f7", paper: "#ffffff",
    compute: "#0072b2", lost: "#d55e00", wait: "#cc79a7", communicate: "#e69f00", offline: "#999999",
  };
  const WORDS = { compute: "computes", lost: "computes in vain (a crash)", wait: "waits", communicate: "communicates", offline: "is offline" };
  let colors = LIGHT, now = 0, playing = false, frame = 0, last = 0, drawn = 0, chosen = null;
  let view = { from: 0, to: duration };

  // ---- numbers in words ------------------------------------------------------------------------------------------
  const units = [[172800, 86400, "d"], [7200, 3600, "h"], [600, 60, "min"], [1, 1, "s"], [1e-3, 1e-3, "ms"], [0, 1e-6, "µs"]];
  const [, unit_s, unit] = units.find(([size]) => duration >= size);
  const trim = (value) => String(Number(value.toPrecision(4)));
  const count = (value) => value.toLocaleString("en");
  const median = (values) => (values.length ? [...values].sort((a, b) => a - b)[values.length >> 1] : NaN);
  const span_s = Math.min(...runs.map((run) => {
    if (!run.timeline) return duration / 60;
    const computing = [], step = Math.max(1, Math.floor(run.timeline.length.length / 2000));
    for (let i = 0; i < run.timeline.length.length; i += step) if (run.timeline.activity[i] === 0) computing.push(run.timeline.length[i]);
    return (median(computing) || NEVER / 60) * run.tick_s;
  }), duration / 20);
  const decimals = Math.max(0, Math.min(9, Math.ceil(-Math.log10(span_s / unit_s)) + 2));
  const clock = (seconds) => `${(seconds / unit_s).toFixed(decimals)} ${unit}`;
  const long = (seconds) => { if (!seconds) return "0 s"; const [, size, name] = units.find(([least]) => seconds >= least); return `${trim(seconds / size)} ${name}`; };
  const bytes = (value) => { const k = Math.min(5, Math.max(0, Math.floor(Math.log10(value || 1) / 3))); return `${trim(value / 1000 ** k)} ${["B", "kB", "MB", "GB", "TB", "PB"][k]}`; };
  const show = (name, value) => (value === null || Number.isNaN(value) ? "–"
    : name.includes("accuracy") ? `${(100 * value).toFixed(2)} %` : name === "bytes_sent" ? bytes(value)
      : Number.isInteger(value) ? count(value) : trim(value));
  const tickOf = (run, seconds) => Math.min(NEVER, Math.max(0, seconds / run.tick_s + 1e-6));
  const nameOf = (run, node) => (node < run.count ? `client ${node}` : run.nodes[run.node_of[node]]);

  function element(name, text, attributes = {}) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  // ---- colors ----------------------------------------------------------------------------------------------------
  function readColors() {
    const style = getComputedStyle(document.documentElement);
    colors = Object.fromEntries(Object.keys(LIGHT).map((name) => [name, style.getPropertyValue(`--${name}`).trim() || LIGHT[name]]));
  }

  const shades = Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (RAMP.length - 1), k = Math.min(RAMP.length - 2, Math.floor(place)), share = place - k;
    const part = (color, at) => parseInt(color.slice(at, at + 2), 16);
    return `rgb(${[1, 3, 5].map((at) => Math.round(part(RAMP[k], at) * (1 - share) + part(RAMP[k + 1], at) * share)).join(",")})`;
  });
  const ramp = (share) => shades[Math.max(0, Math.min(255, Math.round(share * 255)))];

  const largest = (read) => Math.max(1e-12, ...runs.map((run) => {
    const values = read(run);
    return values ? values.reduce((most, value) => (value !== NEVER && value > most ? value : most), 0) : 0;
  }));
  const most = {
    staleness: largest((run) => run.updates && run.updates.staleness), bytes: largest((run) => run.messages && run.messages.bytes),
    epsilon: largest((run) => run.epsilon && run.epsilon.values),
    updates: Math.max(1, ...runs.map((run) => (run.updates ? Math.max(...Array.from({ length: run.count }, (_, k) => run.updates.first[k + 1] - run.updates.first[k])) : 0))),
  };
  /** Whether a table has all of its rows on this page. */
  const whole = (table) => table && table.time.length === table.total;
  const staleShare = (staleness) => Math.log1p(staleness) / Math.log1p(Math.max(1, most.staleness));
  const messageColor = (staleness) => (staleness === NEVER ? colors.soft : ramp(staleShare(staleness)));

  // Accuracies from the lowest twentieth on: a short first rise would leave one color for all the rest.
  const accuracies = runs.flatMap((run) => (run.accuracy ? Array.from(run.accuracy.values.filter(Number.isFinite)) : [])).sort((a, b) => a - b);
  const worst = accuracies[Math.floor(accuracies.length / 20)] ?? 0, best = accuracies[accuracies.length - 1] ?? 1;

  // How clients can be colored: whether a run has it, the value of a client, its place on the ramp, its label.
  const modes = {
    activity: { label: "activity", has: (run) => run.timeline || run.heat },
    accuracy: { label: "accuracy of its model", has: (run) => run.accuracy, of: (run, k, tick) => Replay.sampled(run, run.accuracy, k, tick), share: (v) => (v - worst) / (best - worst || 1), show: (v) => show("accuracy", v), ends: [show("accuracy", worst), show("accuracy", best)] },
    staleness: { label: "staleness of its last update", has: (run) => run.updates, of: (run, k, tick) => { const row = Replay.lastUpdate(run, k, tick); return row < 0 ? NaN : run.updates.staleness[row]; }, share: staleShare, show: count, ends: ["0", count(most.staleness)] },
    updates: { label: "updates so far", has: (run) => whole(run.updates), of: (run, k, tick) => Replay.updatesOf(run, k, tick), share: (v) => v / most.updates, show: count, ends: ["0", count(most.updates)] },
    epsilon: { label: "epsilon spent (before the end an upper bound)", has: (run) => run.epsilon, of: (run, k, tick) => Replay.sampled(run, run.epsilon, k, tick), share: (v) => v / most.epsilon, show: trim, ends: ["0", trim(most.epsilon)] },
  };
  const usable = Object.keys(modes).filter((key) => runs.some((run) => modes[key].has(run)));
  $("color").replaceChildren(...usable.map((key) => new Option(modes[key].label, key)));
  const mode = () => $("color").value;

  const occurring = activities.filter((_, k) => runs.some((run) => (run.timeline ? run.timeline.activity.includes(k)
    : run.heat && run.heat.shares.some((share, i) => share > 0 && i % activities.length === k))));

  function legend() {
    const box = $("legend"), parts = [];
    if (mode() === "activity") {
      for (const name of occurring) {
        const part = element("span"), dot = element("i");
        dot.style.background = colors[name];
        part.append(dot, WORDS[name]);
        parts.push(part);
      }
    } else if (usable.length) {
      const part = element("span"), [low, high] = modes[mode()].ends, bar = element("i", undefined, { class: "ramp" });
      bar.style.background = `linear-gradient(90deg, ${RAMP.join(",")})`;
      part.append(`${low} `, bar, ` ${high}`);
      parts.push(part);
    }
    if (runs.some((run) => run.messages && run.messages.total && run.updates)) {
      const part = element("span"), bar = element("i", undefined, { class: "ramp" });
      bar.style.background = `linear-gradient(90deg, ${RAMP.join(",")})`;
      part.append("messages by staleness: 0 ", bar, ` ${count(most.staleness)}`);
      parts.push(part);
    }
    box.replaceChildren(...parts);
  }

  // ---- canvases --------------------------------------------------------------------------------------------------
  const sizes = new Map();  // to ask for a size makes the browser lay out the page

  function paper(canvas) {
    if (!sizes.has(canvas)) sizes.set(canvas, [canvas.clientWidth, canvas.clientHeight]);
    const [width, height] = sizes.get(canvas), scale = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = '12px system-ui, "DejaVu Sans", sans-serif';
    return { pen, width, height, scale };
  }

  /** Draw once into a canvas of its own, and again only if the key changes. */
  function cached(run, name, key, { width, height, scale, pen }, draw) {
    run.cache = run.cache || {};
    const entry = run.cache[name];
    if (!entry || entry.key !== key) {
      const canvas = entry ? entry.canvas : document.createElement("canvas");
      canvas.width = Math.max(1, Math.round(width * scale));
      canvas.height = Math.max(1, Math.round(height * scale));
      const inner = canvas.getContext("2d");
      inner.scale(scale, scale);
      inner.font = pen.font;
      draw(inner);
      run.cache[name] = { key, canvas };
    }
    pen.drawImage(run.cache[name].canvas, 0, 0, width, height);
  }

  function steps(low, high, wanted) {
    const rough = (high - low) / wanted || 1, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999), values = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && values.length < 50; i++) values.push(i * step || 0);
    return values;
  }

  function timeAxis(pen, from, to, left, right, y) {
    pen.fillStyle = colors.soft;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const values = steps(from / unit_s, to / unit_s, Math.max(2, (right - left) / 90));
    const step = values.length > 1 ? values[1] - values[0] : 1, whole = (d) => Math.abs(step * 10 ** d - Math.round(step * 10 ** d)) < 1e-6 * step * 10 ** d;
    let digits = 0;
    while (digits < 12 && !whole(digits)) digits++;
    for (const value of values) {
      const x = left + ((value * unit_s - from) / (to - from)) * (right - left);
      const text = `${value.toFixed(digits)}${value === values[values.length - 1] ? ` ${unit}` : ""}`;
      pen.fillText(text, Math.min(x, right - pen.measureText(text).width / 2 + 8), y);
    }
  }

  // ---- the graph -------------------------------------------------------------------------------------------------
  function placesIn(run, width, height) {
    const key = `${width}x${height}`;
    if (run.placed && run.placed.key === key) return run.placed;
    const nodes = run.nodes.length, radius = Math.max(2.5, Math.min(15, (Math.min(width, height) * 0.9) / Math.max(8, nodes) * 1.1 + (nodes > 200 ? 2 : 0)));
    const room = radius + 12, size = Math.min(width, height) / 2 - room;
    const stretch = Math.min(1.5, (width / 2 - room) / size);
    const x = new Float32Array(nodes), y = new Float32Array(nodes);
    for (let k = 0; k < nodes; k++) {
      x[k] = width / 2 + run.places[2 * k] * size * stretch;
      y[k] = height / 2 + run.places[2 * k + 1] * size;
    }
    run.placed = { key, x, y, radius };
    return run.placed;
  }

  function hull(points) {
    const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const half = (list) => list.reduce((chain, p) => {
      while (chain.length > 1) {
        const [a, b] = chain.slice(-2);
        if ((b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]) > 0) break;
        chain.pop();
      }
      return [...chain, p];
    }, []);
    return [...half(sorted).slice(0, -1), ...half(sorted.reverse()).slice(0, -1)];
  }

  function messagePlace(run, i, tick, { x, y, radius }) {
    const a = run.node_of[run.messages.source[i]], b = run.node_of[run.messages.target[i]];
    if (a === b) return null;
    const share = Math.min(1, (tick - run.messages.sent[i]) / Math.max(1, run.messages.length[i]));
    const dx = x[b] - x[a], dy = y[b] - y[a], length = Math.hypot(dx, dy) || 1;
    const aside = Math.min(4, radius / 2), along = (radius + share * (length - 2 * radius)) / length;
    return [x[a] + dx * along - (dy / length) * aside, y[a] + dy * along + (dx / length) * aside];
  }

  const messageSize = (run, i) => 2.2 + 3 * Math.sqrt(run.messages.bytes[i] / most.bytes);

  /** The activity of a node: of its client, or the most frequent one of its group. */
  function activityOf(run, node, tick) {
    if (!run.heat) return run.grouped ? -1 : Replay.activityAt(run, node, tick);
    if (!run.grouped && run.timeline) return Replay.activityAt(run, node, tick);
    if (!run.grouped) return -1;
    return heatAt(run, node, Math.floor((tick * run.tick_s) / (run.duration_s / run.heat.bins)))[0];
  }

  function heatAt(run, row, bin) {
    let best = -1, share = 0;
    for (let k = 0; k < activities.length; k++) {
      const value = run.heat.shares[(row * run.heat.bins + Math.min(run.heat.bins - 1, bin)) * activities.length + k] / 255;
      if (value > share) { best = k; share = value; }
    }
    return [best, share];
  }

  function drawGraph(run, canvas) {
    const sheet = paper(canvas), { pen, width, height } = sheet, tick = tickOf(run, now);
    const placed = placesIn(run, width, height), { x, y, radius } = placed, links = run.links.length / 2;
    const cuts = run.partitions.filter(({ start, end }) => start <= tick && tick < end);
    const isCut = (a, b) => cuts.some(({ sides }) => sides[a] !== sides[b]);
    cached(run, "links", [width, height, sheet.scale, colors.line, ...cuts.map(({ start }) => start)].join(), sheet, (inner) => {
      for (const region of run.regions) {
        const points = hull(region.nodes.map((node) => [x[node], y[node]]));
        if (!points.length) continue;
        inner.beginPath();
        points.forEach(([px, py], i) => (i ? inner.lineTo(px, py) : inner.moveTo(px, py)));
        inner.closePath();
        inner.fillStyle = inner.strokeStyle = colors.faint;
        inner.lineJoin = "round";
        inner.lineWidth = 2 * radius + 16;
        inner.stroke();
        inner.fill();
        inner.fillStyle = colors.soft;
        inner.textAlign = "center";
        const top = Math.min(...points.map((point) => point[1]));
        inner.fillText(region.name, points.reduce((sum, point) => sum + point[0], 0) / points.length, Math.max(12, top - radius - 10));
      }
      inner.strokeStyle = colors.line;
      inner.lineWidth = links > 2000 ? 0.4 : 1.2;
      for (const faded of cuts.length ? [false, true] : [false]) {  // a partition fades the links between its sides
        inner.setLineDash(faded ? [1, 7] : []);
        inner.beginPath();
        for (let i = 0; i < links; i++) {
          const a = run.links[2 * i], b = run.links[2 * i + 1];
          if (isCut(a, b) !== faded) continue;
          inner.moveTo(x[a], y[a]);
          inner.lineTo(x[b], y[b]);
        }
        inner.stroke();
      }
      inner.setLineDash([]);
    });
    const over = now > run.duration_s;
    run.together = run.grouped || over ? [] : Replay.collectives(run, tick, activities.indexOf("communicate"));
    for (const each of run.together) ring(pen, each, tick, placed);
    // Messages that were not recorded: links between clients that both communicate.
    if (run.timeline && !run.grouped && links <= 4000 && !run.messages) {
      const talk = activities.indexOf("communicate");
      pen.strokeStyle = colors.communicate;
      pen.lineWidth = 3;
      pen.beginPath();
      for (let i = 0; i < links; i++) {
        const a = run.links[2 * i], b = run.links[2 * i + 1];
        if (a < run.count && b < run.count && Replay.activityAt(run, a, tick) === talk && Replay.activityAt(run, b, tick) === talk) {
          pen.moveTo(x[a], y[a]);
          pen.lineTo(x[b], y[b]);
        }
      }
      pen.stroke();
    }
    const flying = [];
    if (!over) Replay.between(run, tick, tick, (i) => flying.push(i));
    const every = Math.ceil(flying.length / MOST_DOTS);
    const coloring = modes[mode()];
    const clients = run.grouped ? null : coloring;
    for (let node = 0; node < run.nodes.length; node++) {
      const isClient = run.grouped ? node < run.nodes.length - servers(run) : node < run.count;
      pen.beginPath();
      if (isClient) pen.arc(x[node], y[node], radius, 0, 2 * Math.PI);
      else pen.rect(x[node] - radius, y[node] - radius, 2 * radius, 2 * radius);
      const activity = isClient ? activityOf(run, node, tick) : -1, absent = activities[activity] === "offline";
      let fill = colors.faint;
      if (isClient && mode() === "activity" && activity >= 0) fill = colors[activities[activity]];
      else if (isClient && clients && clients.of && clients.has(run)) {
        const value = clients.of(run, node, tick);
        if (Number.isFinite(value)) fill = ramp(clients.share(value));
      } else if (isClient && run.grouped && coloring && coloring.of && coloring.has(run)) {
        const value = groupMean(run, node, tick, coloring);
        if (Number.isFinite(value)) fill = ramp(coloring.share(value));
      }
      pen.globalAlpha = absent ? 0.35 : 1;
      pen.fillStyle = fill;
      pen.fill();
      pen.globalAlpha = 1;
      pen.lineWidth = chosen && chosen.run === run && chosen.client === node ? 3.5 : 1;
      pen.strokeStyle = pen.lineWidth > 2 ? colors.ink : colors.soft;
      pen.setLineDash(absent ? [2, 3] : []);
      pen.stroke();
      if (isClient && !run.grouped && run.slowness[node] >= 2) {
        pen.setLineDash([4, 3]);
        pen.lineWidth = 1.6;
        pen.strokeStyle = colors.ink;
        pen.beginPath();
        pen.arc(x[node], y[node], radius + 4, 0, 2 * Math.PI);
        pen.stroke();
      }
      pen.setLineDash([]);
      if (radius >= 8 && !run.grouped) {
        pen.textAlign = "center";
        pen.textBaseline = "middle";
        pen.fillStyle = inkOn(fill);
        pen.fillText(isClient ? String(node) : run.nodes[node] === "server" ? "S" : `S${run.nodes[node].slice(7)}`, x[node], y[node] + 0.5);
      }
    }
    for (let k = 0; k < flying.length; k += every) dot(run, pen, flying[k], tick, placed);
    if (chosen && chosen.run === run && chosen.message !== undefined) {
      const at = messagePlace(run, chosen.message, tick, placed);
      if (at && flying.includes(chosen.message)) {
        pen.beginPath();
        pen.arc(at[0], at[1], messageSize(run, chosen.message) + 4, 0, 2 * Math.PI);
        pen.strokeStyle = colors.ink;
        pen.lineWidth = 2;
        pen.stroke();
      }
    }
    run.flying = flying;
  }

  /** Draw a collective: a ring through its clients, and dots that go round as it proceeds. */
  function ring(pen, { start, end, clients }, tick, { x, y }) {
    const turns = ((3 * (tick - start)) / Math.max(1, end - start)) % 1, next = (k) => clients[(k + 1) % clients.length];
    pen.strokeStyle = colors.communicate;
    pen.lineWidth = 3;
    pen.beginPath();
    clients.forEach((client, k) => (k ? pen.lineTo(x[client], y[client]) : pen.moveTo(x[client], y[client])));
    pen.closePath();
    pen.stroke();
    pen.fillStyle = colors.ink;
    pen.strokeStyle = colors.paper;
    pen.lineWidth = 0.8;
    clients.forEach((client, k) => {
      pen.beginPath();
      pen.arc(x[client] + turns * (x[next(k)] - x[client]), y[client] + turns * (y[next(k)] - y[client]), 3.5, 0, 2 * Math.PI);
      pen.fill();
      pen.stroke();
    });
  }

  const servers = (run) => run.node_of.length - run.count;

  function groupMean(run, node, tick, coloring) {
    if (!run.members) {
      run.members = run.nodes.map(() => []);
      for (let k = 0; k < run.count; k++) run.members[run.node_of[k]].push(k);
    }
    const values = run.members[node].map((k) => coloring.of(run, k, tick)).filter(Number.isFinite);
    return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : NaN;
  }

  function inkOn(color) {
    const channels = color.startsWith("#") ? [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)) : color.match(/\d+/g).map(Number);
    return 0.3 * channels[0] + 0.59 * channels[1] + 0.11 * channels[2] > 140 ? "#000000" : "#ffffff";
  }

  function dot(run, pen, i, tick, placed) {
    const at = messagePlace(run, i, tick, placed);
    if (!at) return;
    pen.beginPath();
    pen.arc(at[0], at[1], messageSize(run, i), 0, 2 * Math.PI);
    pen.fillStyle = messageColor(run.messages.staleness[i]);
    pen.fill();
    pen.lineWidth = run.messages.resends[i] ? 2 : 0.8;
    pen.strokeStyle = run.messages.resends[i] ? colors.lost : colors.paper;
    pen.stroke();
  }

  // ---- lanes -----------------------------------------------------------------------------------------------------
  function lanesBox(run, width, height) {
    const rows = run.heat ? run.heat.labels.length : run.node_of.length, left = run.heat ? 8 : 30, bottom = height - 20;
    return { rows, left, right: width - 8, top: 4, bottom, row: (bottom - 4) / rows };
  }

  const laneX = (box, seconds) => box.left + ((seconds - view.from) / (view.to - view.from)) * (box.right - box.left);

  function linesOf(run) {
    const lines = [];
    if (!run.messages || run.heat || run.node_of.length > 64) return lines;
    Replay.between(run, tickOf(run, view.from), tickOf(run, view.to), (i) => lines.push(i));
    return lines.length <= MOST_LINES ? lines : [];
  }

  function drawLanes(run, canvas) {
    const sheet = paper(canvas), { pen, width, height, scale } = sheet, box = lanesBox(run, width, height);
    cached(run, "lanes", [width, height, scale, view.from, view.to, colors.ink, colors.compute].join(), sheet, (inner) => {
      const thick = Math.max(0.7, box.row - (box.row > 4 ? 2 : 0));
      if (run.heat) heatRows(run, inner, box);
      else laneImage(run, inner, box, thick, scale);
      for (let k = 0; k < (run.heat ? 0 : box.rows); k++) {
        const y = box.top + k * box.row;
        if (box.row >= 8 || k % Math.ceil(10 / box.row) === 0) {
          inner.fillStyle = colors.soft;
          inner.textAlign = "right";
          inner.textBaseline = "middle";
          inner.fillText(k < run.count ? String(k) : "S", box.left - 5, y + thick / 2);
        }
      }
      inner.save();
      inner.beginPath();
      inner.rect(box.left, 0, box.right - box.left, box.bottom);
      inner.clip();
      run.lines = linesOf(run);
      for (const outline of [true, false]) {
        for (const i of run.lines) {
          const [x1, y1, x2, y2] = lineOf(run, i, box);
          inner.strokeStyle = outline ? colors.paper : run.messages.resends[i] ? colors.lost : messageColor(run.messages.staleness[i]);
          inner.lineWidth = outline ? 2.6 : 1.2;
          if (outline && run.lines.length > 1000) continue;
          inner.beginPath();
          inner.moveTo(x1, y1);
          inner.lineTo(x2, y2);
          inner.stroke();
        }
      }
      inner.restore();
      timeAxis(inner, view.from, view.to, box.left, box.right, box.bottom + 4);
    });
    if (chosen && chosen.run === run && chosen.client !== undefined && !run.heat) {
      pen.strokeStyle = colors.ink;
      pen.lineWidth = 2;
      pen.strokeRect(box.left, box.top + chosen.client * box.row - 1, box.right - box.left, Math.max(3, box.row));
    }
    if (chosen && chosen.run === run && chosen.message !== undefined && !run.heat) {
      const [x1, y1, x2, y2] = lineOf(run, chosen.message, box);
      pen.strokeStyle = colors.ink;
      pen.lineWidth = 3;
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.lineTo(x2, y2);
      pen.stroke();
    }
    playhead(pen, laneX(box, now), box);
  }

  function lineOf(run, i, box) {
    const middle = (node) => box.top + (node + 0.5) * box.row - 1, { source, target, sent, delivered } = run.messages;
    return [laneX(box, sent[i] * run.tick_s), middle(source[i]), laneX(box, delivered[i] * run.tick_s), middle(target[i])];
  }

  function playhead(pen, x, { left, right, top, bottom }) {
    if (x < left - 1 || x > right + 1) return;
    pen.strokeStyle = colors.ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x, top - 4);
    pen.lineTo(x, bottom + 2);
    pen.stroke();
  }

  /** A color as a pixel of an image. */
  const pixel = (color) => [1, 3, 5].reduce((sum, at, k) => sum + parseInt(color.slice(at, at + 2), 16) * 2 ** (8 * k), 255 * 2 ** 24);

  /**
   * Draw all lanes into one image: thousands of rectangles would take longer than a frame. A pixel has the activity at
   * its middle; of few intervals each has at least one pixel.
   */
  function laneImage(run, pen, box, thick, scale) {
    const { timeline } = run, width = Math.max(1, Math.round((box.right - box.left) * scale)), height = Math.max(1, Math.round((box.bottom - box.top) * scale));
    const image = pen.createImageData(width, height), pixels = new Uint32Array(image.data.buffer), line = new Uint32Array(width);
    const inks = activities.map((name) => pixel(colors[name])), faint = pixel(colors.faint), paper = pixel(colors.paper);
    const start = tickOf(run, view.from), end = tickOf(run, view.to), rate = width / (end - start || 1), high = Math.max(1, Math.round(thick * scale));
    for (let k = 0; k < box.rows; k++) {
      line.fill(faint);
      if (k < run.count && timeline) {
        const first = timeline.first[k], last = timeline.first[k + 1], to = Replay.upTo(timeline.start, end, first, last);
        const from = Math.max(first, Replay.upTo(timeline.start, start, first, last) - 1), least = to - from > 2 * width ? 0 : 1;
        for (let i = from; i < to; i++) {
          const x = (timeline.start[i] - start) * rate, a = Math.max(0, least ? Math.floor(x) : Math.ceil(x - 0.5));
          const b = Math.min(width, Math.max(a + least, Math.ceil((timeline.end[i] - start) * rate - 0.5)));
          if (timeline.end[i] <= start || b <= a) continue;
          line.fill(inks[timeline.activity[i]], a, b);
          if (b - a > 4 * scale && b < width) line[b - 1] = paper;  // a gap between equal activities
        }
      }
      const y = Math.round(k * box.row * scale);
      for (let row = y; row < Math.min(height, y + high); row++) pixels.set(line, row * width);
    }
    pen.putImageData(image, Math.round(box.left * scale), Math.round(box.top * scale));
  }

  function heatRows(run, pen, box) {
    const { bins, labels } = run.heat, width_s = run.duration_s / bins;
    labels.forEach((_, row) => {
      for (let bin = Math.floor(view.from / width_s); bin < Math.min(bins, Math.ceil(view.to / width_s)); bin++) {
        const [activity, share] = heatAt(run, row, bin);
        if (activity < 0) continue;
        const x1 = Math.max(box.left, laneX(box, bin * width_s)), x2 = Math.min(box.right, laneX(box, (bin + 1) * width_s));
        pen.globalAlpha = 0.25 + 0.75 * share;
        pen.fillStyle = colors[activities[activity]];
        pen.fillRect(x1, box.top + row * box.row, x2 - x1 + 0.3, Math.max(0.7, box.row - 0.5));
      }
    });
    pen.globalAlpha = 1;
  }

  // ---- curves ----------------------------------------------------------------------------------------------------
  const columns = {};
  for (const run of runs) for (const [name, { label }] of Object.entries(run.metrics.columns)) columns[name] = label;
  const order = ["test_accuracy", "test_loss", "train_loss", "consensus_distance", "bytes_sent", "epsilon"];
  const names = Object.keys(columns).sort((a, b) => (order.indexOf(a) + 1 || 99) - (order.indexOf(b) + 1 || 99));
  $("measure").replaceChildren(...names.map((name) => new Option(columns[name], name)));

  const curveBox = (width, height) => ({ left: 58, right: width - 8, top: 6, bottom: height - 20 });

  function drawCurve() {
    const { pen, width, height } = paper($("curve")), box = curveBox(width, height), name = $("measure").value;
    const shown = runs.map((run) => run.metrics.columns[name]), values = shown.flatMap((column) => (column ? column.values : [])).filter((v) => v !== null);
    const px = (seconds) => box.left + (seconds / duration) * (box.right - box.left);
    pen.fillStyle = colors.faint;
    pen.fillRect(px(view.from), box.top, Math.max(2, px(view.to) - px(view.from)), box.bottom - box.top);
    timeAxis(pen, 0, duration, box.left, box.right, box.bottom + 4);
    if (values.length) {
      let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
      if (name === "test_accuracy") {  // not from 0 if all but a short first rise takes place above
        const usual = [...values].sort((a, b) => a - b)[Math.floor(values.length / 20)];
        low = usual >= 0.5 ? Math.floor((usual - 0.1) * 10) / 10 : 0;
      } else if (low > 0 && low < 0.4 * high) low = 0;
      if (high <= low) { high += 0.5; low -= 0.5; }
      const py = (value) => box.bottom - ((Math.max(low, value) - low) / (high - low)) * (box.bottom - box.top);
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      for (const value of steps(low, high, 4)) {
        pen.fillStyle = colors.soft;
        pen.fillText(name.includes("accuracy") ? `${trim(100 * value)} %` : name === "bytes_sent" ? bytes(value) : trim(value), box.left - 6, py(value));
        pen.strokeStyle = colors.line;
        pen.lineWidth = 1;
        pen.beginPath();
        pen.moveTo(box.left, py(value));
        pen.lineTo(box.right, py(value));
        pen.stroke();
      }
      shown.forEach((column, position) => {
        if (!column) return;
        const run = runs[position];
        pen.strokeStyle = lineColor(run);
        pen.lineWidth = 2;
        pen.setLineDash(position ? [8, 4] : []);
        pen.beginPath();
        let begun = false;
        column.values.forEach((value, row) => {
          if (value === null) { begun = false; return; }
          const x = px(run.metrics.time_s[row]), y = py(value);
          if (begun) pen.lineTo(x, y); else pen.moveTo(x, y);
          begun = true;
        });
        pen.stroke();
        pen.setLineDash([]);
        const row = Replay.upTo(run.evaluations, tickOf(run, now)) - 1, value = row < 0 ? null : column.values[row];
        if (value === null) return;
        pen.beginPath();
        pen.arc(px(run.metrics.time_s[row]), py(value), 4, 0, 2 * Math.PI);
        pen.fillStyle = lineColor(run);
        pen.fill();
      });
      if (runs.length > 1) {
        pen.textAlign = "right";
        pen.textBaseline = "alphabetic";
        runs.forEach((run, position) => {
          const y = box.bottom - 10 - 16 * (runs.length - 1 - position), x = box.right - 8;
          pen.fillStyle = colors.ink;
          pen.fillText(run.title, x, y);
          pen.strokeStyle = lineColor(run);
          pen.lineWidth = 2.5;
          pen.setLineDash(position ? [6, 3] : []);
          pen.beginPath();
          pen.moveTo(x - pen.measureText(run.title).width - 32, y - 4);
          pen.lineTo(x - pen.measureText(run.title).width - 6, y - 4);
          pen.stroke();
          pen.setLineDash([]);
        });
      }
    }
    playhead(pen, px(now), box);
  }

  /** The color of a run's algorithm, paler on a dark page. */
  function lineColor(run) {
    if (inkOn(colors.paper) === "#000000") return run.color;
    const part = (at) => { const value = parseInt(run.color.slice(at, at + 2), 16); return Math.round(value + (255 - value) * 0.35); };
    return `rgb(${part(1)},${part(3)},${part(5)})`;
  }

  // ---- words -----------------------------------------------------------------------------------------------------
  const articles = [...document.querySelectorAll(".run")];
  document.querySelectorAll(".swatch").forEach((swatch) => { swatch.style.background = swatch.dataset.color; });

  function say(run, article) {
    const tick = tickOf(run, now), parts = [], row = Replay.upTo(run.evaluations, tick) - 1;
    if (now > run.duration_s) parts.push(`ended at ${clock(run.duration_s)}`);
    if (run.metrics.columns.updates && !whole(run.updates)) parts.push(`${show("updates", row < 0 ? 0 : run.metrics.columns.updates.values[row])} updates`);
    if (whole(run.updates)) parts.push(`${count(Replay.upTo(run.updates.time, tick))} updates`);
    if (run.messages && run.messages.total) parts.push(`${count(run.flying.length)} ${run.messages.sent.length < run.messages.total ? "of the shown messages " : ""}in flight`);
    for (const { clients } of run.together) parts.push(`a collective of ${count(clients.length)} clients`);
    if (run.partitions.some(({ start, end }) => start <= tick && tick < end)) parts.push("network partition");
    if (run.timeline && now <= run.duration_s) {
      const sums = activities.map(() => 0);
      for (let k = 0; k < run.count; k++) { const activity = Replay.activityAt(run, k, tick); if (activity >= 0) sums[activity]++; }
      activities.forEach((name, k) => { if (sums[k]) parts.push(`${count(sums[k])} ${{ compute: "compute", lost: "compute in vain", wait: "wait", communicate: "communicate", offline: "offline" }[name]}`); });
    }
    const accuracy = run.metrics.columns.test_accuracy || run.metrics.columns.test_loss;
    if (accuracy && row >= 0) parts.push(`${accuracy.label} ${show(run.metrics.columns.test_accuracy ? "accuracy" : "", accuracy.values[row])}`);
    article.querySelector(".now").textContent = parts.join(" · ");
  }

  function details() {
    const box = $("details");
    box.hidden = !chosen;
    if (!chosen) return;
    const { run, client, message } = chosen, lines = [], tick = tickOf(run, now);
    if (message !== undefined) {
      const m = run.messages, seconds = (value) => clock(value * run.tick_s);
      lines.push(element("h3", `Message from ${nameOf(run, m.source[message])} to ${nameOf(run, m.target[message])} (${run.title})`));
      lines.push(element("p", `Sent at ${seconds(m.sent[message])}, delivered at ${seconds(m.delivered[message])}, after ${long(m.length[message] * run.tick_s)}. ${bytes(m.bytes[message])}.${m.resends[message] ? ` It was lost and sent again: ${m.resends[message]} ×.` : ""}`));
      const at = m.target[message] < run.count ? m.target[message] : m.source[message];
      lines.push(element("p", m.used[message] === NEVER ? `Client ${at} made no later update.` : `The next update of client ${at} is at ${seconds(m.used[message])}, with staleness ${count(m.staleness[message])}.`));
    } else if (run.grouped) {
      lines.push(element("h3", `${run.nodes[client]} (${run.title})`));
    } else if (client >= run.count) {
      lines.push(element("h3", `${run.nodes[client]} (${run.title})`));
    } else {
      lines.push(element("h3", `Client ${client} (${run.title})`));
      const activity = Replay.activityAt(run, client, tick), row = Replay.intervalAt(run, client, tick), words = [];
      if (activity >= 0) words.push(`It ${WORDS[activities[activity]]} from ${clock(run.timeline.start[row] * run.tick_s)} to ${clock(run.timeline.end[row] * run.tick_s)}`);
      const shared = run.together.find(({ clients }) => clients.includes(client));
      if (shared) words[0] += `, together with ${count(shared.clients.length - 1)} other clients`;
      if (whole(run.updates)) words.push(`${count(Replay.updatesOf(run, client, tick))} updates so far`);
      for (const key of ["accuracy", "epsilon"]) if (run[key]) words.push(`${modes[key].label} ${modes[key].show(modes[key].of(run, client, tick))}`);
      lines.push(element("p", words.join("; ")));
      const of = (name) => run.clients[name] && run.clients[name][client];
      if (run.clients.updates) {
        const shares = ["compute", "communicate", "wait", "offline"].map((name) => `${name} ${long(of(`${name}_s`))}`);
        const ledger = Number.isFinite(of("epsilon")) ? ` Certified at the end: epsilon ${trim(of("epsilon"))} at delta ${trim(of("delta"))}.` : " No certified epsilon.";
        lines.push(element("p", `Whole run: ${count(of("samples"))} examples, ${count(of("updates"))} updates, ${bytes(of("bytes"))} sent; ${shares.join(", ")}.${ledger}${run.slowness[client] >= 2 ? ` It needs ${trim(run.slowness[client])} times the median time per update.` : ""}`));
      }
      if (run.updates && run.updates.first[client + 1] > run.updates.first[client]) lines.push(...histogram(run, client));
    }
    const close = element("button", "×", { type: "button", class: "close", "aria-label": "Close" });
    close.addEventListener("click", () => choose(null));
    box.replaceChildren(close, ...lines);
  }

  function histogram(run, client) {
    const values = [];
    for (let i = run.updates.first[client]; i < run.updates.first[client + 1]; i++) values.push(run.updates.staleness[run.updates.rows[i]]);
    const high = values.reduce((a, b) => Math.max(a, b)), width = Math.max(1, Math.ceil((high + 1) / 50)), bars = new Array(Math.floor(high / width) + 1).fill(0);
    for (const value of values) bars[Math.floor(value / width)]++;
    const top = Math.max(...bars), box = element("div", undefined, { class: "bars", role: "img", "aria-label": `Histogram of staleness from 0 to ${high}` });
    for (const bar of bars) {
      const part = element("i");
      part.style.height = `${(100 * bar) / top}%`;
      part.style.opacity = bar ? 1 : 0;
      box.append(part);
    }
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    return [box, element("p", `Staleness of its updates: 0 to ${count(high)}, mean ${trim(mean)}.`)];
  }

  function moment() {
    if (!$("moment").open) return;
    $("moment").querySelector(".scroll").replaceChildren(...runs.map((run) => {
      const tick = tickOf(run, now), table = element("table"), head = element("tr"), rows = Math.min(run.count, 200);
      table.append(element("caption", `${run.title} at ${clock(now)}${rows < run.count ? `: the first ${rows} of ${count(run.count)} clients` : ""}`), head);
      const shown = usable.filter((key) => modes[key].has(run));
      head.append(element("th", "client"), ...shown.map((key) => element("th", modes[key].label)));
      for (let k = 0; k < rows; k++) {
        const row = element("tr"), activity = Replay.activityAt(run, k, tick);
        row.append(element("td", String(k)), ...shown.map((key) => {
          if (key === "activity") return element("td", activity < 0 ? "–" : WORDS[activities[activity]]);
          const value = modes[key].of(run, k, tick);
          return element("td", Number.isFinite(value) ? modes[key].show(value) : "–");
        }));
        table.append(row);
      }
      return table;
    }));
  }

  // ---- the clock -------------------------------------------------------------------------------------------------
  const rates = [];
  for (let power = Math.floor(Math.log10(duration)) - 7; power <= Math.log10(duration); power++) {
    for (const m of [1, 2, 5]) rates.push(Number(`${m}e${power}`));
  }
  $("speed").replaceChildren(...rates.filter((rate) => rate <= duration / 2).map((rate) => new Option(`${long(rate)} per second`, rate)));
  $("speed").value = rates.reduce((best, rate) => (Math.abs(Math.log(rate / (3 * span_s))) < Math.abs(Math.log(best / (3 * span_s))) ? rate : best));

  function showAll() {
    const length = view.to - view.from;
    if (now < view.from || now > view.to) {
      const from = Math.max(0, Math.min(duration - length, now - 0.1 * length));
      view = { from, to: from + length };
    }
    runs.forEach((run, k) => {
      drawGraph(run, articles[k].querySelector(".graph"));
      drawLanes(run, articles[k].querySelector(".lanes"));
      say(run, articles[k]);
    });
    drawCurve();
    $("clock").textContent = clock(now);
    $("scrub").value = String(Math.round((now / duration) * 100000));
    $("scrub").setAttribute("aria-valuetext", clock(now));
    if (!playing) { details(); moment(); }
  }

  function ask() {
    if (!frame) frame = requestAnimationFrame(step);
  }

  function step(time) {
    frame = 0;
    if (playing) {
      const wait = calm.matches ? 500 : 0;  // reduced motion: two pictures per second
      if (time - drawn >= wait) {
        now = Math.min(duration, now + ((time - (last || time)) / 1000) * Number($("speed").value));
        last = drawn = time;
        if (now >= duration) setPlaying(false);
        showAll();
      }
      if (playing) ask();
    } else {
      showAll();
    }
  }

  function setPlaying(value) {
    playing = value;
    last = 0;
    $("play").textContent = playing ? "⏸ pause" : "▶ play";
    $("play").setAttribute("aria-label", playing ? "Pause" : "Play");
    if (playing && now >= duration) now = 0;
    ask();
  }

  function seek(seconds) {
    now = Math.max(0, Math.min(duration, seconds));
    ask();
  }

  /** Go to the next (1) or last (-1) moment at which a run has a value of `key`: events or evaluations. */
  function jump(key, direction) {
    const times = runs.map((run) => {
      // A tick more or less: now is a float, and may lie just before its own event.
      const tick = Replay.neighbor(run[key], Math.round(now / run.tick_s), direction);
      return tick === null ? null : tick * run.tick_s;
    }).filter((time) => time !== null && (direction > 0 ? time > now : time < now));
    if (times.length) seek(direction > 0 ? Math.min(...times) : Math.max(...times));
  }

  function zoom(factor) {
    const length = Math.min(duration, Math.max(duration / 1e6, (view.to - view.from) * factor));
    const share = Math.min(1, Math.max(0, (now - view.from) / (view.to - view.from)));
    const from = Math.max(0, Math.min(duration - length, now - share * length));
    view = { from, to: from + length };
    ask();
  }

  const widest = () => { view = { from: 0, to: duration }; ask(); };
  const actions = {
    start: () => seek(0), back: () => { setPlaying(false); jump("events", -1); }, play: () => setPlaying(!playing),
    next: () => { setPlaying(false); jump("events", 1); }, evaluation: () => jump("evaluations", 1),
    closer: () => zoom(0.5), wider: () => zoom(2), whole: widest,
  };
  for (const [id, action] of Object.entries(actions)) listen($(id), "click", action);
  listen($("scrub"), "input", () => seek((Number($("scrub").value) / 100000) * duration));
  listen($("color"), "change", () => { legend(); ask(); });
  listen($("measure"), "change", ask);
  listen($("moment"), "toggle", ask);

  listen(document, "keydown", (event) => {
    const { tagName } = event.target, { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || tagName === "SELECT") return;
    if (key === " " && (tagName === "BUTTON" || tagName === "SUMMARY")) return;
    const run = (chosen && chosen.run) || runs[0];
    const pick = (by) => { choose({ run, client: Math.max(0, Math.min(run.nodes.length - 1, (chosen && chosen.client !== undefined ? chosen.client : -by) + by)) }); };
    const act = {
      " ": actions.play, ArrowRight: actions.next, ArrowLeft: actions.back, Home: () => seek(0), End: () => seek(duration),
      e: actions.evaluation, E: actions.evaluation, "+": actions.closer, "-": actions.wider,
      Escape: () => { choose(null); widest(); }, ArrowDown: chosen && (() => pick(1)), ArrowUp: chosen && (() => pick(-1)), c: () => pick(1), C: () => pick(1),
    }[key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  // ---- pointer ---------------------------------------------------------------------------------------------------
  function choose(value) {
    chosen = value;
    details();
    ask();
  }

  const place = (event, canvas) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };

  runs.forEach((run, k) => {
    const graph = articles[k].querySelector(".graph"), lanes = articles[k].querySelector(".lanes");
    listen(graph, "click", (event) => {
      const [px, py] = place(event, graph), placed = placesIn(run, graph.clientWidth, graph.clientHeight), tick = tickOf(run, now);
      let best = null, distance = 12;
      for (const i of run.flying) {
        const at = messagePlace(run, i, tick, placed);
        if (at && Math.hypot(at[0] - px, at[1] - py) < Math.min(distance, messageSize(run, i) + 5)) {
          distance = Math.hypot(at[0] - px, at[1] - py);
          best = { run, message: i };
        }
      }
      for (let node = 0; node < run.nodes.length && !best; node++) {
        if (Math.hypot(placed.x[node] - px, placed.y[node] - py) <= placed.radius + 3) best = { run, client: node };
      }
      setPlaying(false);
      choose(best);
    });
    listen(lanes, "click", (event) => {
      const [px, py] = place(event, lanes), box = lanesBox(run, lanes.clientWidth, lanes.clientHeight);
      let best = null, distance = 4;
      for (const i of run.lines || []) {
        const [x1, y1, x2, y2] = lineOf(run, i, box), dx = x2 - x1, dy = y2 - y1;
        const share = Math.max(0, Math.min(1, ((px - x1) * dx + (py - y1) * dy) / (dx * dx + dy * dy || 1)));
        const away = Math.hypot(x1 + share * dx - px, y1 + share * dy - py);
        if (away < distance) { distance = away; best = { run, message: i }; }
      }
      const row = Math.floor((py - box.top) / box.row);
      if (!best && row >= 0 && row < box.rows && (!run.heat || run.grouped)) best = { run, client: row };
      setPlaying(false);
      choose(best);
    });
  });

  const curve = $("curve");
  let dragged = null;
  const secondsAt = (event) => {
    const box = curveBox(curve.clientWidth), [px] = place(event, curve);
    return Math.max(0, Math.min(duration, ((px - box.left) / (box.right - box.left)) * duration));
  };
  listen(curve, "pointerdown", (event) => { dragged = { at: secondsAt(event), x: event.clientX }; curve.setPointerCapture(event.pointerId); });
  listen(curve, "pointermove", (event) => {
    if (!dragged || Math.abs(event.clientX - dragged.x) < 4) return;
    const ends = [dragged.at, secondsAt(event)].sort((a, b) => a - b);
    view = { from: ends[0], to: Math.max(ends[1], ends[0] + duration / 1e6) };
    if (now < view.from || now > view.to) now = view.from;
    ask();
  });
  listen(curve, "pointerup", (event) => {
    if (dragged && Math.abs(event.clientX - dragged.x) < 4) seek(secondsAt(event));
    dragged = null;
  });
  listen(curve, "pointercancel", () => { dragged = null; });
  listen(curve, "dblclick", widest);

  const repaint = () => { sizes.clear(); readColors(); legend(); ask(); };
  listen(dark, "change", repaint);
  listen(window, "beforeprint", () => { sizes.clear(); colors = LIGHT; legend(); showAll(); });
  listen(window, "afterprint", repaint);
  const observer = new ResizeObserver(() => { sizes.clear(); ask(); });
  for (const canvas of document.querySelectorAll("canvas")) observer.observe(canvas);

  /** Stop, and return what the next runs on this page take over. */
  function leave() {
    left.abort();
    observer.disconnect();
    cancelAnimationFrame(frame);
    const menus = Object.fromEntries(["color", "measure", "speed"].map((id) => [id, $(id).value]));
    const client = chosen && chosen.client !== undefined ? { position: runs.indexOf(chosen.run), client: chosen.client } : null;
    return { now, view, menus, client, playing, atEnd: now >= edge, whole: view.from <= 0 && view.to >= duration };
  }

  function takeOver({ menus, client, ...old }) {
    for (const [id, value] of Object.entries(menus)) if ([...$(id).options].some((option) => option.value === value)) $(id).value = value;
    now = old.atEnd ? edge : Math.min(duration, old.now);
    const shift = old.atEnd ? duration - old.view.to : 0;
    view = old.whole ? { from: 0, to: duration } : { from: Math.max(0, old.view.from + shift), to: Math.min(duration, old.view.to + shift) };
    if (client && runs[client.position]) chosen = { run: runs[client.position], client: client.client };
    if (old.playing) setPlaying(true);
  }

  const length = Math.min(duration, 20 * span_s);
  // What a client does is written when it is over. The end of a run under way is where most of it is written.
  const edge = Math.min(duration, ...runs.map((run) => {
    if (run.status !== "running" || !run.timeline) return duration;
    const ends = Array.from({ length: run.count }, (_, k) => run.timeline.end[run.timeline.first[k + 1] - 1] || 0).sort((a, b) => a - b);
    return Math.max(duration - length / 2, ends[Math.floor(run.count / 8)] * run.tick_s * (1 - 1e-7));
  }));
  view = live ? { from: duration - length, to: duration } : { from: 0, to: length };
  now = live ? edge : 0;
  if (kept) takeOver(kept);
  readColors();
  legend();
  showAll();
  // For tests and for the console.
  window.simfl = { runs, Replay, seek: (seconds) => { now = seconds; showAll(); }, choose, get now() { return now; }, get playing() { return playing; } };
  document.documentElement.dataset.ready = "true";
  return { leave };
}
