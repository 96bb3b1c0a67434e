"use strict";
(() => {
  const page = JSON.parse(document.getElementById("values").textContent);
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("heterophony-theme"); } catch { return null; } };
  let theme = chosen() || (dark.matches ? "dark" : "light");

  const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const contrast = (hex) => {
    const [r, g, b] = channels(hex).map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.2 ? "#ffffff" : "#10141a";
  };
  // Colours are names in the figures; here they become what the theme says.
  const look = (name, now) => {
    if (name.startsWith("@@")) {
      const stops = page.scales[name.slice(2)][now];
      return stops.map((shade, i) => [i / (stops.length - 1), shade]);
    }
    if (name.startsWith("@^")) return contrast(page.colors[now][name.slice(2)]);
    const [key, share] = name.slice(1).split("/");
    const shade = page.colors[now][key];
    return share ? `rgba(${channels(shade).join(",")},${share / 100})` : shade;
  };
  const dressed = (value, now) => {
    if (typeof value === "string") return value.startsWith("@") ? look(value, now) : value;
    if (Array.isArray(value)) return value.map((item) => dressed(item, now));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, dressed(item, now)]));
    }
    return value;
  };

  const hidden = {};  // by figure: the names that were switched off
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const paint = (plot, now) => {
    const made = page.plots[plot.id], off = hidden[plot.dataset.figure] || new Set();
    const data = dressed(made.data, now).map((t) => ({ ...t, visible: off.has(t.legendgroup) ? false : true }));
    // On paper a figure does not grow by itself.
    const size = root.classList.contains("printing") ? { width: plot.clientWidth, height: plot.clientHeight } : {};
    return Plotly.react(plot, data, { ...dressed(made.layout, now), ...size }, config);
  };
  const plots = [...document.querySelectorAll(".plot")];
  const repaint = (now) => plots.forEach((plot) => plot.dataset.drawn && paint(plot, now));

  const wear = (now) => {
    theme = now;
    root.dataset.theme = now;
    button.textContent = now === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to the ${now === "dark" ? "light" : "dark"} theme`);
    repaint(now);
  };
  button.addEventListener("click", () => {
    wear(theme === "dark" ? "light" : "dark");
    try { localStorage.setItem("heterophony-theme", theme); } catch { /* a page from a file may have no storage */ }
  });
  dark.addEventListener("change", () => chosen() || wear(dark.matches ? "dark" : "light"));

  document.querySelectorAll(".legend button").forEach((chip) => chip.addEventListener("click", () => {
    const off = (hidden[chip.dataset.figure] ||= new Set()), name = chip.dataset.name;
    off.has(name) ? off.delete(name) : off.add(name);
    chip.setAttribute("aria-pressed", String(!off.has(name)));
    plots.filter((p) => p.dataset.figure === chip.dataset.figure && p.dataset.drawn).forEach((p) => paint(p, theme));
  }));

  const draw = (plot) => {
    if (plot.dataset.drawn) return;
    plot.dataset.drawn = "1";
    paint(plot, theme);
  };
  // Figures are drawn as they come into view, and all of them before a page is printed.
  const watcher = new IntersectionObserver((seen) => seen.forEach((one) => {
    if (one.isIntersecting) { draw(one.target); watcher.unobserve(one.target); }
  }), { rootMargin: "600px" });
  wear(theme);
  plots.forEach((plot) => watcher.observe(plot));
  const everything = () => plots.forEach(draw);
  const fit = () => plots.forEach((plot) => Plotly.Plots.resize(plot));
  addEventListener("beforeprint", () => { root.classList.add("printing"); everything(); repaint("light"); });
  addEventListener("afterprint", () => { root.classList.remove("printing"); repaint(theme); fit(); });
  if (location.hash === "#all") everything();
  window.heterophony = { draw: everything, drawn: () => plots.filter((p) => p.querySelector(".main-svg")).length };
})();
