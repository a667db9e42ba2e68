// The pure half of the player: tables as typed arrays, and the state of a run at a moment. It draws nothing.
// Times inside are ticks, whole numbers from 0 to 2^32 - 1; a run has `tick_s` seconds per tick.
"use strict";
/**
 * @typedef {{ type: "u8" | "u32" | "f32" | "f64", n: number, delta: boolean, data: string }} Packed
 * @typedef {Uint8Array | Uint32Array | Float32Array | Float64Array} Column
 * @typedef {{ label: string, values: (number | null)[] }} Measure
 *
 * @typedef {object} Timeline  Intervals in order of clients and time; those of a client begin at `first[client]`.
 * @property {Uint32Array} first
 * @property {Uint32Array} start
 * @property {Uint32Array} end
 * @property {Uint8Array} activity
 *
 * @typedef {object} Updates  In order of time; `rows` has those of each client, from `first[client]`.
 * @property {number} total  Rows of the run's table, some of which may be left out here.
 * @property {Uint32Array} time
 * @property {Uint32Array} client
 * @property {Uint32Array} staleness
 * @property {Uint32Array} first
 * @property {Uint32Array} rows
 *
 * @typedef {object} Messages  In the order in which they were sent; `last` is the last delivery of each block.
 * @property {number} total
 * @property {Uint32Array} sent
 * @property {Uint32Array} length
 * @property {Uint32Array} delivered
 * @property {Uint32Array} source
 * @property {Uint32Array} target
 * @property {Uint32Array} bytes
 * @property {Uint32Array} resends
 * @property {Uint32Array} used  The time of the next update of the client at the end, `NEVER` without one.
 * @property {Uint32Array} staleness  That of this update.
 * @property {Uint32Array} last
 * @property {number} typical  The usual length of a message that was not lost.
 *
 * @typedef {{ time: Uint32Array, values: Float32Array }} Samples  A value of each client at evaluations.
 * @typedef {object} Heat  Rows of groups of clients, in bins of time.
 * @property {string[]} labels
 * @property {number[]} sizes
 * @property {{ name: string, row: number }[]} marks  What stands beside rows.
 * @property {number} bins
 * @property {Uint8Array} shares  [groups, bins, activities], 255 for all of the time.
 * @property {Uint32Array} group  The group of each client.
 * @typedef {{ start: number, end: number, sides: Uint8Array }} Partition
 * @typedef {{ start: number, end: number, clients: number[] }} Collective
 *
 * @typedef {object} Run  A run as `simfl.reports.played` describes it, unpacked.
 * @property {string} title
 * @property {string} color
 * @property {string} status
 * @property {number} duration_s
 * @property {number} tick_s
 * @property {number} resend_s
 * @property {"steps" | "updates"} staleness  What staleness counts.
 * @property {number} count  The number of clients.
 * @property {Uint32Array} times  All times of the tables below, each once.
 * @property {{ time: Uint32Array, columns: Record<string, Measure> }} metrics
 * @property {Timeline | null} timeline
 * @property {Updates | null} updates
 * @property {Messages | null} messages
 * @property {Samples | null} accuracy
 * @property {Samples | null} distance
 * @property {Samples | null} epsilon
 * @property {Record<string, Float64Array>} clients
 * @property {string[]} nodes
 * @property {boolean} grouped
 * @property {Uint32Array} node_of
 * @property {Float32Array} places
 * @property {Uint32Array} links
 * @property {{ name: string, nodes: number[] }[]} regions
 * @property {Float32Array} slowness
 * @property {Partition[]} partitions
 * @property {Heat | null} heat
 */
const Replay = (() => {
  const NEVER = 2 ** 32 - 1, BLOCK = 256;

  /**
   * Undo `simfl.reports.played.pack`: base64, deflate, planes of bytes, differences.
   * @param {Packed} packed
   * @returns {Promise<Column>}
   */
  async function unpack({ type, n, delta, data }) {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    // @ts-ignore: TypeScript does not know it before version 5.1.
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

  /**
   * Replace every packed column inside a value by its array.
   * @param {any} value
   * @returns {Promise<any>}
   */
  async function open(value) {
    if (value === null || typeof value !== "object") return value;
    if (typeof value.data === "string" && value.type) return unpack(value);
    const entries = await Promise.all(Object.entries(value).map(async ([key, inner]) => [key, await open(inner)]));
    return Array.isArray(value) ? entries.map(([, inner]) => inner) : Object.fromEntries(entries);
  }

  /**
   * How many of the sorted values are at most x, among those from `low` to before `high`, and `low` more.
   * @param {ArrayLike<number>} values
   * @param {number} x
   * @param {number} low
   * @param {number} high
   */
  function upTo(values, x, low = 0, high = values.length) {
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (values[middle] <= x) low = middle + 1; else high = middle;
    }
    return low;
  }

  /**
   * Rows of each client, in order of time: `rows` from `first[client]` to `first[client + 1]`.
   * @param {Uint32Array} clients
   * @param {number} count
   */
  function byClient(clients, count) {
    const first = new Uint32Array(count + 1), rows = new Uint32Array(clients.length);
    for (const client of clients) if (client < count) first[client + 1]++;
    for (let k = 0; k < count; k++) first[k + 1] += first[k];
    const next = first.slice();
    for (let row = 0; row < clients.length; row++) if (clients[row] < count) rows[next[clients[row]]++] = row;
    return { first, rows };
  }

  /**
   * Put times in the place of places among times.
   * @param {Uint32Array} places
   * @param {Uint32Array} times
   */
  function look(places, times) {
    for (let i = 0; i < places.length; i++) places[i] = times[places[i]];
    return places;
  }

  /** @param {ArrayLike<number>} values */
  function median(values) {
    return values.length ? Array.from(values).sort((a, b) => a - b)[values.length >> 1] : NaN;
  }

  /**
   * Make a run of the page's data ready: times, and indexes for fast questions about a moment.
   * @param {any} packed
   * @returns {Promise<Run>}
   */
  async function prepare(packed) {
    const run = await open(packed), { timeline, messages, updates, times } = run;
    if (timeline) {
      const { start, gap } = timeline, n = start.length, end = new Uint32Array(n);
      for (let i = 0; i < n; i++) end[i] = (i + 1 < n ? start[i + 1] : 0) - gap[i];  // modulo 2^32
      timeline.start = look(start, times);
      timeline.end = look(end, times);
    }
    if (updates) {
      look(updates.time, times);
      Object.assign(updates, byClient(updates.client, run.count));
    }
    if (messages) {
      const { sent, length } = messages, n = sent.length, delivered = new Uint32Array(n);
      for (let i = 0; i < n; i++) delivered[i] = times[sent[i] + length[i]];
      look(sent, times);
      for (let i = 0; i < n; i++) length[i] = delivered[i] - sent[i];
      messages.delivered = delivered;
      // The last delivery within each block of messages: whole blocks that are over need no look.
      messages.last = new Uint32Array(Math.ceil(n / BLOCK));
      for (let i = 0; i < n; i++) {
        const block = Math.floor(i / BLOCK);
        if (delivered[i] > messages.last[block]) messages.last[block] = delivered[i];
      }
      const step = Math.max(1, Math.floor(n / 2000));
      const usual = [];
      for (let i = 0; i < n; i += step) if (!messages.resends[i]) usual.push(length[i]);
      messages.typical = median(usual);
      if (!messages.used) use(run);
    }
    look(run.metrics.time, times);
    return run;
  }

  /**
   * Find the next update after the delivery of each message: of the client that received it, or of its sender if the
   * target is a server.
   * @param {Run} run
   */
  function use(run) {
    const { messages, updates, count } = run;
    if (!messages) return;
    const n = messages.sent.length;
    messages.used = new Uint32Array(n).fill(NEVER);
    messages.staleness = new Uint32Array(n).fill(NEVER);
    for (let i = 0; updates && i < n; i++) {
      const row = updateAfter(updates, endOf(run, i), messages.delivered[i], count);
      if (row < 0) continue;
      messages.used[i] = updates.time[row];
      messages.staleness[i] = updates.staleness[row];
    }
  }

  /**
   * The client whose next update a message is for.
   * @param {Run} run
   * @param {number} i
   */
  function endOf({ messages, count }, i) {
    if (!messages) return -1;
    return messages.target[i] < count ? messages.target[i] : messages.source[i];
  }

  /**
   * The row of a client's first update at or after a tick, -1 for none.
   * @param {Updates} updates
   * @param {number} client
   * @param {number} tick
   * @param {number} count
   */
  function updateAfter({ first, rows, time }, client, tick, count) {
    if (client < 0 || client >= count) return -1;
    let low = first[client], high = first[client + 1];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (time[rows[middle]] < tick) low = middle + 1; else high = middle;
    }
    return low < first[client + 1] ? rows[low] : -1;
  }

  /**
   * The row of the timeline that holds a client at a tick, -1 for none.
   * @param {Run} run
   * @param {number} client
   * @param {number} tick
   */
  function intervalAt({ timeline }, client, tick) {
    if (!timeline) return -1;
    const first = timeline.first[client], row = upTo(timeline.start, tick, first, timeline.first[client + 1]) - 1;
    return row >= first && tick < timeline.end[row] ? row : -1;
  }

  /**
   * The activity of a client at a tick, -1 for none.
   * @param {Run} run
   * @param {number} client
   * @param {number} tick
   */
  function activityAt(run, client, tick) {
    const row = intervalAt(run, client, tick);
    return row < 0 || !run.timeline ? -1 : run.timeline.activity[row];
  }

  /**
   * Collectives under way at a tick, such as the all-reduce of SYNC: clients that communicate for the same time, in a run
   * whose exchanges have no rows of messages. `communicate` is the number of that activity.
   * @param {Run} run
   * @param {number} tick
   * @param {number} communicate
   * @returns {Collective[]}
   */
  function collectives(run, tick, communicate) {
    if (!run.timeline || !run.messages || run.messages.total) return [];
    /** @type {Map<string, Collective>} */
    const groups = new Map();
    for (let client = 0; client < run.count; client++) {
      const row = intervalAt(run, client, tick);
      if (row < 0 || run.timeline.activity[row] !== communicate) continue;
      const start = run.timeline.start[row], end = run.timeline.end[row], key = `${start} ${end}`;
      const group = groups.get(key) || { start, end, clients: [] };
      group.clients.push(client);
      groups.set(key, group);
    }
    return [...groups.values()].filter(({ clients }) => clients.length > 1);
  }

  /**
   * Call `visit` with each message that was sent by `until` and not yet delivered at `since`.
   * @param {Run} run
   * @param {number} since
   * @param {number} until
   * @param {(i: number) => void} visit
   */
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

  /**
   * How long an attempt to send a message flies, and the time from one attempt to the next. The table says how often a
   * message was lost, but not when: lost attempts are spread evenly over the time before the last one.
   * @param {Run} run
   * @param {number} i
   */
  function attempts({ messages, resend_s, tick_s }, i) {
    if (!messages) return { resends: 0, flight: 1, period: 0 };
    const length = Math.max(1, messages.length[i]), resends = messages.resends[i];
    if (!resends) return { resends, flight: length, period: 0 };
    const even = length / (resends + 1), free = (length - (resends * resend_s) / tick_s) / (resends + 1);
    const flight = Math.min(even, free > 0 ? free : even, messages.typical || even);
    return { resends, flight, period: (length - flight) / resends };
  }

  /**
   * The share of the way after which an attempt is lost; it depends on the numbers of both.
   * @param {number} i
   * @param {number} attempt
   */
  const lostAt = (i, attempt) => 0.35 + 0.35 * (((i + 1) * 0.618 + attempt * 0.382) % 1);

  /**
   * Where a message is at a tick: which attempt, whether it flies, falls off or waits to be sent again, and its shares
   * of the way and of the fall.
   * @param {Run} run
   * @param {number} i
   * @param {number} tick
   * @returns {{ attempt: number, phase: "flies" | "falls" | "waits", share: number, fall: number }}
   */
  function attemptAt(run, i, tick) {
    const { resends, flight, period } = attempts(run, i), since = run.messages ? tick - run.messages.sent[i] : 0;
    const attempt = resends ? Math.min(resends, Math.floor(since / period)) : 0, share = (since - attempt * period) / flight;
    if (attempt === resends) return { attempt, phase: "flies", share: Math.min(1, share), fall: 0 };
    const lost = lostAt(i, attempt);
    if (share <= lost) return { attempt, phase: "flies", share, fall: 0 };
    // It falls for as long as a flight takes, or shorter if it is sent again before.
    const fall = (share - lost) / Math.min(1, period / flight - lost);
    return fall <= 1 ? { attempt, phase: "falls", share: lost, fall } : { attempt, phase: "waits", share: 0, fall: 1 };
  }

  /**
   * Versions about a message, where the page has all updates: how many updates its sender and all clients had applied
   * when it was sent; the row of the next update at its end, how many updates came between, and, where staleness counts
   * updates, at which version that update was computed. -1 stands for none.
   * @param {Run} run
   * @param {number} i
   */
  function versions(run, i) {
    const { messages, updates, count } = run;
    if (!messages || !updates || !isWhole(updates)) return null;
    const sent = messages.sent[i], source = messages.source[i];
    const all = upTo(updates.time, sent), own = source < count ? updatesOf(run, source, sent) : -1;
    const used = updateAfter(updates, endOf(run, i), messages.delivered[i], count);
    return {
      all, own, used, after: used < 0 ? -1 : Math.max(0, used - all),
      read: used < 0 || run.staleness === "steps" ? -1 : used - updates.staleness[used],
    };
  }

  /**
   * Whether a table has all of its rows on this page.
   * @param {Updates | null} table
   */
  function isWhole(table) {
    return table !== null && table.time.length === table.total;
  }

  /**
   * The number of updates that a client has applied at a tick.
   * @param {Run} run
   * @param {number} client
   * @param {number} tick
   */
  function updatesOf({ updates }, client, tick) {
    if (!updates) return 0;
    let low = updates.first[client], high = updates.first[client + 1];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (updates.time[updates.rows[middle]] <= tick) low = middle + 1; else high = middle;
    }
    return low - updates.first[client];
  }

  /**
   * The row of a client's last update at a tick, -1 before its first.
   * @param {Run} run
   * @param {number} client
   * @param {number} tick
   */
  function lastUpdate(run, client, tick) {
    const n = updatesOf(run, client, tick);
    return n && run.updates ? run.updates.rows[run.updates.first[client] + n - 1] : -1;
  }

  /**
   * The staleness of a client's updates after the tick `from` and up to the tick `to`.
   * @param {Run} run
   * @param {number} client
   * @param {number} from
   * @param {number} to
   * @returns {number[]}
   */
  function stalenessOf(run, client, from, to) {
    const { updates } = run, values = [];
    if (!updates) return [];
    const first = updates.first[client], stop = first + updatesOf(run, client, to);
    for (let k = from < 0 ? first : first + updatesOf(run, client, from); k < stop; k++) {
      values.push(updates.staleness[updates.rows[k]]);
    }
    return values;
  }

  /**
   * Counts of a span of time, of some clients or of all: updates and the sum of their staleness; messages sent, their
   * bytes and attempts that were lost.
   * @param {Run} run
   * @param {number} from
   * @param {number} to
   * @param {Uint8Array | null} picked
   */
  function totals(run, from, to, picked) {
    const { updates, messages } = run, sums = { updates: 0, staleness: 0, messages: 0, bytes: 0, lost: 0 };
    for (let row = updates ? upTo(updates.time, from) : 0; updates && row < updates.time.length; row++) {
      if (updates.time[row] > to) break;
      if (picked && !picked[updates.client[row]]) continue;
      sums.updates++;
      sums.staleness += updates.staleness[row];
    }
    for (let i = messages ? upTo(messages.sent, from) : 0; messages && i < messages.sent.length; i++) {
      if (messages.sent[i] > to) break;
      if (picked && !touches(run, i, picked)) continue;
      sums.messages++;
      sums.bytes += messages.bytes[i];
      sums.lost += messages.resends[i];
    }
    return sums;
  }

  /**
   * Whether a message has an end among the clients that are picked.
   * @param {Run} run
   * @param {number} i
   * @param {Uint8Array} picked
   */
  function touches({ messages }, i, picked) {
    return messages !== null && (picked[messages.source[i]] === 1 || picked[messages.target[i]] === 1);
  }

  /**
   * A value that each client has at evaluations (accuracy, epsilon) at a tick; NaN before the first.
   * @param {Run} run
   * @param {Samples} table
   * @param {number} client
   * @param {number} tick
   */
  function sampled(run, table, client, tick) {
    const row = upTo(table.time, tick) - 1;
    return row < 0 ? NaN : table.values[row * run.count + client];
  }

  /**
   * Everything that tables say about a tick, in plain values.
   * @param {Run} run
   * @param {number} tick
   */
  function state(run, tick) {
    let flying = 0;
    between(run, tick, tick, () => { flying++; });
    const clients = Array.from({ length: run.count }, (_, client) => client), { updates } = run;
    return {
      activity: clients.map((client) => activityAt(run, client, tick)),
      flying,
      updates: updates ? upTo(updates.time, tick) : null,
      staleness: updates && clients.map((client) => {
        const row = lastUpdate(run, client, tick);
        return row < 0 ? -1 : updates.staleness[row];
      }),
      evaluation: upTo(run.metrics.time, tick) - 1,
    };
  }

  /**
   * The next value after x among sorted values, or the one before it with direction -1; null for none.
   * @param {ArrayLike<number>} values
   * @param {number} x
   * @param {number} direction
   * @returns {number | null}
   */
  function neighbor(values, x, direction) {
    if (direction > 0) return values[upTo(values, x)] ?? null;
    return values[upTo(values, Math.ceil(x) - 1) - 1] ?? null;
  }

  return {
    NEVER, prepare, open, upTo, median, intervalAt, activityAt, collectives, between, attempts, lostAt, attemptAt, versions,
    endOf, isWhole, lastUpdate, updatesOf, stalenessOf, totals, touches, sampled, state, neighbor,
  };
})();
