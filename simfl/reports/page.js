// The figure of curves: menus choose the axes, names switch curves, pointer and arrow keys read off values.
"use strict";
(() => {
  const chart = document.getElementById("chart");
  if (!chart) return;
  let { labels, series } = JSON.parse(document.getElementById("data").textContent);
  const readout = document.getElementById("readout");
  const menu = { x: document.getElementById("x"), y: document.getElementById("y") };
  const hidden = new Set();  // labels
  // From which size on a unit reads best, what it is, and what it is called; as in simfl's other figures.
  const units = {
    time: [[172800, 86400, "d"], [7200, 3600, "h"], [600, 60, "min"], [1, 1, "s"], [1e-3, 1e-3, "ms"], [0, 1e-6, "µs"]],
    bytes: [[1e12, 1e12, "TB"], [1e9, 1e9, "GB"], [1e6, 1e6, "MB"], [1e3, 1e3, "kB"], [0, 1, "B"]],
  };
  let state = null;  // what is drawn now: scales, curves, width
  let at = null;     // where values are read off, in units of the x axis

  const rows = (one, x, y) => (one.curves[x] && one.curves[x][y]) || [];
  const has = (x, y) => series.some((one) => rows(one, x, y).length > 0);
  const trim = (value) => String(Number(value.toPrecision(4)));
  const show = (axis, value) => (axis === "test_accuracy" ? (100 * value).toFixed(2) + " %" : trim(value));

  function fill(select, names, possible) {
    const before = select.value;
    select.replaceChildren(...Object.keys(names).filter(possible).map((key) => new Option(names[key], key)));
    if ([...select.options].some((option) => option.value === before)) select.value = before;
  }

  function ticks(low, high, count) {
    const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step || 0);  // no -0
    return found;
  }

  function element(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function draw() {
    const x = menu.x.value, y = menu.y.value, width = chart.clientWidth;
    if (!x || width < 100) return;  // no curve yet, or not on the screen
    const height = Math.max(280, Math.min(440, width * 0.5));
    const box = { left: 58, right: width - 12, top: 12, bottom: height - 46 };
    const shown = series.map((one, i) => ({ i, rows: hidden.has(one.label) ? [] : rows(one, x, y) })).filter((c) => c.rows.length);
    const xs = shown.flatMap((c) => c.rows.map((r) => r[0]));
    const ys = shown.flatMap((c) => c.rows.flatMap((r) => r.slice(1)));
    const right = Math.max(...xs, 1e-30);
    const [, divisor, unit] = (units[x] || [[0, 1, ""]]).find(([size]) => right >= size);
    let low = Math.min(...ys), high = Math.max(...ys);
    if (y === "test_accuracy") {  // from 0, or higher if all but a short first rise takes place above
      const usual = Math.min(...shown.map((c) => c.rows.map((r) => r[1]).sort((a, b) => a - b)[Math.floor(c.rows.length / 20)]));
      low = usual >= 0.5 ? Math.floor((usual - 0.1) * 10) / 10 : 0;
      high = Math.min(1, high);
    }
    if (y === "epsilon" || (low > 0 && low < 0.4 * high)) low = 0;
    const room = (high - low) * 0.04 || 0.5;
    high += y === "test_accuracy" ? Math.min(room, 1 - high) : room;
    low -= low === 0 || y === "test_accuracy" ? 0 : room;
    const px = (v) => box.left + (v / right) * (box.right - box.left);
    const py = (v) => box.bottom - ((v - low) / (high - low)) * (box.bottom - box.top);
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, height });
    for (const v of ticks(low, high, 5)) {
      svg.append(element("line", { class: "grid", x1: box.left, x2: box.right, y1: py(v), y2: py(v) }));
      const text = y === "test_accuracy" ? trim(100 * v) + " %" : trim(v);
      svg.append(element("text", { x: box.left - 8, y: py(v) + 4, "text-anchor": "end" }, text));
    }
    for (const v of ticks(0, right / divisor, width < 500 ? 4 : 8)) {
      svg.append(element("text", { x: px(v * divisor), y: box.bottom + 19, "text-anchor": "middle" }, v.toLocaleString("en")));
    }
    const title = labels.x[x] + (unit ? ` (${unit})` : "");
    svg.append(element("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, title));
    const frame = element("clipPath", { id: "frame" });
    frame.append(element("rect", { x: box.left, y: box.top - 2, width: box.right - box.left + 2, height: box.bottom - box.top + 3 }));
    const curves = element("g", { "clip-path": "url(#frame)" });
    svg.append(frame, curves);
    for (const { i, rows: points } of shown) {
      const color = `var(--s${i})`, place = (v, w) => `${px(v).toFixed(1)},${py(w).toFixed(1)}`;
      if (points[0].length > 2) {
        const over = points.map((r) => place(r[0], r[3])), under = points.map((r) => place(r[0], r[2]));
        curves.append(element("path", { class: "band", d: `M${over.join("L")}L${under.reverse().join("L")}Z`, style: `fill:${color}` }));
      }
      const d = "M" + points.map((r) => place(r[0], r[1])).join("L");
      curves.append(element("path", { class: "curve", d, style: `stroke:${color}`, "stroke-dasharray": series[i].dash || "none" }));
    }
    if (!shown.length) svg.append(element("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing to show"));
    chart.replaceChildren(svg);
    state = { x, y, px, py, box, right, shown, unit, divisor, svg, width };
    if (at !== null) read();
  }

  function value(points, v) {
    if (v < points[0][0] || v > points[points.length - 1][0]) return null;
    const k = Math.max(1, points.findIndex((r) => r[0] >= v)), a = points[k - 1], b = points[k] || a;
    const share = b[0] > a[0] ? (v - a[0]) / (b[0] - a[0]) : 0;
    return a[1] + share * (b[1] - a[1]);
  }

  function read() {
    chart.querySelectorAll(".tip, .cross, .dot").forEach((old) => old.remove());
    if (at === null) return;
    const { x, y, px, py, box, shown, unit, divisor, svg, width } = state;
    svg.append(element("line", { class: "cross", x1: px(at), x2: px(at), y1: box.top, y2: box.bottom }));
    const tip = document.createElement("div"), head = document.createElement("b");
    tip.className = "tip";
    head.textContent = `${labels.x[x]}: ${trim(at / divisor)} ${unit}`;
    tip.append(head);
    const told = [head.textContent];
    const found = shown.map((c) => [c.i, value(c.rows, at)]).filter(([, v]) => v !== null).sort((a, b) => b[1] - a[1]);
    for (const [i, v] of found) {
      svg.append(element("circle", { class: "dot", cx: px(at), cy: py(v), r: 4, style: `fill:var(--s${i})` }));
      const line = document.createElement("span"), dot = document.createElement("i"), number = document.createElement("em");
      dot.style.background = `var(--s${i})`;
      number.textContent = show(y, v);
      line.append(dot, series[i].label, number);
      tip.append(line);
      told.push(`${series[i].label} ${number.textContent}`);
    }
    chart.append(tip);
    const left = px(at) + 14 + tip.offsetWidth > width ? px(at) - 14 - tip.offsetWidth : px(at) + 14;
    tip.style.left = `${Math.max(0, left)}px`;
    readout.textContent = told.join("; ");
  }

  chart.addEventListener("pointermove", (event) => {
    const { box, right } = state, place = event.clientX - chart.getBoundingClientRect().left;
    at = place < box.left - 6 || place > box.right + 6
      ? null : Math.max(0, Math.min(right, ((place - box.left) / (box.right - box.left)) * right));
    read();
  });
  chart.addEventListener("pointerleave", () => { at = null; read(); });
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") at = null;
    else if (step) at = Math.max(0, Math.min(state.right, (at === null ? state.right / 2 : at) + (step * state.right) / 50));
    else return;
    event.preventDefault();
    read();
  });
  const switched = (key) => key.addEventListener("click", () => {
    const { label } = series[Number(key.dataset.series)], off = !hidden.has(label);
    if (off) hidden.add(label); else hidden.delete(label);
    key.setAttribute("aria-pressed", String(!off));
    draw();
  });
  document.querySelectorAll(".key").forEach(switched);
  menu.y.addEventListener("change", () => { fill(menu.x, labels.x, (x) => has(x, menu.y.value)); at = null; draw(); });
  menu.x.addEventListener("change", () => { fill(menu.y, labels.y, (y) => has(menu.x.value, y)); at = null; draw(); });
  const fillBoth = () => {
    fill(menu.y, labels.y, (y) => Object.keys(labels.x).some((x) => has(x, y)));
    fill(menu.x, labels.x, (x) => has(x, menu.y.value));
  };
  fillBoth();
  new ResizeObserver(() => { if (!state || state.width !== chart.clientWidth) draw(); }).observe(chart);
  draw();
  window.addEventListener("beforeprint", () => { at = null; read(); });

  /** Show other curves; menus and switches stay as they are. A series has also its color. */
  window.simflCurves = (data) => {
    ({ labels, series } = data);
    series.forEach(({ color }, i) => document.documentElement.style.setProperty(`--s${i}`, color));
    document.querySelector(".legend").replaceChildren(...series.map(({ label, dash }, i) => {
      const key = document.createElement("button"), swatch = element("svg", { class: "swatch", width: 30, height: 10, "aria-hidden": true });
      swatch.append(element("line", { x1: 1, y1: 5, x2: 29, y2: 5, style: `stroke:var(--s${i})`, "stroke-dasharray": dash || "none" }));
      Object.assign(key, { type: "button", className: "key" }).setAttribute("aria-pressed", String(!hidden.has(label)));
      key.dataset.series = i;
      key.append(swatch, label);
      switched(key);
      return key;
    }));
    fillBoth();
    draw();
  };
})();
