// The player as a widget of a notebook (anywidget): the same page in a shadow tree, and its moment in the kernel.
"use strict";
/**
 * @typedef {object} Model  The widget's values, which the kernel shares.
 * @property {(name: string) => any} get
 * @property {(name: string, value: any) => void} set
 * @property {() => void} save_changes
 * @property {(event: string, action: () => void) => void} on
 * @property {(event: string, action: () => void) => void} off
 */
const playerWidget = {
  /** @param {{ model: Model, el: HTMLElement }} given */
  async render({ model, el }) {
    const host = document.createElement("div"), style = element("style", model.get("_style"));
    host.tabIndex = 0;
    host.dataset.lmSuppressShortcuts = "true";  // keys are the player's while it has the focus
    el.append(host);
    const root = host.attachShadow({ mode: "open" }), body = element("div", undefined, { class: "page" });
    const parsed = new DOMParser().parseFromString(model.get("_body"), "text/html");
    body.style.height = `${Number(model.get("height"))}px`;
    body.append(...parsed.body.childNodes);
    root.append(style, body);
    const shown = await showRuns(JSON.parse(model.get("_data")), null, root);
    const told = () => {
      const { chosen } = shown.stage, client = chosen && chosen.client !== undefined ? chosen.client : null;
      if (model.get("now") === shown.now && model.get("client") === client) return;
      model.set("now", shown.now);
      model.set("client", client);
      model.save_changes();
    };
    const moved = () => { if (Math.abs(model.get("now") - shown.now) > 1e-12) shown.seek(model.get("now")); };
    host.addEventListener("moment", told);
    model.on("change:now", moved);
    return () => { model.off("change:now", moved); shown.leave(); };
  },
};
