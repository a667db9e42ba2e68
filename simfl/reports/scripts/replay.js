// The pure half of the player: tables as typed arrays, and the state of a run at a moment. It draws nothing.
// Times inside are ticks, whole numbers from 0 to 2^32 - 1; a run has `tick_s` seconds per tick.
"use strict";
const Replay = (() => {
  /** Undo `simfl.reports.player.pack`: base64, deflate, planes of bytes, differences. */
  async function unpack({ type, n, delta, data }) {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const planes = new Uint8Array(await new Response(stream).arrayBuffer());
    const kinds = { u8: Uint8Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array };
    const values = new kinds[type](n), raw = new Uint8Array(values.buffer), size = values.BYTES_PER_ELEMENT;
    for (let plane = 0; plane < size; plane++) {
      for (let i = 0; i < n; i++) raw[i * size + plane] = planes[plane * n + i];
    }
    if (delta) for (let i = 1; i < n; i++) values[i] += values[i - 1];  // modulo 2^32
    return values;
  }

  /** Replace every packed column inside a value by its array. */
  async function open(value) {
    if (value === null || typeof value !== "object") return value;
    if (typeof value.data === "string" && value.type) return unpack(value);
    const entries = await Promise.all(Object.entries(value).map(async ([key, inner]) => [key, await open(inner)]));
    return Array.isArray(value) ? entries.map(([, inner]) => inner) : Object.fromEntries(entries);
  }

  /** How many of the sorted values are at most x. */
  function upTo(values, x, low = 0, high = values.length) {
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (values[middle] <= x) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** Rows of each client, in order of time: `rows` from `first[client]` to `first[client + 1]`. */
  function byClient(clients, count) {
    const first = new Uint32Array(count + 1), rows = new Uint32Array(clients.length);
    for (const client of clients) if (client < count) first[client + 1]++;
    for (let k = 0; k < count; k++) first[k + 1] += first[k];
    const next = first.slice();
    clients.forEach((client, row) => { if (client < count) rows[next[client]++] = row; });
    return { first, rows };
  }

  const BLOCK = 256;

  /** Make a run of the page's data ready: indexes for fast questions about a moment. */
  async function prepare(packed) {
    const run = await open(packed), { timeline, messages, updates } = run;
    const events = [];
    if (timeline) {
      timeline.end = timeline.start.map((start, i) => start + timeline.length[i]);
      events.push(timeline.start);
    }
    if (messages) {
      messages.delivered = messages.sent.map((sent, i) => sent + messages.length[i]);
      // The last delivery within each block of messages: whole blocks that are over need no look.
      messages.last = new Uint32Array(Math.ceil(messages.sent.length / BLOCK));
      messages.delivered.forEach((time, i) => {
        const block = Math.floor(i / BLOCK);
        if (time > messages.last[block]) messages.last[block] = time;
      });
      events.push(messages.sent, messages.delivered);
    }
    if (updates) {
      Object.assign(updates, byClient(updates.client, run.count));
      events.push(updates.time);
    }
    run.evaluations = Uint32Array.from(run.metrics.time_s, (time_s) => Math.round(time_s / run.tick_s));
    events.push(run.evaluations);
    const all = new Uint32Array(events.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of events) { all.set(part, at); at += part.length; }
    all.sort();
    run.events = all.filter((time, i) => i === 0 || time !== all[i - 1]);
    return run;
  }

  /** The row of the timeline that holds a client at a tick, -1 for none. */
  function intervalAt({ timeline }, client, tick) {
    if (!timeline) return -1;
    const first = timeline.first[client], row = upTo(timeline.start, tick, first, timeline.first[client + 1]) - 1;
    return row >= first && tick < timeline.end[row] ? row : -1;
  }

  /** The activity of a client at a tick, -1 for none. */
  function activityAt(run, client, tick) {
    const row = intervalAt(run, client, tick);
    return row < 0 ? -1 : run.timeline.activity[row];
  }

  /**
   * Collectives under way at a tick, such as the all-reduce of SYNC: clients that communicate for the same time, in a run
   * whose exchanges have no rows of messages. `communicate` is the number of that activity.
   */
  function collectives(run, tick, communicate) {
    if (!run.timeline || !run.messages || run.messages.total) return [];
    const groups = new Map();
    for (let client = 0; client < run.count; client++) {
      const row = intervalAt(run, client, tick);
      if (row < 0 || run.timeline.activity[row] !== communicate) continue;
      const start = run.timeline.start[row], end = run.timeline.end[row], key = `${start} ${end}`;
      if (!groups.has(key)) groups.set(key, { start, end, clients: [] });
      groups.get(key).clients.push(client);
    }
    return [...groups.values()].filter(({ clients }) => clients.length > 1);
  }

  /** Call `visit` with each message that was sent by `until` and not yet delivered at `since`. */
  function between({ messages }, since, until, visit) {
    if (!messages) return;
    const end = upTo(messages.sent, until);
    for (let block = 0; block * BLOCK < end; block++) {
      if (messages.last[block] <= since) continue;
      for (let i = block * BLOCK; i < Math.min(end, (block + 1) * BLOCK); i++) {
        if (messages.delivered[i] > since) visit(i);
      }
    }
  }

  /** The row of a client's last update at a tick, -1 before its first. */
  function lastUpdate({ updates }, client, tick) {
    let low = updates.first[client], high = updates.first[client + 1];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (updates.time[updates.rows[middle]] <= tick) low = middle + 1; else high = middle;
    }
    return low > updates.first[client] ? updates.rows[low - 1] : -1;
  }

  /** Updates that a client has applied at a tick. */
  function updatesOf({ updates }, client, tick) {
    let low = updates.first[client], high = updates.first[client + 1];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (updates.time[updates.rows[middle]] <= tick) low = middle + 1; else high = middle;
    }
    return low - updates.first[client];
  }

  /** A value that each client has at evaluations (accuracy, epsilon) at a tick; NaN before the first. */
  function sampled(run, table, client, tick) {
    const row = upTo(table.time, tick) - 1;
    return row < 0 ? NaN : table.values[row * run.count + client];
  }

  /** Everything that tables say about a tick, in plain values. */
  function state(run, tick) {
    let flying = 0;
    between(run, tick, tick, () => { flying++; });
    const clients = Array.from({ length: run.count }, (_, client) => client);
    return {
      activity: clients.map((client) => activityAt(run, client, tick)),
      flying,
      updates: run.updates ? upTo(run.updates.time, tick) : null,
      staleness: run.updates && clients.map((client) => {
        const row = lastUpdate(run, client, tick);
        return row < 0 ? -1 : run.updates.staleness[row];
      }),
      evaluation: upTo(run.evaluations, tick) - 1,
    };
  }

  /** The next value after x among sorted values, or the one before it with direction -1; null for none. */
  function neighbor(values, x, direction) {
    if (direction > 0) return values[upTo(values, x)] ?? null;
    return values[upTo(values, Math.ceil(x) - 1) - 1] ?? null;
  }

  return { prepare, open, upTo, intervalAt, activityAt, collectives, between, lastUpdate, updatesOf, sampled, state, neighbor };
})();
if (typeof module !== "undefined") module.exports = Replay;
