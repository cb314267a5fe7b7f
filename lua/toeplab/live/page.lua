-- live/page.lua: the page that `toeplab report --serve` serves. It needs no other file, and no
-- network but its server. It requests state.json every two seconds, and the curves of the chosen
-- metric whenever they have a new version (server.lua).
return [[
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Toeplab</title>
<style>
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --soft: #666; --line: #ddd; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --paper: #181818; --soft: #aaa; --line: #444; }
}
body { font: 15px/1.45 sans-serif; color: var(--ink); background: var(--paper); margin: 1.2rem auto;
  max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; }
p { margin: .2rem 0 .8rem; }
.soft { color: var(--soft); }
form { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; align-items: center; }
svg { width: 100%; height: auto; margin: .6rem 0; }
svg text { fill: var(--ink); font: 13px sans-serif; }
.grid { stroke: var(--line); }
#legend { display: flex; flex-wrap: wrap; gap: .2rem .8rem; padding: 0; list-style: none; }
#legend button { font: inherit; color: inherit; background: none; border: 0; cursor: pointer; }
#legend button[aria-pressed=false] { opacity: .35; }
#legend i { display: inline-block; width: 1.4em; height: .25em; margin-right: .4em;
  vertical-align: middle; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid var(--line); }
</style>
</head>
<body>
<h1 id="title">Toeplab</h1>
<p id="line"></p>
<p id="cards" style="white-space: pre"></p>
<form>
<label>metric <select id="metric"></select></label>
<label>colour by <select id="by"></select></label>
<label>smoothing <input id="smooth" type="range" min="0" max="0.98" step="0.02" value="0"></label>
<label><input id="mean" type="checkbox"> means</label>
<label><input id="log" type="checkbox"> logarithmic</label>
</form>
<svg id="plot" viewBox="0 0 960 420" role="img" aria-label="curves"></svg>
<ul id="legend"></ul>
<div class="scroll"><table><thead id="head"></thead><tbody id="rows"></tbody></table></div>
<p class="soft" id="note"></p>
<script>
"use strict";
const at = id => document.getElementById(id);
const palette = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b",
  "#9467bd", "#7f7f7f", "#b5a900"];
const H = 420, right = 12, top_ = 10, bottom = 44;
let W = 960, left = 70; // W: as wide as the page, so that letters keep their size
let state = null, curves = {}, shown = "", hidden = new Set();

function make(name, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (text !== undefined) e.textContent = text;
  return e;
}

// Offers names, of which the chosen one stays chosen, else `first` is.
function choose(select, names, first) {
  if (select.dataset.names === JSON.stringify(names)) return;
  const chosen = names.includes(select.value) ? select.value : first;
  select.dataset.names = JSON.stringify(names);
  select.replaceChildren(...names.map(name => new Option(name, name)));
  select.value = chosen;
}

// An exponential mean that begins at the first value.
function smoothed(values, weight) {
  let mean = 0, sum = 0;
  return values.map(v => {
    if (v === null) return null;
    mean = weight * mean + (1 - weight) * v;
    sum = weight * sum + (1 - weight);
    return mean / sum;
  });
}

function value_at(line, x) {
  const n = line.x.length;
  if (n === 0 || x < line.x[0] || x > line.x[n - 1]) return null;
  let i = 0;
  while (line.x[i + 1] < x) i++;
  if (i === n - 1 || line.x[i] === x) return line.y[i];
  const part = (x - line.x[i]) / (line.x[i + 1] - line.x[i]);
  if (line.y[i] === null || line.y[i + 1] === null) return null;
  return line.y[i] + part * (line.y[i + 1] - line.y[i]);
}

// The mean of several lines at the places that all of them reach.
function mean_of(lines) {
  const low = Math.max(...lines.map(l => l.x[0])), mean = { x: [], y: [] };
  const high = Math.min(...lines.map(l => l.x[l.x.length - 1]));
  for (let i = 0; high >= low && i <= (high > low ? 200 : 0); i++) {
    const x = low + (high - low) * i / 200, values = lines.map(l => value_at(l, x));
    if (values.includes(null)) continue;
    mean.x.push(x);
    mean.y.push(values.reduce((a, b) => a + b) / values.length);
  }
  return mean;
}

function ticks(low, high) {
  const rough = (high - low) / 5 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough), list = [];
  for (let i = Math.ceil(low / step); i * step <= high + 1e-9 * step; i++) list.push(i * step);
  return list;
}

// Names the decades, or some numbers where there are fewer than two of them.
function log_ticks(low, high) {
  const list = [];
  for (let k = Math.ceil(Math.log10(low)); k <= Math.log10(high); k++) list.push(10 ** k);
  return list.length > 1 ? list : ticks(low, high).filter(v => v > 0);
}

// A tick as text, with the digits that tell it from its neighbours.
const short = (v, list) => String(Number(v.toPrecision(Math.max(4,
  2 + Math.ceil(Math.log10(Math.abs(v) / (list[1] - list[0] || 1)))))));

function lines_shown() {
  const key = state.keys.indexOf(at("by").value), names = [], groups = new Map();
  for (const t of Object.values(state.trials)) {
    const curve = curves[t.id], name = key < 0 ? t.label : t.keys[key];
    if (!names.includes(name)) names.push(name);
    if (!curve || curve[0].length === 0) continue;
    const line = { x: curve[0], y: smoothed(curve[1], Number(at("smooth").value)), name,
      colour: palette[names.indexOf(name) % palette.length], running: t.status === "running" };
    groups.set(name, [...(groups.get(name) || []), line]);
  }
  const list = [];
  for (const [name, lines] of groups) {
    if (hidden.has(name)) continue;
    const together = at("mean").checked && lines.length > 1;
    for (const line of lines) list.push({ ...line, faint: together });
    if (together) list.push({ ...mean_of(lines), colour: lines[0].colour, bold: true });
  }
  return { list, names };
}

function draw() {
  if (!state) return;
  W = Math.max(300, at("plot").clientWidth);
  at("plot").setAttribute("viewBox", `0 0 ${W} ${H}`);
  const { list, names } = lines_shown(), log = at("log").checked, parts = [];
  const fits = v => v !== null && (!log || v > 0);
  const drawn = new Set(list.filter(l => l.y.some(fits)).map(l => l.name));
  const ys = list.flatMap(l => l.y.filter(fits)), xs = list.flatMap(l => l.x);
  const ends = v => v.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)],
    [Infinity, -Infinity]);
  if (ys.length === 0) {
    parts.push(make("text", { x: W / 2, y: H / 2, "text-anchor": "middle" },
      log ? "no value above 0 is logged yet" : "no finite value is logged yet"));
  } else {
    let [x0, x1] = ends(xs), [y0, y1] = ends(ys);
    if (x0 === x1) { x0 -= 1; x1 += 1; }
    const half = Math.max(1, Math.abs(y0) / 1000); // values may differ by rounding: means do
    if (y1 - y0 <= Math.abs(y1) * 2 ** -46) { y0 -= log ? y0 / 2 : half; y1 += log ? y1 : half; }
    const place = log ? Math.log10 : v => v;
    const px = x => left + (x - x0) / (x1 - x0) * (W - left - right);
    const py = y => H - bottom - (place(y) - place(y0)) / (place(y1) - place(y0))
      * (H - top_ - bottom);
    const across = ticks(x0, x1).filter(Number.isInteger);
    const up = log ? log_ticks(y0, y1) : ticks(y0, y1);
    left = Math.max(70, ...up.map(y => 8 * short(y, up).length + 10));
    for (const x of across) {
      parts.push(make("line", { x1: px(x), x2: px(x), y1: top_, y2: H - bottom, class: "grid" }));
      parts.push(make("text", { x: px(x), y: H - bottom + 18, "text-anchor": "middle" },
        short(x, across)));
    }
    for (const y of up) {
      parts.push(make("line", { x1: left, x2: W - right, y1: py(y), y2: py(y), class: "grid" }));
      parts.push(make("text", { x: left - 8, y: py(y) + 4, "text-anchor": "end" },
        short(y, up)));
    }
    parts.push(make("text", { x: W / 2, y: H - 6, "text-anchor": "middle" }, "step"));
    for (const l of list) {
      let d = "", pen = "M";
      const there = i => i in l.y && fits(l.y[i]), opacity = l.faint ? .35 : 1;
      l.x.forEach((x, i) => {
        if (!there(i)) { pen = "M"; return; }
        if (!there(i - 1) && !there(i + 1)) // a path to no other point is invisible
          parts.push(make("circle", { cx: px(x), cy: py(l.y[i]), r: l.bold ? 5 : 3, fill: l.colour,
            opacity }));
        d += pen + px(x).toFixed(1) + " " + py(l.y[i]).toFixed(1);
        pen = "L";
      });
      parts.push(make("path", { d, fill: "none", stroke: l.colour, "stroke-linejoin": "round",
        "stroke-width": l.bold ? 3 : 1.5, opacity }));
    }
  }
  at("plot").replaceChildren(...parts);
  at("plot").setAttribute("aria-label", "curves of " + at("metric").value);
  at("legend").replaceChildren(...names.slice(0, 60).map((name, i) => {
    const item = document.createElement("li"), button = document.createElement("button");
    const mark = document.createElement("i");
    mark.style.background = palette[i % palette.length];
    button.append(mark, drawn.has(name) || hidden.has(name) ? name : name + " (no value to draw)");
    button.setAttribute("aria-pressed", String(!hidden.has(name)));
    button.onclick = () => {
      if (!hidden.delete(name)) hidden.add(name);
      draw();
    };
    item.append(button);
    return item;
  }));
}

function row_of(kind, cells) {
  const row = document.createElement("tr");
  for (const text of cells) {
    const cell = document.createElement(kind);
    cell.textContent = text;
    row.append(cell);
  }
  return row;
}

function fill() {
  document.title = state.title;
  at("title").textContent = state.title;
  at("cards").textContent = state.cards;
  at("line").textContent = state.line + (state.working ? "" : "  (no trial is running)");
  const metrics = Object.values(state.metrics);
  choose(at("metric"), metrics, metrics.includes("loss") ? "loss" : metrics[0]);
  choose(at("by"), ["trial", ...state.keys], "trial");
  at("head").replaceChildren(row_of("th", ["trial", "setting", "status", "step"]));
  at("rows").replaceChildren(...Object.values(state.trials).map(t =>
    row_of("td", [t.id, t.label, t.status, t.far])));
  at("note").textContent = (state.hidden ? state.hidden + " more trials are not shown. " : "")
    + (state.more ? state.more + " more metrics are not shown." : "");
}

async function get(name) {
  const answer = await fetch(name, { cache: "no-store" });
  if (!answer.ok) throw new Error(name + ": " + answer.status);
  return answer.json();
}

async function look() {
  const metrics = state ? Object.values(state.metrics) : [];
  const i = metrics.indexOf(at("metric").value) + 1;
  const version = i > 0 ? i + " " + Object.values(state.versions)[i - 1] : "";
  if (version === shown) return;
  curves = i > 0 ? await get("curve-" + i + ".json") : {};
  shown = version;
}

let next = 0;

async function update() {
  clearTimeout(next);
  try {
    state = await get("state.json");
    fill();
    await look();
    draw();
  } catch (e) {
    at("note").textContent = "The server has ended, or does not answer; this is its last state.";
  }
  next = setTimeout(update, 2000);
}

at("metric").onchange = update;
for (const id of ["by", "smooth", "mean", "log"]) at(id).oninput = draw;
window.onresize = draw;
at("by").addEventListener("change", () => hidden.clear());
document.querySelector("form").onsubmit = () => false;
void update();
</script>
</body>
</html>
]]
