"use strict";
(function () {
  const content = JSON.parse(document.getElementById("report-data").textContent);
  const chosen = content.chosen;
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const axis = { labelColor: "var(--soft)", titleColor: "var(--soft)", gridColor: "var(--line)", domainColor: "var(--line)",
    tickColor: "var(--line)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 0, titleLimit: 0 };
  const config = { background: "transparent", font: "system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif",
    axis: axis, view: { stroke: null }, legend: { disable: true }, padding: { left: 5, right: 14, top: 5, bottom: 5 } };

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

  // What pointing at marks tells, as a table for those who do not point; made when it is first opened.
  function inNumbers(details) {
    if (!details.open || details.querySelector("table")) return;
    const [spec, table] = details.closest("figure").querySelector(".canvas").dataset.chart.split(" ").map(Number);
    const tips = content.specs[spec].layer.map((layer) => layer.encoding && layer.encoding.tooltip).find(Array.isArray);
    // On a phone rows are cards, and only roles then tell that this is a table.
    const add = (parent, kind, role, text) => {
      const child = parent.appendChild(document.createElement(kind));
      child.setAttribute("role", role);
      if (text !== undefined) child.textContent = text;
      return child;
    };
    const frame = add(details, "div", "region");
    frame.className = "scroll";
    frame.tabIndex = 0;
    frame.setAttribute("aria-label", "The chart above in numbers");
    const made = add(frame, "table", "table");
    const heads = add(add(made, "thead", "rowgroup"), "tr", "row");
    const body = add(made, "tbody", "rowgroup");
    tips.forEach((tip) => { add(heads, "th", "columnheader", tip.title).scope = "col"; });
    records(content.tables[table]).forEach((record) => {
      const row = add(body, "tr", "row");
      tips.forEach((tip) => {
        const cell = add(row, "td", "cell", formatted(record[tip.field], tip));
        cell.dataset.head = tip.title;
        if (tip.type !== "quantitative") cell.className = "words";
      });
    });
  }

  function formatted(value, tip) {
    if (value === null) return "none";
    if (tip.type === "temporal") return value.replace("T", " ").replace(/\.000$/, "");
    if (tip.type !== "quantitative") return value;
    if (tip.format.endsWith("%")) return (100 * value).toFixed(1) + "\u00a0%";
    const size = Math.abs(value);
    return value && (size >= 1e12 || size < 1e-6) ? value.toExponential(3) : value.toLocaleString("en", { maximumSignificantDigits: 7 });
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

  document.querySelectorAll("details").forEach((details) => {
    details.addEventListener("toggle", () => inNumbers(details));
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
