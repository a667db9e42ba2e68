// The graph: clients, links, regions, and messages in flight.
"use strict";
const Graph = (() => {
  const MOST_DOTS = 1500, PALE = 0.15;
  /** @typedef {NonNullable<Scene["placed"]>} Placed */

  /** @param {Run} run */
  const servers = (run) => run.node_of.length - run.count;

  /**
   * @param {Run} run
   * @param {number} node
   */
  const isClient = (run, node) => node < run.nodes.length - servers(run);

  /**
   * Clients of each node; none for a server.
   * @param {Run} run
   * @param {Scene} scene
   */
  function membersOf(run, scene) {
    if (!scene.members) {
      scene.members = run.nodes.map(() => /** @type {number[]} */ ([]));
      for (let k = 0; k < run.count; k++) scene.members[run.node_of[k]].push(k);
    }
    return scene.members;
  }

  /**
   * Whether a node is among those that all views are restricted to.
   * @param {Stage} stage
   * @param {Run} run
   * @param {number} node
   */
  function isIn(stage, run, node) {
    const { picked } = stage, scene = /** @type {Scene} */ (stage.scenes.get(run));
    return !picked || !isClient(run, node) || (run.grouped ? membersOf(run, scene)[node].some((k) => picked[k]) : picked[node] === 1);
  }

  /**
   * @param {Run} run
   * @param {number} client
   */
  function nameOf(run, client) {
    return client < run.count ? `client ${client}` : run.nodes[run.node_of[client]];
  }

  /**
   * Places of nodes in a picture of this size.
   * @param {Run} run
   * @param {Scene} scene
   * @param {number} width
   * @param {number} height
   * @returns {Placed}
   */
  function placesIn(run, scene, width, height) {
    const key = `${width}x${height}`;
    if (scene.placed && scene.placed.key === key) return scene.placed;
    const nodes = run.nodes.length, least = Math.min(width, height);
    const radius = Math.max(2.2, Math.min(15, nodes > 60 ? (0.28 * least) / Math.sqrt(nodes) : least / Math.max(8, nodes)));
    const room = radius + 12, size = Math.max(1, Math.min(width, height) / 2 - room);
    const stretch = Math.max(0.2, Math.min(1.5, (width / 2 - room) / size));
    const x = new Float32Array(nodes), y = new Float32Array(nodes);
    for (let k = 0; k < nodes; k++) {
      x[k] = width / 2 + run.places[2 * k] * size * stretch;
      y[k] = height / 2 + run.places[2 * k + 1] * size;
    }
    scene.placed = { key, x, y, radius };
    return scene.placed;
  }

  /**
   * The convex hull of points.
   * @param {[number, number][]} points
   */
  function hull(points) {
    const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const half = (/** @type {[number, number][]} */ list) => {
      /** @type {[number, number][]} */
      const chain = [];
      for (const p of list) {
        while (chain.length > 1) {
          const [a, b] = chain.slice(-2);
          if ((b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]) > 0) break;
          chain.pop();
        }
        chain.push(p);
      }
      return chain;
    };
    return [...half(sorted).slice(0, -1), ...half(sorted.reverse()).slice(0, -1)];
  }

  /**
   * The place and state of a message at a tick; null if both ends are one node.
   * @param {Run} run
   * @param {number} i
   * @param {number} tick
   * @param {Placed} placed
   */
  function messagePlace(run, i, tick, { x, y, radius }) {
    if (!run.messages) return null;
    const a = run.node_of[run.messages.source[i]], b = run.node_of[run.messages.target[i]];
    if (a === b) return null;
    const { phase, share, fall } = Replay.attemptAt(run, i, tick);
    const dx = x[b] - x[a], dy = y[b] - y[a], length = Math.hypot(dx, dy) || 1;
    const aside = Math.min(4, radius / 2), along = (radius + share * (length - 2 * radius)) / length;
    return { phase, fall, x: x[a] + dx * along - (dy / length) * aside, y: y[a] + dy * along + (dx / length) * aside };
  }

  /**
   * @param {Stage} stage
   * @param {Run} run
   * @param {number} i
   */
  function messageSize({ most, scenes }, run, i) {
    const crowd = Math.min(1, Math.sqrt(150 / Math.max(1, scenes.get(run)?.flying.length || 0)));  // many dots are small
    return Math.max(1.5, (2.2 + 3 * Math.sqrt((run.messages ? run.messages.bytes[i] : 0) / most.bytes)) * crowd);
  }

  /**
   * @param {Stage} stage
   * @param {number} staleness
   */
  const messageColor = ({ colors, most }, staleness) => (staleness === Replay.NEVER ? colors.soft : Colors.ramp(Colors.staleShare(staleness, most.staleness)));

  /**
   * The most frequent activity of a row of groups in a bin of time, and its share.
   * @param {Run} run
   * @param {number} row
   * @param {number} bin
   * @param {number} kinds
   */
  function heatAt({ heat }, row, bin, kinds) {
    let best = -1, most = 0;
    for (let k = 0; heat && k < kinds; k++) {
      const share = heat.shares[(row * heat.bins + Math.min(heat.bins - 1, bin)) * kinds + k] / 255;
      if (share > most) { best = k; most = share; }
    }
    return [best, most];
  }

  /**
   * The color of a node that is a client or a group, null for none.
   * @param {Stage} stage
   * @param {Run} run
   * @param {Scene} scene
   * @param {number} node
   * @param {number} tick
   * @param {number} activity
   */
  function colorOf(stage, run, scene, node, tick, activity) {
    const coloring = stage.colorings[stage.mode];
    if (!coloring) return null;
    if (!coloring.of) return activity >= 0 ? stage.colors[stage.activities[activity]] : null;
    if (!coloring.has(run)) return null;
    let sum = 0, known = 0;
    for (const k of run.grouped ? membersOf(run, scene)[node] : [node]) {
      const value = coloring.of(run, k, tick);
      if (Number.isFinite(value)) { sum += value; known++; }
    }
    return known ? Colors.ramp(coloring.share(sum / known)) : null;
  }

  /**
   * Regions and links, which change when a partition begins or ends.
   * @param {Stage} stage
   * @param {Run} run
   * @param {CanvasRenderingContext2D} pen
   * @param {Placed} placed
   * @param {Partition[]} cuts
   */
  function drawLinks(stage, run, pen, { x, y, radius }, cuts) {
    const { colors } = stage, links = run.links.length / 2;
    for (const region of run.regions) {
      const points = hull(region.nodes.map((node) => [x[node], y[node]]));
      if (!points.length) continue;
      pen.beginPath();
      points.forEach(([px, py], i) => (i ? pen.lineTo(px, py) : pen.moveTo(px, py)));
      pen.closePath();
      pen.fillStyle = pen.strokeStyle = colors.faint;
      pen.lineJoin = "round";
      pen.lineWidth = 2 * radius + 16;
      pen.stroke();
      pen.fill();
    }
    pen.strokeStyle = colors.line;
    pen.lineWidth = links > 2000 ? 0.4 : 1.2;
    pen.globalAlpha = Math.max(0.12, Math.min(1, 1000 / links));
    for (const faded of cuts.length ? [false, true] : [false]) {  // a partition fades the links between its sides
      pen.setLineDash(faded ? [1, 7] : []);
      pen.beginPath();
      for (let i = 0; i < links; i++) {
        const a = run.links[2 * i], b = run.links[2 * i + 1];
        if (cuts.some(({ sides }) => sides[a] !== sides[b]) !== faded) continue;
        if (!isIn(stage, run, a) && !isIn(stage, run, b)) continue;
        pen.moveTo(x[a], y[a]);
        pen.lineTo(x[b], y[b]);
      }
      pen.stroke();
    }
    pen.globalAlpha = 1;
    pen.setLineDash([]);
  }

  /**
   * The names of regions, with an outline: nodes of other regions may lie below them.
   * @param {Stage} stage
   * @param {Run} run
   * @param {CanvasRenderingContext2D} pen
   * @param {Placed} placed
   */
  function drawNames({ colors }, run, pen, { x, y, radius }) {
    pen.fillStyle = colors.soft;
    pen.strokeStyle = colors.paper;
    pen.lineJoin = "round";
    pen.lineWidth = 3;
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    for (const { name, nodes } of run.regions) {
      if (!nodes.length) continue;
      const middle = nodes.reduce((sum, node) => sum + x[node], 0) / nodes.length;
      const above = Math.max(12, Math.min(...nodes.map((node) => y[node])) - radius - 10);
      pen.strokeText(name, middle, above);
      pen.fillText(name, middle, above);
    }
  }

  /**
   * All nodes. Those of one color are one path: thousands of paths would take longer than a frame.
   * @param {Stage} stage
   * @param {Run} run
   * @param {Scene} scene
   * @param {CanvasRenderingContext2D} pen
   * @param {Placed} placed
   * @param {number} tick
   */
  function drawNodes(stage, run, scene, pen, { x, y, radius }, tick) {
    const { colors, activities, chosen } = stage, offline = activities.indexOf("offline"), kinds = activities.length;
    const wait = stage.mode === "activity" ? activities.indexOf("wait") : NaN;  // clients that wait are hollow, also in gray
    /** @type {Map<string, { fill: string, alpha: number, absent: boolean, hollow: boolean, nodes: number[] }>} */
    const looks = new Map();
    const fills = run.nodes.map((_, node) => {
      const client = isClient(run, node);
      let activity = -1;
      if (client && !run.grouped) activity = scene.activity[node];
      else if (client && run.heat) activity = heatAt(run, node, Math.floor((tick * run.tick_s * run.heat.bins) / run.duration_s), kinds)[0];
      const absent = activity === offline && activity >= 0, fill = (client && colorOf(stage, run, scene, node, tick, activity)) || colors.faint;
      const alpha = isIn(stage, run, node) ? (absent ? 0.35 : 1) : PALE, hollow = activity === wait, key = `${fill} ${alpha} ${absent}`;
      const look = looks.get(key);
      if (look) look.nodes.push(node); else looks.set(key, { fill, alpha, absent, hollow, nodes: [node] });
      return hollow ? colors.paper : fill;
    });
    for (const { fill, alpha, absent, hollow, nodes } of looks.values()) {
      pen.beginPath();
      for (const node of nodes) {
        if (isClient(run, node)) { pen.moveTo(x[node] + radius, y[node]); pen.arc(x[node], y[node], radius, 0, 2 * Math.PI); } else pen.rect(x[node] - radius, y[node] - radius, 2 * radius, 2 * radius);
      }
      pen.globalAlpha = alpha;
      pen.fillStyle = fill;
      pen.fill();
      pen.globalAlpha = alpha === PALE ? 0.3 : 1;
      pen.lineWidth = 1;
      pen.strokeStyle = colors.soft;
      pen.setLineDash(absent ? [2, 3] : []);
      pen.stroke();
      if (!hollow || radius < 4) continue;
      pen.beginPath();
      for (const node of nodes) { pen.moveTo(x[node] + 0.66 * radius, y[node]); pen.arc(x[node], y[node], 0.66 * radius, 0, 2 * Math.PI); }
      pen.fillStyle = colors.paper;
      pen.fill();
    }
    pen.globalAlpha = 1;
    pen.setLineDash([4, 3]);
    pen.lineWidth = 1.6;
    pen.strokeStyle = colors.ink;
    pen.beginPath();
    for (let node = 0; node < run.count && !run.grouped && radius >= 6; node++) {
      if (!(run.slowness[node] >= 2) || !isIn(stage, run, node)) continue;
      pen.moveTo(x[node] + radius + 4, y[node]);
      pen.arc(x[node], y[node], radius + 4, 0, 2 * Math.PI);
    }
    pen.stroke();
    pen.setLineDash([]);
    if (chosen && chosen.run === run && chosen.client !== undefined) {
      pen.lineWidth = 3.5;
      pen.beginPath();
      pen.arc(x[chosen.client], y[chosen.client], radius, 0, 2 * Math.PI);
      pen.stroke();
    }
    if (radius < 8 || run.grouped) return;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let node = 0; node < run.nodes.length; node++) {
      const name = run.nodes[node], shown = isIn(stage, run, node);
      pen.fillStyle = shown ? Colors.inkOn(fills[node]) : colors.soft;
      pen.globalAlpha = shown ? 1 : 0.5;
      pen.fillText(isClient(run, node) ? String(node) : name === "server" ? "S" : `S${name.slice(7)}`, x[node], y[node] + 0.5);
    }
    pen.globalAlpha = 1;
  }

  /**
   * Messages in flight, those of one color as one path; lost ones fall off, and wait as a ring to be sent again.
   * @param {Stage} stage
   * @param {Run} run
   * @param {Scene} scene
   * @param {CanvasRenderingContext2D} pen
   * @param {Placed} placed
   * @param {number} tick
   */
  function drawMessages(stage, run, scene, pen, placed, tick) {
    const { messages } = run, { colors } = stage;
    if (!messages) return;
    const every = Math.ceil(scene.flying.length / MOST_DOTS), many = scene.flying.length > 400;
    /** @type {Map<string, [number, number, number][]>} */
    const dots = new Map();
    /** @type {[number, number, number][]} */
    const again = [];
    for (let n = 0; n < scene.flying.length; n += every) {
      const i = scene.flying[n], at = messagePlace(run, i, tick, placed), size = messageSize(stage, run, i);
      if (!at) continue;
      if (at.phase !== "flies") {
        lost(pen, at, size, colors);
        continue;
      }
      const color = messageColor(stage, messages.staleness[i]), known = dots.get(color);
      if (known) known.push([at.x, at.y, size]); else dots.set(color, [[at.x, at.y, size]]);
      if (messages.resends[i]) again.push([at.x, at.y, size]);
    }
    const path = (/** @type {[number, number, number][]} */ places, more = 0) => {
      pen.beginPath();
      for (const [px, py, size] of places) { pen.moveTo(px + size + more, py); pen.arc(px, py, size + more, 0, 2 * Math.PI); }
    };
    pen.strokeStyle = colors.paper;
    pen.lineWidth = 0.8;
    for (const [color, places] of dots) {
      path(places);
      pen.fillStyle = color;
      pen.fill();
      if (!many) pen.stroke();
    }
    path(again, many ? 0.3 : 0.8);
    pen.strokeStyle = colors.lost;
    pen.lineWidth = many ? 1 : 2;
    pen.stroke();
  }

  /**
   * A message that was lost: it falls off its link and fades, over a cross where it was lost; or it waits as a ring.
   * @param {CanvasRenderingContext2D} pen
   * @param {{ phase: string, fall: number, x: number, y: number }} at
   * @param {number} size
   * @param {Record<string, string>} colors
   */
  function lost(pen, at, size, colors) {
    pen.strokeStyle = pen.fillStyle = colors.lost;
    pen.beginPath();
    if (at.phase === "waits") {
      pen.lineWidth = 1.4;
      pen.arc(at.x, at.y, size, 0, 2 * Math.PI);
      pen.stroke();
      return;
    }
    pen.globalAlpha = 1 - 0.85 * at.fall;
    pen.arc(at.x, at.y + 26 * at.fall * at.fall, size * (1 - 0.4 * at.fall), 0, 2 * Math.PI);
    pen.fill();
    pen.globalAlpha = 1 - 0.6 * at.fall;
    cross(pen, at.x, at.y, size + 0.5);
    pen.globalAlpha = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {number} x
   * @param {number} y
   * @param {number} size
   * @param {number} width
   */
  function cross(pen, x, y, size, width = 1.6) {
    pen.lineWidth = width;
    pen.beginPath();
    pen.moveTo(x - size, y - size);
    pen.lineTo(x + size, y + size);
    pen.moveTo(x - size, y + size);
    pen.lineTo(x + size, y - size);
    pen.stroke();
  }

  /**
   * Draw a collective: a ring through its clients, and dots that go round as it proceeds.
   * @param {CanvasRenderingContext2D} pen
   * @param {Collective} collective
   * @param {number} tick
   * @param {Placed} placed
   * @param {Record<string, string>} colors
   */
  function ring(pen, { start, end, clients }, tick, { x, y }, colors) {
    const turns = ((3 * (tick - start)) / Math.max(1, end - start)) % 1, next = (/** @type {number} */ k) => clients[(k + 1) % clients.length];
    pen.strokeStyle = colors.communicate;
    pen.lineWidth = 3;
    pen.beginPath();
    clients.forEach((client, k) => (k ? pen.lineTo(x[client], y[client]) : pen.moveTo(x[client], y[client])));
    pen.closePath();
    pen.stroke();
    pen.fillStyle = colors.ink;
    pen.strokeStyle = colors.paper;
    pen.lineWidth = 0.8;
    pen.beginPath();
    clients.forEach((client, k) => {
      const [px, py] = [x[client] + turns * (x[next(k)] - x[client]), y[client] + turns * (y[next(k)] - y[client])];
      pen.moveTo(px + 3.5, py);
      pen.arc(px, py, 3.5, 0, 2 * Math.PI);
    });
    pen.fill();
    pen.stroke();
  }

  /**
   * Draw the graph of a run at the stage's moment.
   * @param {Stage} stage
   * @param {Run} run
   */
  function draw(stage, run) {
    const scene = /** @type {Scene} */ (stage.scenes.get(run)), { colors, activities, picked, chosen } = stage;
    const sheet = Canvas.paper(scene.graph), { pen, width, height, scale } = sheet, tick = Canvas.tickOf(run, stage.now);
    const placed = placesIn(run, scene, width, height), { x, y } = placed, links = run.links.length / 2;
    const cuts = run.partitions.filter(({ start, end }) => start <= tick && tick < end);
    const key = [width, height, scale, colors.line, picked ? picked.join("") : "", ...cuts.map(({ start }) => start)].join();
    Canvas.cached(scene.cache, "links", key, sheet, (inner) => drawLinks(stage, run, inner, placed, cuts));
    const over = stage.now > run.duration_s, talk = activities.indexOf("communicate");
    scene.together = run.grouped || over ? [] : Replay.collectives(run, tick, talk);
    for (const each of scene.together) ring(pen, each, tick, placed, colors);
    // Messages that were not recorded: links between clients that both communicate.
    if (run.timeline && !run.grouped && links <= 4000 && !run.messages) {
      pen.strokeStyle = colors.communicate;
      pen.lineWidth = 3;
      pen.beginPath();
      for (let i = 0; i < links; i++) {
        const a = run.links[2 * i], b = run.links[2 * i + 1];
        if (a < run.count && b < run.count && scene.activity[a] === talk && scene.activity[b] === talk) {
          pen.moveTo(x[a], y[a]);
          pen.lineTo(x[b], y[b]);
        }
      }
      pen.stroke();
    }
    scene.flying = [];
    if (!over) Replay.between(run, tick, tick, (i) => { if (!picked || Replay.touches(run, i, picked)) scene.flying.push(i); });
    drawNodes(stage, run, scene, pen, placed, tick);
    drawNames(stage, run, pen, placed);
    drawMessages(stage, run, scene, pen, placed, tick);
    if (chosen && chosen.run === run && chosen.message !== undefined && scene.flying.includes(chosen.message)) {
      const at = messagePlace(run, chosen.message, tick, placed);
      if (!at) return;
      pen.beginPath();
      pen.arc(at.x, at.y, messageSize(stage, run, chosen.message) + 4, 0, 2 * Math.PI);
      pen.strokeStyle = colors.ink;
      pen.lineWidth = 2;
      pen.stroke();
    }
  }

  /**
   * What is at a point of the picture: a message, a node, or null.
   * @param {Stage} stage
   * @param {Run} run
   * @param {number} px
   * @param {number} py
   * @returns {Chosen | null}
   */
  function at(stage, run, px, py) {
    const scene = /** @type {Scene} */ (stage.scenes.get(run)), tick = Canvas.tickOf(run, stage.now);
    const placed = placesIn(run, scene, scene.graph.clientWidth, scene.graph.clientHeight);
    let best = null, distance = 12;
    for (const i of scene.flying) {
      const place = messagePlace(run, i, tick, placed);
      if (place && Math.hypot(place.x - px, place.y - py) < Math.min(distance, messageSize(stage, run, i) + 5)) {
        distance = Math.hypot(place.x - px, place.y - py);
        best = { run, message: i };
      }
    }
    for (let node = 0; node < run.nodes.length && !best; node++) {
      if (Math.hypot(placed.x[node] - px, placed.y[node] - py) <= placed.radius + 3) best = { run, client: node };
    }
    return best;
  }

  /**
   * The clients whose nodes lie in a rectangle of the picture, by number; null if there is none.
   * @param {Stage} stage
   * @param {Run} run
   * @param {[number, number, number, number]} rectangle
   */
  function within(stage, run, [x1, y1, x2, y2]) {
    const scene = /** @type {Scene} */ (stage.scenes.get(run));
    const { x, y } = placesIn(run, scene, scene.graph.clientWidth, scene.graph.clientHeight), inside = new Uint8Array(run.count);
    for (let k = 0; k < run.count; k++) {
      const node = run.node_of[k];
      if (x[node] >= x1 && x[node] <= x2 && y[node] >= y1 && y[node] <= y2) inside[k] = 1;
    }
    return inside.includes(1) ? inside : null;
  }

  return { MOST_DOTS, draw, at, within, isIn, isClient, membersOf, nameOf, messageColor, heatAt, cross };
})();
