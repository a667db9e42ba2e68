// The player: the clock, the menus, keys and pointers.
"use strict";
/**
 * @typedef {{ runs: any[], activities: string[], live?: boolean }} Content  What `simfl.reports.player.data_of` returns.
 * @typedef {ReturnType<typeof startPlayer>} Shown
 */

/**
 * Show runs on a page. `live` starts at their end and follows it. The runs that were shown `before` are replaced:
 * moment, view, menus and what was chosen stay as they are. `root` has the page's elements.
 * @param {Content} content
 * @param {Shown | null} before
 * @param {Document | ShadowRoot} root
 */
async function showRuns(content, before = null, root = document) {
  const runs = await Promise.all(content.runs.map(Replay.prepare));
  return startPlayer(runs, content.activities, content.live === true, before ? before.leave() : null, root);
}

/**
 * @typedef {object} Kept  What the next runs on a page take over.
 * @property {number} now
 * @property {Span} view
 * @property {Span | null} brush
 * @property {Uint8Array | null} picked
 * @property {Record<string, string>} menus
 * @property {{ position: number, client: number } | null} client
 * @property {boolean} playing
 * @property {boolean} atEnd
 * @property {boolean} whole
 *
 * @param {Run[]} runs
 * @param {string[]} activities
 * @param {boolean} live
 * @param {Kept | null} kept
 * @param {Document | ShadowRoot} root
 */
function startPlayer(runs, activities, live, kept, root) {
  const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (root.getElementById(id));
  const field = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ ($(id));
  const menu = (/** @type {string} */ id) => /** @type {HTMLSelectElement} */ ($(id));
  const canvas = (/** @type {string} */ id) => /** @type {HTMLCanvasElement} */ ($(id));
  const page = root instanceof Document ? root.documentElement : root.host;
  const left = new AbortController();
  /** @type {(target: EventTarget, type: string, action: (event: any) => void) => void} */
  const listen = (target, type, action) => target.addEventListener(type, action, { signal: left.signal });
  const duration = Math.max(...runs.map((run) => run.duration_s)) || 1;
  const calm = matchMedia("(prefers-reduced-motion: reduce)"), dark = matchMedia("(prefers-color-scheme: dark)");
  const span_s = Math.min(...runs.map(usual_s), duration / 20);
  const words = Words(duration, span_s), most = Colors.mostOf(runs), SCRUB = 100000;
  let playing = false, frame = 0, last = 0, drawn = 0;

  const articles = /** @type {HTMLElement[]} */ ([...root.querySelectorAll(".run")]);
  /** @type {Stage} */
  const stage = {
    runs, activities, words, most, duration, colors: Colors.LIGHT, colorings: Colors.colorings(runs, words, most),
    scenes: new Map(runs.map((run, k) => [run, sceneOf(run, articles[k])])), curveCache: new Map(),
    now: 0, view: { from: 0, to: duration }, brush: null, picked: null, chosen: null, mode: "", measure: "",
  };

  /**
   * The usual time that a client computes; it decides about speed and digits.
   * @param {Run} run
   */
  function usual_s({ timeline, tick_s }) {
    if (!timeline) return duration / 60;
    const computing = [], step = Math.max(1, Math.floor(timeline.start.length / 2000));
    for (let i = 0; i < timeline.start.length; i += step) if (timeline.activity[i] === 0) computing.push(timeline.end[i] - timeline.start[i]);
    return (Replay.median(computing) || Replay.NEVER / 60) * tick_s;
  }

  /**
   * @param {Run} run
   * @param {HTMLElement} article
   * @returns {Scene}
   */
  function sceneOf(run, article) {
    const [graph, lanes] = /** @type {HTMLCanvasElement[]} */ ([...article.querySelectorAll("canvas")]);
    return { article, graph, lanes, cache: new Map(), placed: null, members: null, activity: new Int8Array(run.count).fill(-1), flying: [], lines: [], together: [] };
  }

  // ---- menus -----------------------------------------------------------------------------------------------------
  const usable = Object.keys(stage.colorings).filter((key) => runs.some((run) => stage.colorings[key].has(run)));
  menu("color").replaceChildren(...usable.map((key) => new Option(stage.colorings[key].label, key)));
  menu("measure").replaceChildren(...Curves.names(runs).map(([name, label]) => new Option(label, name)));
  /** @type {number[]} */
  const rates = [];
  for (let power = Math.floor(Math.log10(duration)) - 7; power <= Math.log10(duration); power++) {
    for (const m of [1, 2, 5]) rates.push(Number(`${m}e${power}`));
  }
  menu("speed").replaceChildren(...rates.filter((rate) => rate <= duration / 2).map((rate) => new Option(`${words.long(rate)} per second`, String(rate))));
  const away = (/** @type {number} */ rate) => Math.abs(Math.log(rate / (3 * span_s)));
  menu("speed").value = String(rates.reduce((best, rate) => (away(rate) < away(best) ? rate : best)));

  const occurring = activities.filter((_, k) => runs.some((run) => (run.timeline ? run.timeline.activity.includes(k)
    : run.heat && run.heat.shares.some((share, i) => share > 0 && i % activities.length === k))));

  function legend() {
    const coloring = stage.colorings[stage.mode], parts = [];
    const bar = () => {
      const made = element("i", undefined, { class: "ramp" });
      made.style.background = `linear-gradient(90deg, ${Colors.RAMP.join(",")})`;
      return made;
    };
    if (coloring && coloring.of) {
      const part = element("span");
      part.append(`${coloring.ends[0]} `, bar(), ` ${coloring.ends[1]}`);
      parts.push(part);
    }
    for (const name of occurring) {
      const part = element("span"), dot = element("i");
      dot.style.background = name === "wait" && stage.mode === "activity" ? `radial-gradient(${stage.colors.paper} 40%, ${stage.colors[name]} 45%)` : stage.colors[name];
      part.append(dot, Details.WORDS[name]);
      parts.push(part);
    }
    if (runs.some((run) => run.messages && run.messages.total && run.updates)) {
      const part = element("span");
      part.append("messages by staleness: 0 ", bar(), ` ${words.count(Math.round(most.staleness))}`);
      parts.push(part);
    }
    $("legend").replaceChildren(...parts);
  }

  // ---- the moment ------------------------------------------------------------------------------------------------
  /** The time that can be reached: all of it, or what views are restricted to. */
  const span = () => stage.brush || { from: 0, to: duration };

  /**
   * @param {HTMLElement} place
   * @param {string} text
   */
  const say = (place, text) => { if (place.textContent !== text) place.textContent = text; };

  function showAll() {
    const { from, to } = span(), length = stage.view.to - stage.view.from;
    stage.now = Math.max(from, Math.min(to, stage.now));
    if (stage.now < stage.view.from || stage.now > stage.view.to) {
      const begin = Math.max(from, Math.min(to - length, stage.now - 0.1 * length));
      stage.view = { from: begin, to: begin + length };
    }
    for (const [run, scene] of stage.scenes) {
      const tick = Canvas.tickOf(run, stage.now);
      for (let k = 0; k < run.count && run.timeline; k++) scene.activity[k] = Replay.activityAt(run, k, tick);
      Graph.draw(stage, run);
      Lanes.draw(stage, run);
      say(/** @type {HTMLElement} */ (scene.article.querySelector(".now")), Details.line(stage, run));
    }
    Curves.draw(stage, canvas("curve"));
    say($("clock"), words.clock(stage.now));
    const at = String(Math.round(((stage.now - from) / (to - from)) * SCRUB));
    if (field("scrub").value !== at) field("scrub").value = at;
    if (playing) return;
    field("scrub").setAttribute("aria-valuetext", words.clock(stage.now));
    tell();
  }

  /** Say what was clicked, and fill the table of the moment. */
  function tell() {
    const box = $("details"), moment = /** @type {HTMLDetailsElement} */ ($("moment"));
    box.hidden = !stage.chosen;
    if (stage.chosen) {
      const close = element("button", "×", { type: "button", class: "close", "aria-label": "Close" });
      close.addEventListener("click", () => choose(null));
      box.replaceChildren(close, ...Details.about(stage));
    }
    page.dispatchEvent(new CustomEvent("moment"));
    if (moment.open) /** @type {HTMLElement} */ (moment.querySelector(".scroll")).replaceChildren(...runs.map((run) => Details.table(stage, run)));
  }

  function ask() {
    if (!frame) frame = requestAnimationFrame(step);
  }

  /** @param {number} time */
  function step(time) {
    frame = 0;
    if (!playing) { showAll(); return; }
    const wait = calm.matches ? 500 : 0;  // reduced motion: two pictures per second
    if (time - drawn >= wait) {
      stage.now = Math.min(span().to, stage.now + ((time - (last || time)) / 1000) * Number(menu("speed").value));
      last = drawn = time;
      if (stage.now >= span().to) setPlaying(false);
      showAll();
    }
    if (playing) ask();
  }

  /** @param {boolean} value */
  function setPlaying(value) {
    playing = value;
    last = 0;
    $("play").textContent = playing ? "⏸ pause" : "▶ play";
    $("play").setAttribute("aria-label", playing ? "Pause" : "Play");
    if (playing && stage.now >= span().to) stage.now = span().from;
    ask();
  }

  /** @param {number} seconds */
  function seek(seconds) {
    stage.now = Math.max(span().from, Math.min(span().to, seconds));
    ask();
  }

  /**
   * Go to the next (1) or last (-1) moment among the times of all runs.
   * @param {(run: Run) => Uint32Array} timesOf
   * @param {number} direction
   */
  function jump(timesOf, direction) {
    const { now } = stage, times = [];
    for (const run of runs) {
      // A tick more or less: now is a float, and may lie just before its own event.
      const tick = Replay.neighbor(timesOf(run), Math.round(now / run.tick_s), direction), time = tick === null ? now : tick * run.tick_s;
      if (direction > 0 ? time > now : time < now) times.push(time);
    }
    if (times.length) seek(direction > 0 ? Math.min(...times) : Math.max(...times));
  }

  /** @param {number} factor */
  function zoom(factor) {
    const { view, now } = stage, length = Math.min(duration, Math.max(duration / 1e6, (view.to - view.from) * factor));
    const share = Math.min(1, Math.max(0, (now - view.from) / (view.to - view.from)));
    const from = Math.max(0, Math.min(duration - length, now - share * length));
    stage.view = { from, to: from + length };
    if (stage.brush && (from < stage.brush.from || from + length > stage.brush.to)) restrict({ brush: factor > 1 && length >= duration ? null : stage.view });
    ask();
  }

  /** Let lanes show the whole run, and views everything. */
  function widest() {
    restrict({ brush: null, picked: null });
    stage.view = { from: 0, to: duration };
    ask();
  }

  /**
   * Restrict all views to a time, to clients, or to neither (null).
   * @param {{ brush?: Span | null, picked?: Uint8Array | null }} given
   */
  function restrict({ brush = stage.brush, picked = stage.picked }) {
    if (brush && brush.to - brush.from < duration / 1e6) brush = { from: brush.from, to: brush.from + duration / 1e6 };
    if (brush && brush !== stage.brush) {
      stage.view = { ...brush };
      if (stage.now < brush.from || stage.now > brush.to) stage.now = brush.from;
    }
    stage.brush = brush;
    stage.picked = picked;
    const parts = brush ? [`${words.clock(brush.from)} to ${words.clock(brush.to)}`] : [];
    if (picked) {
      const numbers = Array.from(picked.keys()).filter((k) => picked && picked[k]);
      parts.push(numbers.length > 12 ? `${words.count(numbers.length)} clients` : `client${numbers.length > 1 ? "s" : ""} ${numbers.join(", ")}`);
    }
    $("filter").hidden = !parts.length;
    if (parts.length) {
      const sums = runs.map((run) => `${runs.length > 1 ? `${run.title}: ` : ""}${Details.restricted(stage, run)}`).join("; ");
      $("restriction").textContent = `Only ${parts.join(", ")}. ${sums}`;
    }
    $("scrub").classList.toggle("part", brush !== null);
    ask();
  }

  /** Restrict views to the chosen client and its neighbors, or to the ends of the chosen message. */
  function around() {
    const { chosen } = stage;
    if (!chosen) return;
    const { run, client, message } = chosen, picked = new Uint8Array(run.count), nodes = new Set([client]);
    for (let i = 0; client !== undefined && i < run.links.length; i++) if (run.links[i] === client) nodes.add(run.links[i ^ 1]);
    const ends = message !== undefined && run.messages ? [run.messages.source[message], run.messages.target[message]] : [];
    for (let k = 0; k < run.count; k++) if (nodes.has(run.node_of[k]) || ends.includes(k)) picked[k] = 1;
    restrict({ picked });
  }

  /** @param {Chosen | null} value */
  function choose(value) {
    stage.chosen = value;
    tell();
    ask();
  }

  /** @param {number} by */
  function pick(by) {
    const { chosen } = stage, run = chosen ? chosen.run : runs[0], client = chosen && chosen.client !== undefined ? chosen.client : -by;
    choose({ run, client: Math.max(0, Math.min(run.nodes.length - 1, client + by)) });
  }

  // ---- buttons and keys ------------------------------------------------------------------------------------------
  const actions = {
    start: () => seek(span().from), back: () => { setPlaying(false); jump((run) => run.times, -1); }, play: () => setPlaying(!playing),
    next: () => { setPlaying(false); jump((run) => run.times, 1); }, evaluation: () => jump((run) => run.metrics.time, 1),
    closer: () => zoom(0.5), wider: () => zoom(2), whole: widest, everything: () => restrict({ brush: null, picked: null }),
  };
  for (const [id, action] of Object.entries(actions)) listen($(id), "click", action);
  listen($("scrub"), "input", () => seek(span().from + (Number(field("scrub").value) / SCRUB) * (span().to - span().from)));
  const menus = () => { stage.mode = menu("color").value; stage.measure = menu("measure").value; legend(); ask(); };
  listen($("color"), "change", menus);
  listen($("measure"), "change", menus);
  listen($("moment"), "toggle", ask);

  listen(root instanceof Document ? document : root.host, "keydown", (/** @type {KeyboardEvent} */ event) => {
    const tag = event.composedPath()[0] instanceof Element ? /** @type {Element} */ (event.composedPath()[0]).tagName : "", { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || tag === "SELECT") return;
    if (key === " " && (tag === "BUTTON" || tag === "SUMMARY")) return;
    const { now, chosen } = stage, { from, to } = span();
    /** @type {Record<string, (() => void) | null>} */
    const keys = {
      " ": actions.play, arrowright: actions.next, arrowleft: actions.back, home: () => seek(from), end: () => seek(to),
      e: actions.evaluation, "+": actions.closer, "-": actions.wider, c: () => pick(1), f: chosen && around,
      "[": () => restrict({ brush: { from: now, to: to > now ? to : duration } }), "]": () => restrict({ brush: { from: from < now ? from : 0, to: now } }),
      escape: () => { choose(null); widest(); }, arrowdown: chosen && (() => pick(1)), arrowup: chosen && (() => pick(-1)),
    };
    const act = keys[key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });

  // ---- pointers --------------------------------------------------------------------------------------------------
  /**
   * Let a canvas be clicked, and let a rectangle be drawn on it; `flat` ones reach from its top to its bottom.
   * @param {HTMLCanvasElement} target
   * @param {boolean} flat
   * @param {(x: number, y: number) => void} click
   * @param {(rectangle: [number, number, number, number]) => void} drag
   */
  function pointed(target, flat, click, drag) {
    /** @type {[number, number] | null} */
    let begun = null;
    const band = $("band");
    const place = (/** @type {PointerEvent} */ event) => {
      const box = target.getBoundingClientRect();
      return /** @type {[number, number]} */ ([event.clientX - box.left, event.clientY - box.top]);
    };
    /** @param {PointerEvent} event */
    function rectangle(event) {
      if (!begun) return null;
      const [x, y] = place(event), [x0, y0] = begun, [width, height] = [target.clientWidth, target.clientHeight];
      if (Math.hypot(x - x0, y - y0) < 5) return null;
      const inside = (/** @type {number} */ value, /** @type {number} */ most) => Math.max(0, Math.min(most, value));
      const ys = flat ? [0, height] : [inside(Math.min(y, y0), height), inside(Math.max(y, y0), height)];
      return /** @type {[number, number, number, number]} */ ([inside(Math.min(x, x0), width), ys[0], inside(Math.max(x, x0), width), ys[1]]);
    }
    listen(target, "pointerdown", (event) => {
      if (event.button) return;
      begun = place(event);
      target.setPointerCapture(event.pointerId);
    });
    listen(target, "pointermove", (event) => {
      const drawn = rectangle(event), box = target.getBoundingClientRect();
      band.hidden = !drawn;
      if (drawn) Object.assign(band.style, { left: `${box.left + drawn[0]}px`, top: `${box.top + drawn[1]}px`, width: `${drawn[2] - drawn[0]}px`, height: `${drawn[3] - drawn[1]}px` });
    });
    listen(target, "pointerup", (event) => {
      const drawn = rectangle(event), clicked = begun !== null;
      begun = null;
      band.hidden = true;
      if (drawn) drag(drawn); else if (clicked) click(...place(event));
    });
    listen(target, "pointercancel", () => { begun = null; band.hidden = true; });
    listen(target, "dblclick", widest);
  }

  for (const [run, { graph, lanes }] of stage.scenes) {
    pointed(graph, false, (x, y) => { setPlaying(false); choose(Graph.at(stage, run, x, y)); }, (rectangle) => restrict({ picked: Graph.within(stage, run, rectangle) }));
    pointed(lanes, false, (x, y) => { setPlaying(false); choose(Lanes.at(stage, run, x, y)); }, (rectangle) => {
      const { span: brush, picked } = Lanes.within(stage, run, rectangle);
      restrict(picked ? { brush, picked } : { brush });
    });
  }
  const seconds = (/** @type {number} */ x) => {
    const box = Curves.boxOf(canvas("curve").clientWidth, 0), share = (x - box.left) / (box.right - box.left);
    return span().from + Math.max(0, Math.min(1, share)) * (span().to - span().from);
  };
  pointed(canvas("curve"), true, (x) => seek(seconds(x)), ([from, , to]) => restrict({ brush: { from: seconds(from), to: seconds(to) } }));

  // ---- the page --------------------------------------------------------------------------------------------------
  for (const swatch of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll(".swatch"))) swatch.style.background = swatch.dataset.color || "";
  const repaint = () => { Canvas.sizes.clear(); stage.colors = Colors.read(page); legend(); ask(); };
  listen(dark, "change", repaint);
  listen(window, "beforeprint", () => { Canvas.sizes.clear(); stage.colors = Colors.LIGHT; legend(); showAll(); });
  listen(window, "afterprint", repaint);
  const observer = new ResizeObserver(() => { Canvas.sizes.clear(); ask(); });
  for (const one of root.querySelectorAll("canvas")) observer.observe(one);

  /**
   * Stop, and return what the next runs on this page take over.
   * @returns {Kept}
   */
  function leave() {
    left.abort();
    observer.disconnect();
    cancelAnimationFrame(frame);
    const { now, view, brush, picked, chosen } = stage;
    const values = Object.fromEntries(["color", "measure", "speed"].map((id) => [id, menu(id).value]));
    const client = chosen && chosen.client !== undefined ? { position: runs.indexOf(chosen.run), client: chosen.client } : null;
    return { now, view, brush, picked, menus: values, client, playing, atEnd: now >= edge, whole: view.from <= 0 && view.to >= duration };
  }

  /** @param {Kept} old */
  function takeOver(old) {
    for (const [id, value] of Object.entries(old.menus)) if ([...menu(id).options].some((option) => option.value === value)) menu(id).value = value;
    const shift = old.atEnd && !old.brush ? duration - old.view.to : 0;
    stage.now = old.atEnd && !old.brush ? edge : Math.min(duration, old.now);
    stage.view = old.whole ? { from: 0, to: duration } : { from: Math.max(0, old.view.from + shift), to: Math.min(duration, old.view.to + shift) };
    if (old.client && runs[old.client.position]) stage.chosen = { run: runs[old.client.position], client: old.client.client };
    if (old.brush || old.picked) restrict({ brush: old.brush, picked: old.picked && old.picked.length === runs[0].count ? old.picked : null });
    if (old.playing) setPlaying(true);
  }

  const length = Math.min(duration, 20 * span_s);
  // What a client does is written when it is over. The end of a run under way is where most of it is written.
  const edge = Math.min(duration, ...runs.map(({ status, timeline, count, tick_s }) => {
    if (status !== "running" || !timeline) return duration;
    const ends = Array.from({ length: count }, (_, k) => timeline.end[timeline.first[k + 1] - 1] || 0).sort((a, b) => a - b);
    return Math.max(duration - length / 2, ends[Math.floor(count / 8)] * tick_s * (1 - 1e-7));
  }));
  stage.view = live ? { from: duration - length, to: duration } : { from: 0, to: length };
  stage.now = live ? edge : 0;
  if (kept) takeOver(kept);
  stage.colors = Colors.read(page);
  menus();
  showAll();
  const shown = {
    runs, Replay, stage, leave, choose, restrict, seek: (/** @type {number} */ to) => { stage.now = to; showAll(); },
    get now() { return stage.now; }, get playing() { return playing; },
  };
  if (root instanceof Document) {
    Object.assign(window, { simfl: shown });  // for tests and for the console
    document.documentElement.dataset.ready = "true";
  }
  return shown;
}
