"use strict";
(function () {
  const content = JSON.parse(document.getElementById("report-data").textContent);
  const chosen = content.chosen;
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const axis = { labelColor: "var(--soft)", titleColor: "var(--soft)", gridColor: "var(--line)", domainColor: "var(--line)",
    tickColor: "var(--line)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 0, titleLimit: 0 };
  const config = { background: "transparent", font: "system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif",
    axis: axis, view: { stroke: null }, legend: { disable: true } };

  function records(table) {
    const names = Object.keys(table);
    const n = names.length ? table[names[0]].length : 0;
    return Array.from({ length: n }, (_, row) => Object.fromEntries(names.map((name) => [name, table[name][row]])));
  }

  // A hidden chart has no width, so each is drawn when it is first seen.
  function draw(canvas) {
    if (canvas.dataset.drawn) return;
    canvas.dataset.drawn = "begun";
    const [spec, table] = canvas.dataset.chart.split(" ").map(Number);
    const whole = Object.assign({}, content.specs[spec], {
      data: { values: records(content.tables[table]) }, autosize: { type: "fit-x", contains: "padding" } });
    vegaEmbed(canvas, whole, { mode: "vega-lite", renderer: "svg", actions: false, config: config, hover: true, logLevel: 1,
      tooltip: { theme: isDark() ? "dark" : "light" } }).then(
      () => { canvas.dataset.drawn = "done"; },
      (error) => { canvas.dataset.drawn = "failed"; console.error(error); });
  }

  function show() {
    document.querySelectorAll("[data-when]").forEach((block) => {
      const when = JSON.parse(block.dataset.when);
      block.hidden = !Object.keys(when).every((key) => chosen[key] === when[key]);
    });
    document.querySelectorAll(".block:not([hidden]) .canvas").forEach(draw);
  }

  document.querySelectorAll("select[data-choice]").forEach((select) => {
    const key = select.dataset.choice;
    select.addEventListener("change", () => {
      chosen[key] = Number(select.value);
      document.querySelectorAll('[data-shown="' + key + '"]').forEach((place) => {
        place.textContent = select.selectedOptions[0].textContent;
      });
      show();
    });
  });

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
  }
  const button = document.getElementById("theme");
  function name() { button.textContent = isDark() ? "Light colours" : "Dark colours"; }
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  dark.addEventListener("change", name);
  name();
  show();
})();
