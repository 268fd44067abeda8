"use strict";
// Puts an interactive chart in the place of each static figure that has one. Where anything fails,
// the static figure stays.
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const config = () => {
    const axis = {
      labelColor: colour("--ink"), titleColor: colour("--ink"), domainColor: colour("--ink"),
      tickColor: colour("--ink"), gridColor: colour("--grid"),
    };
    const legend = { labelColor: colour("--ink"), titleColor: colour("--ink") };
    return { axis, legend, view: { stroke: "transparent" } };
  };
  const inDark = (value, from, to) => {
    if (Array.isArray(value)) return value.map((item) => inDark(item, from, to));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, inDark(v, from, to)]));
    }
    const place = from.indexOf(value);
    return place < 0 ? value : to[place];
  };
  const light = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195"];
  const draw = async (figure) => {
    const chart = figure.querySelector(".chart");
    const still = figure.querySelector(".static");
    const own = light.map((_, index) => colour(`--c${index + 1}`));
    const text = figure.querySelector(".spec").textContent;
    const { data, ...rest } = JSON.parse(text);
    const spec = { data, ...inDark(rest, light, own) };
    spec.config = { ...spec.config, ...config(), legend: { ...spec.config.legend, ...config().legend } };
    chart.hidden = false;
    for (const view of spec.vconcat ?? []) view.width = Math.max(240, chart.clientWidth - 90);
    try {
      const actions = { export: true, source: false, compiled: false, editor: false };
      await vegaEmbed(chart, spec, { mode: "vega-lite", renderer: "svg", actions, defaultStyle: false });
      still.hidden = true;
    } catch (error) {
      chart.hidden = true;
      console.error(error);
    }
  };
  const all = () => document.querySelectorAll("figure:has(.spec)").forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  all();
})();
