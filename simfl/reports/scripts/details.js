// Words about the moment: a line for each run, what was clicked, and the table of clients.
"use strict";
const Details = (() => {
  /** @type {Record<string, string>} */
  const WORDS = { compute: "computes", lost: "computes in vain (a crash)", wait: "waits", communicate: "communicates", offline: "is offline" };
  /** @type {Record<string, string>} */
  const MANY = { compute: "compute", lost: "compute in vain", wait: "wait", communicate: "communicate", offline: "offline" };
  const MOST_ROWS = 200;

  /**
   * @param {Stage} stage
   * @param {Run} run
   */
  const sceneOf = ({ scenes }, run) => /** @type {Scene} */ (scenes.get(run));

  /**
   * The line about a run at the moment.
   * @param {Stage} stage
   * @param {Run} run
   */
  function line(stage, run) {
    const { now, words, activities, picked } = stage, { count, show, several } = words, scene = sceneOf(stage, run);
    const tick = Canvas.tickOf(run, now), parts = [], row = Replay.upTo(run.metrics.time, tick) - 1, columns = run.metrics.columns;
    if (now > run.duration_s) parts.push(`ended at ${words.clock(run.duration_s)}`);
    if (run.updates && Replay.isWhole(run.updates)) parts.push(several(Replay.upTo(run.updates.time, tick), "update"));
    else if (columns.updates) parts.push(`${show("updates", row < 0 ? 0 : columns.updates.values[row])} updates`);
    if (run.messages && run.messages.total) {
      const share = run.messages.sent.length / run.messages.total, every = Math.ceil(scene.flying.length / Graph.MOST_DOTS);
      const sample = share < 1 ? ` of the ${Number((100 * share).toPrecision(2))} % of messages that the page has` : "";
      parts.push(`${count(scene.flying.length)} in flight${sample}${every > 1 ? `, 1 in ${every} drawn` : ""}`);
    }
    for (const { clients } of scene.together) parts.push(`a collective of ${count(clients.length)} clients`);
    if (run.partitions.some(({ start, end }) => start <= tick && tick < end)) parts.push("network partition");
    if (run.timeline && now <= run.duration_s) {
      const sums = activities.map(() => 0);
      for (let k = 0; k < run.count; k++) if (scene.activity[k] >= 0 && (!picked || picked[k])) sums[scene.activity[k]]++;
      activities.forEach((name, k) => { if (sums[k]) parts.push(`${count(sums[k])} ${MANY[name]}`); });
    }
    if (run.heat && !run.timeline && now <= run.duration_s) {
      const sums = shares(stage, run), total = sums.reduce((sum, value) => sum + value, 0);
      activities.forEach((name, k) => { if (sums[k] > 0.005 * total) parts.push(`${(100 * sums[k] / total).toFixed(0)} % ${MANY[name]}`); });
    }
    const name = columns.test_accuracy ? "test_accuracy" : "test_loss", column = columns[name];
    if (column && row >= 0) parts.push(`${column.label} ${show(name, column.values[row])}`);
    return parts.join(" · ");
  }

  /**
   * Clients in each activity, from rows of groups.
   * @param {Stage} stage
   * @param {Run} run
   */
  function shares({ now, activities, picked }, run) {
    const { heat } = run, sums = activities.map(() => 0);
    if (!heat) return sums;
    const bin = Math.min(heat.bins - 1, Math.floor((now * heat.bins) / run.duration_s)), within = new Set();
    for (let k = 0; picked && k < run.count; k++) if (picked[k]) within.add(heat.group[k]);
    heat.sizes.forEach((size, row) => {
      if (!picked || within.has(row)) activities.forEach((_, k) => { sums[k] += size * heat.shares[(row * heat.bins + bin) * activities.length + k]; });
    });
    return sums;
  }

  /**
   * What the restriction of a run covers: counts of its time and clients.
   * @param {Stage} stage
   * @param {Run} run
   */
  function restricted({ brush, picked, duration, words }, run) {
    const span = brush || { from: 0, to: duration }, { several, count, bytes } = words;
    const sums = Replay.totals(run, brush ? span.from / run.tick_s : -1, Canvas.tickOf(run, span.to), picked), parts = [];
    if (run.updates) parts.push(several(sums.updates, run.updates.time.length < run.updates.total ? "shown update" : "update"));
    if (sums.updates) parts.push(`mean staleness ${count(Math.round(10 * sums.staleness / sums.updates) / 10)}`);
    if (run.messages && run.messages.total) {
      parts.push(`${several(sums.messages, run.messages.sent.length < run.messages.total ? "shown message" : "message")} sent`, bytes(sums.bytes));
      if (sums.lost) parts.push(several(sums.lost, "lost attempt"));
    }
    return parts.join(", ");
  }

  /**
   * What was clicked, as elements; a message's client of the end has the buttons that choose it.
   * @param {Stage} stage
   * @returns {HTMLElement[]}
   */
  function about(stage) {
    const { chosen, words } = stage;
    if (!chosen) return [];
    const { run, client, message } = chosen;
    if (message !== undefined) return aboutMessage(stage, run, message);
    if (client === undefined) return [];
    if (run.grouped || client >= run.count) return aboutNode(stage, run, client);
    const tick = Canvas.tickOf(run, stage.now), row = Replay.intervalAt(run, client, tick), said = [];
    if (row >= 0 && run.timeline) {
      const ends = [run.timeline.start[row], run.timeline.end[row]].map((at) => words.clock(at * run.tick_s));
      const shared = sceneOf(stage, run).together.find(({ clients }) => clients.includes(client));
      const others = shared ? `, together with ${words.count(shared.clients.length - 1)} other clients` : "";
      said.push(`It ${WORDS[stage.activities[run.timeline.activity[row]]]} from ${ends[0]} to ${ends[1]}${others}`);
    }
    if (Replay.isWhole(run.updates)) said.push(`${words.several(Replay.updatesOf(run, client, tick), "update")} so far`);
    for (const key of ["accuracy", "distance", "epsilon"]) {
      const { of, label, show, has } = stage.colorings[key], value = of && has(run) ? of(run, client, tick) : NaN;
      if (Number.isFinite(value)) said.push(`${label} ${show(value)}`);
    }
    const lines = [element("h3", `Client ${client} (${run.title})`), element("p", said.join("; "))];
    if (run.clients.updates) lines.push(element("p", ledger(stage, run, client)));
    return [...lines, ...histogram(stage, run, client)];
  }

  /**
   * The whole run of a client: its time, and its privacy.
   * @param {Stage} stage
   * @param {Run} run
   * @param {number} client
   */
  function ledger({ words: { bytes, long, trim, several } }, run, client) {
    const of = (/** @type {string} */ name) => (run.clients[name] ? run.clients[name][client] : NaN);
    const shares = ["compute", "communicate", "wait", "offline"].map((name) => `${MANY[name]} ${long(of(`${name}_s`))}`).join(", ");
    const spent = Number.isFinite(of("epsilon")) ? `Certified at the end: epsilon ${trim(of("epsilon"))} at delta ${trim(of("delta"))}.` : "No certified epsilon.";
    const slow = run.slowness[client] >= 2 ? ` It needs ${trim(run.slowness[client])} times the median time per update.` : "";
    return `Whole run: ${several(of("samples"), "example")}, ${several(of("updates"), "update")}, ${bytes(of("bytes"))} sent; ${shares}. ${spent}${slow}`;
  }

  /**
   * @param {Stage} stage
   * @param {Run} run
   * @param {number} node
   */
  function aboutNode(stage, run, node) {
    const lines = [element("h3", `${Graph.isClient(run, node) ? "" : "The "}${run.nodes[node]} (${run.title})`)];
    const members = Graph.membersOf(run, sceneOf(stage, run))[node], tick = Canvas.tickOf(run, stage.now), said = [];
    for (const [key, { of, label, show, has }] of Object.entries(stage.colorings)) {
      const values = of && has(run) ? members.map((k) => of(run, k, tick)).filter(Number.isFinite) : [];
      if (!values.length) continue;
      const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
      said.push(`${label}: mean ${key === "updates" || key === "staleness" ? stage.words.count(Math.round(10 * mean) / 10) : show(mean)}, largest ${show(values.reduce((a, b) => Math.max(a, b)))}`);
    }
    if (said.length) lines.push(element("p", said.join("; ")));
    return lines;
  }

  /**
   * When a message was sent, arrived and was used, its bytes, and the versions of models.
   * @param {Stage} stage
   * @param {Run} run
   * @param {number} i
   */
  function aboutMessage({ words, now }, run, i) {
    const m = run.messages, { clock, long, bytes, several, count } = words;
    if (!m) return [];
    const at = (/** @type {number} */ tick) => clock(tick * run.tick_s), name = (/** @type {number} */ node) => Graph.nameOf(run, node);
    const lines = [element("h3", `Message from ${name(m.source[i])} to ${name(m.target[i])} (${run.title})`)];
    const { attempt, phase } = Replay.attemptAt(run, i, Canvas.tickOf(run, now));
    const where = phase === "falls" ? ` Attempt ${attempt + 1} was lost.` : phase === "waits" ? ` It waits to be sent again.` : "";
    const lost = m.resends[i] ? ` It was lost and sent again: ${count(m.resends[i])} ×.${where}` : "";
    lines.push(element("p", `Sent at ${at(m.sent[i])}, delivered at ${at(m.delivered[i])}, after ${long(m.length[i] * run.tick_s)}. ${bytes(m.bytes[i])}.${lost}`));
    const end = `client ${Replay.endOf(run, i)}`, versions = Replay.versions(run, i);
    if (!run.updates) return lines;
    const used = m.used[i] === Replay.NEVER ? `It is not used: ${end} made no later update.`
      : `Used by the next update of ${end} at ${at(m.used[i])}, with staleness ${count(m.staleness[i])}${run.staleness === "steps" ? " in steps of the server" : ""}.`;
    lines.push(element("p", used));
    if (!versions) return lines;
    const own = versions.own < 0 ? "" : `${name(m.source[i])} had made ${several(versions.own, "update")}, and `;
    const after = versions.after < 0 ? "" : ` ${several(versions.after, "update")} came between that and its use.`;
    const read = versions.read < 0 ? "" : ` The update that used it is number ${count(versions.used + 1)}, of a gradient at version ${count(versions.read)}.`;
    lines.push(element("p", `Versions: when it was sent, ${own}all clients ${count(versions.all)}.${after}${read}`));
    return lines;
  }

  /**
   * A histogram of a client's staleness, in the time that views are restricted to.
   * @param {Stage} stage
   * @param {Run} run
   * @param {number} client
   */
  function histogram({ brush, words: { count, trim, clock } }, run, client) {
    const values = Replay.stalenessOf(run, client, brush ? brush.from / run.tick_s : -1, brush ? Canvas.tickOf(run, brush.to) : Replay.NEVER);
    const when = brush ? ` from ${clock(brush.from)} to ${clock(brush.to)}` : "";
    if (!values.length) return run.updates ? [element("p", `No update${when}.`)] : [];
    const high = values.reduce((a, b) => Math.max(a, b)), width = Math.max(1, Math.ceil((high + 1) / 50)), bars = new Array(Math.floor(high / width) + 1).fill(0);
    for (const value of values) bars[Math.floor(value / width)]++;
    const top = Math.max(...bars), box = element("div", undefined, { class: "bars", role: "img", "aria-label": `Histogram of staleness from 0 to ${high}` });
    for (const bar of bars) {
      const part = element("i");
      part.style.height = `${(100 * bar) / top}%`;
      part.style.opacity = bar ? "1" : "0";
      box.append(part);
    }
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    return [box, element("p", `Staleness of its ${values.length === 1 ? "update" : `${count(values.length)} updates`}${when}: 0 to ${count(high)}, mean ${trim(mean)}.`)];
  }

  /**
   * The table of clients at the moment; with a restriction, of its clients, and with the counts of its time.
   * @param {Stage} stage
   * @param {Run} run
   */
  function table(stage, run) {
    const { words, picked, brush, activities, colorings } = stage, scene = sceneOf(stage, run);
    const tick = Canvas.tickOf(run, stage.now), made = element("table"), head = element("tr");
    const clients = Array.from({ length: run.count }, (_, k) => k).filter((k) => !picked || picked[k]), rows = clients.slice(0, MOST_ROWS);
    const few = rows.length < clients.length ? `: the first ${rows.length} of ${words.count(clients.length)} clients` : "";
    const shown = Object.entries(colorings).filter(([key, { has }]) => has(run) && (key !== "activity" || run.timeline));
    made.append(element("caption", `${run.title} at ${words.clock(stage.now)}${few}`), head);
    const inside = brush && run.updates ? ["updates in the chosen time", "their mean staleness"] : [];
    head.append(...["client", ...shown.map(([, { label }]) => label), ...inside].map((text) => element("th", text)));
    for (const k of rows) {
      const cells = shown.map(([, { of, show }]) => {
        if (!of) return scene.activity[k] < 0 ? "–" : WORDS[activities[scene.activity[k]]];
        const value = of(run, k, tick);
        return Number.isFinite(value) ? show(value) : "–";
      });
      if (brush && inside.length) {
        const values = Replay.stalenessOf(run, k, brush.from / run.tick_s, Canvas.tickOf(run, brush.to));
        cells.push(words.count(values.length), values.length ? words.trim(values.reduce((a, b) => a + b) / values.length) : "–");
      }
      const row = element("tr");
      row.append(...[String(k), ...cells].map((text) => element("td", text)));
      made.append(row);
    }
    return made;
  }

  return { WORDS, line, restricted, about, table };
})();
