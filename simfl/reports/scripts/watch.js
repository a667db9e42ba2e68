// A page about a run or a sweep that is under way: asks its own server for what was written meanwhile.
"use strict";
/**
 * @typedef {{ status: string, words: string, page?: string }} RunOfSweep
 * @typedef {{ seeds: string[], rows: { label: string, runs: Record<string, RunOfSweep> }[] }} Grid
 * @typedef {{ series: { colors: string[] }[] }} SweepCurves
 * @typedef {object} Answer  What `simfl.reports.watch` answers; only the first three if nothing has changed.
 * @property {string} version
 * @property {string} state
 * @property {number} next_s
 * @property {any[]} [runs]
 * @property {string[]} [activities]
 * @property {string[]} [notes]
 * @property {Grid} [grid]
 * @property {SweepCurves} [curves]
 */
(() => {
  const $ = (/** @type {string} */ query) => /** @type {HTMLElement} */ (document.querySelector(query));
  const state = $("#state");
  let version = "";
  /** @type {Shown | null} */
  let shown = null;

  /**
   * Replace the lines about what a run lacks.
   * @param {string[]} notes
   */
  function tellNotes(notes) {
    $("#notes").replaceChildren(...notes.map((note) => {
      const line = document.createElement("p");
      line.className = "note";
      line.textContent = note;
      return line;
    }));
  }

  /**
   * Show the runs of a sweep: a row for each label, a cell for each seed.
   * @param {Grid} grid
   */
  function tellGrid({ rows, seeds }) {
    /** @type {(name: string, text: string, attributes?: Record<string, string>) => HTMLElement} */
    const cell = (name, text, attributes = {}) => {
      const made = document.createElement(name);
      made.textContent = text;
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      return made;
    };
    const row = (/** @type {HTMLElement[]} */ ...cells) => { const made = document.createElement("tr"); made.append(...cells); return made; };
    $("#grid thead").replaceChildren(row(cell("td", ""), ...seeds.map((seed) => cell("th", `seed ${seed}`, { scope: "col" }))));
    $("#grid tbody").replaceChildren(...rows.map(({ label, runs }) => row(
      cell("th", label, { scope: "row" }),
      ...seeds.map((seed) => {
        const run = runs[seed], box = cell("td", "", { class: `run ${run ? run.status : ""}` });
        if (!run) return box;
        box.append(run.page ? cell("a", run.status, { href: run.page, target: "_blank", rel: "noreferrer" }) : run.status, cell("small", run.words));
        return box;
      }),
    )));
  }

  /** @param {Answer} answer */
  async function show(answer) {
    if (answer.runs) shown = await showRuns({ runs: answer.runs, activities: answer.activities || [], live: true }, shown);
    if (answer.notes) tellNotes(answer.notes);
    if (answer.grid) tellGrid(answer.grid);
    if (answer.curves) {
      $("#curves").hidden = !answer.curves.series.length;
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      /** @type {any} */ (window).simflCurves({ ...answer.curves, series: answer.curves.series.map((one) => ({ ...one, color: one.colors[dark ? 1 : 0] })) });
    }
    version = answer.version;
  }

  async function ask() {
    /** @type {Answer | null} */
    let answer = null;
    try {
      answer = await (await fetch(`data?since=${version}`, { cache: "no-store" })).json();
    } catch {
      state.textContent = "simfl watch has ended. This is what it showed last.";
    }
    if (answer) {
      state.textContent = answer.state;
      if (answer.version !== version) await show(answer);
    }
    document.documentElement.dataset.asked = version;
    setTimeout(ask, 1000 * (answer ? answer.next_s : 10));
  }

  ask();
})();
