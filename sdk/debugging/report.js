"use strict";
// Draws the report's plots from the JSON beside it. The text, the table included, works without any of this.

const data = JSON.parse(document.getElementById("data").textContent);
const layers = data.layers;
const EXACT = 200; // dB that stand for no difference at all
const LEFT = 44, RIGHT = 14;
const first = data.first_diverging;
let selected = first ?? hardest();
let hovered = null;

const $ = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const number = (value) => value.toLocaleString("en");
const percent = (share) => share === 0 ? "0 %" : share < 0.0001 ? "<0.01 %" : `${(100 * share).toFixed(2)} %`;
const decibels = (db) => db >= EXACT ? "exact" : `${db.toFixed(1)} dB`;
const clean = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

function hardest() {
  // The layer that loses most to quantisation, or the first one.
  const db = layers.map((layer) => layer.float ? layer.float.sqnr_db : Infinity);
  return Math.max(0, db.indexOf(Math.min(...db)));
}

function element(parent, name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function status(layer) {
  // equal, wrong by itself, wrong because of its inputs, or kept by the target in another layer's result.
  if (!layer.target) return layer.op === "Quantize" ? "host" : "fused";
  if (!layer.target.mismatches) return "equal";
  return layer.target.own_mismatches ? "broken" : "follows";
}

// -- along the depth ------------------------------------------------------------------------------------

let centre = () => 0;

function drawDepth() {
  const box = $("depth");
  const width = Math.max(box.clientWidth, LEFT + RIGHT + 1.8 * layers.length);
  const step = (width - LEFT - RIGHT) / layers.length;
  centre = (index) => LEFT + (index + 0.5) * step;
  box.replaceChildren();
  const svg = element(box, "svg", { width, height: 10, role: "img", "aria-label": data.plot_label });
  let top = 0;
  const title = (text) => element(svg, "text", { x: LEFT, y: (top += 24) - 8, class: "title" }, text);

  const errors = layers.map((layer) => layer.float);
  const broken = layers.map((layer) => layer.target && layer.target.mismatches ? layer.target.sqnr_db : null);
  if (errors.some(Boolean) || first !== null) {
    title("Signal to noise in dB");
    top = drawDecibels(svg, top, width, errors, broken) + 10;
  }
  title("Target against reference");
  layers.forEach((layer, index) => drawStatus(svg, layer, centre(index), top + 8, Math.min(step * 0.8, 13)));
  top += 24;
  if (layers.some((layer) => layer.onnxruntime)) {
    title("Reference against onnxruntime");
    const most = Math.max(1, ...layers.map((layer) => layer.onnxruntime ? layer.onnxruntime.max_abs_diff : 0));
    layers.forEach((layer, index) => {
      const by = layer.onnxruntime ? layer.onnxruntime.max_abs_diff : null;
      const height = by ? 4 + 16 * by / most : 4;
      const fill = by === null ? "var(--none)" : by ? "var(--alone)" : "var(--good)";
      element(svg, "rect", { x: centre(index) - step * 0.4, y: top + 20 - height, width: step * 0.8, height, fill, rx: 1 });
    });
    element(svg, "text", { x: LEFT - 6, y: top + 20, "text-anchor": "end" }, most > 1 ? `≤ ${most}` : "");
    top += 30;
  }
  const shares = layers.map((layer) => [layer.saturated, layer.float ? layer.float.clipped : 0]);
  const peak = Math.max(...shares.flat());
  title(peak ? `Saturated, clipped (red): up to ${percent(peak)}` : "Saturated: none");
  if (peak) {
    const height = 44, base = top + height;
    element(svg, "line", { x1: LEFT, x2: width - RIGHT, y1: base, y2: base, class: "axis" });
    shares.forEach((pair, index) => pair.forEach((share, kind) => {
      const tall = share ? Math.max(1.5, height * share / peak) : 0;
      const fill = kind ? "var(--bad)" : "var(--signal)";
      element(svg, "rect", { x: centre(index) - step * (kind ? 0.2 : 0.4), y: base - tall, width: step * (kind ? 0.4 : 0.8), height: tall, fill, rx: 1 });
    }));
    top = base + 12;
  }
  title("Quantised levels in use");
  const height = 128;
  const image = density(layers.map((layer) => layer.counts));
  element(svg, "image", { x: LEFT, y: top, width: width - LEFT - RIGHT, height, href: image, preserveAspectRatio: "none", style: "image-rendering: pixelated" });
  for (const [level, share] of [["most", 0], ["least", 1]])
    element(svg, "text", { x: LEFT - 6, y: top + 4 + share * height, "text-anchor": "end" }, level);
  layers.forEach((layer, index) => {
    const y = top + height * (1 - (layer.zero_level + 0.5) / 256);
    element(svg, "line", { x1: centre(index) - step / 2, x2: centre(index) + step / 2, y1: y, y2: y, stroke: "var(--alone)", "stroke-width": 1.5 });
  });
  top += height + 18;
  const every = Math.ceil(40 / step);
  for (let index = 0; index < layers.length; index += every)
    element(svg, "text", { x: centre(index), y: top, "text-anchor": "middle" }, index);
  element(svg, "text", { x: LEFT, y: top + 18 }, "layer, in the order of execution");
  svg.setAttribute("height", top + 24);
  element(svg, "rect", { id: "cursor", y: 0, width: Math.max(step, 3), height: top - 12, fill: "var(--signal)", "fill-opacity": 0.13, rx: 3, "pointer-events": "none" });
  element(svg, "rect", { id: "hover", y: 0, width: Math.max(step, 3), height: top - 12, fill: "var(--ink)", "fill-opacity": 0, rx: 3, "pointer-events": "none" });
  moveCursor();
}

function drawDecibels(svg, top, width, errors, broken) {
  const finite = [...errors.flatMap((e) => e ? [e.sqnr_db, e.own_sqnr_db ?? e.sqnr_db] : []), ...broken.filter((db) => db !== null)]
    .filter((db) => db < EXACT);
  const high = Math.max(20, 10 * Math.ceil(Math.max(...finite, 0) / 10));
  const low = Math.max(-40, Math.min(0, 10 * Math.floor(Math.min(...finite, 0) / 10)));
  const height = 190;
  const y = (db) => top + 6 + height * (high - Math.min(Math.max(db, low), high)) / (high - low);
  for (let db = low; db <= high; db += high - low > 60 ? 20 : 10) {
    element(svg, "line", { x1: LEFT, x2: width - RIGHT, y1: y(db), y2: y(db), class: db === 0 ? "axis" : "grid" });
    element(svg, "text", { x: LEFT - 6, y: y(db) + 4, "text-anchor": "end" }, db);
  }
  const runs = [];
  errors.forEach((error, index) => {
    if (!error) return runs.push([]);
    if (!runs.length) runs.push([]);
    runs.at(-1).push([centre(index), y(error.sqnr_db)]);
  });
  for (const run of runs.filter((run) => run.length)) {
    const line = run.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" ");
    const floor = y(low).toFixed(1);
    element(svg, "polygon", { points: `${run[0][0]},${floor} ${line} ${run.at(-1)[0]},${floor}`, fill: "var(--signal)", "fill-opacity": 0.1 });
    element(svg, "polyline", { points: line, fill: "none", stroke: "var(--signal)", "stroke-width": 2, "stroke-linejoin": "round" });
  }
  errors.forEach((error, index) => {
    if (!error || error.own_sqnr_db === null) return;
    const exact = error.own_sqnr_db >= EXACT; // beyond any scale: an empty circle at the top
    element(svg, "circle", { cx: centre(index), cy: y(error.own_sqnr_db), r: 3, fill: exact ? "var(--card)" : "var(--alone)", stroke: "var(--alone)" });
  });
  const points = broken.map((db, index) => db === null ? null : [centre(index), y(db)]);
  element(svg, "polyline", { points: points.filter(Boolean).map((p) => p.join(",")).join(" "), fill: "none", stroke: "var(--bad)", "stroke-width": 2, "stroke-dasharray": "5 3" });
  points.forEach((p) => p && element(svg, "circle", { cx: p[0], cy: p[1], r: 2.5, fill: "var(--bad)" }));
  if (first !== null) {
    const x = centre(first), right = x > width / 2, name = layers[first].node;
    const letters = Math.floor((right ? x - LEFT : width - RIGHT - x) / 8) - 7; // that fit
    element(svg, "line", { x1: x, x2: x, y1: top, y2: y(low), stroke: "var(--bad)", "stroke-width": 1.5 });
    element(svg, "text", { x: x + (right ? -7 : 7), y: y(low) - 8, "text-anchor": right ? "end" : "start", style: "fill: var(--bad); font-weight: 600" }, `first: ${name.length > letters ? "…" + name.slice(-letters) : name}`);
  }
  return y(low) + 4;
}

function drawStatus(svg, layer, x, y, size) {
  const kind = status(layer), tall = Math.max(size, 6), line = Math.min(2, size / 3);
  const box = (inset, style) => element(svg, "rect", { x: x - size / 2 + inset, y: y - tall / 2 + inset, width: size - 2 * inset, height: tall - 2 * inset, rx: Math.min(2, size / 4), ...style });
  if (kind === "broken") {
    const half = tall / 2, d = `M${x - half},${y - half}l${tall},${tall}m${-tall},0l${tall},${-tall}`;
    element(svg, "path", { d, stroke: "var(--bad)", "stroke-width": 3, "stroke-linecap": "round" });
  } else if (kind === "fused" || kind === "host") {
    element(svg, "circle", { cx: x, cy: y, r: Math.max(0.7, size / 6), fill: "var(--none)" });
  } else if (kind === "follows") box(line / 2, { fill: "none", stroke: "var(--follow)", "stroke-width": line });
  else box(0, { fill: "var(--good)" });
}

function shade(name) {
  const scratch = document.createElement("canvas").getContext("2d");
  scratch.fillStyle = colour(name);
  scratch.fillRect(0, 0, 1, 1);
  return scratch.getImageData(0, 0, 1, 1).data;
}

function bitmap(width, height, strength, name) {
  // A canvas in which each pixel is the colour, as opaque as strength(x, y), 0 to 1.
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d"), pixels = context.createImageData(width, height), [r, g, b] = shade(name);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++)
    pixels.data.set([r, g, b, 255 * strength(x, y)], 4 * (y * width + x));
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function density(columns) {
  const bins = columns[0].length;
  const most = columns.map((counts) => Math.max(...counts));
  const strength = (x, y) => {
    const count = columns[x][bins - 1 - y];
    return count ? 0.12 + 0.88 * (Math.log1p(count) / Math.log1p(most[x])) ** 2 : 0;
  };
  return bitmap(columns.length, bins, strength, "signal").toDataURL();
}

function moveCursor() {
  const cursor = $("cursor"), hover = $("hover"), step = centre(1) - centre(0);
  cursor.setAttribute("x", centre(selected) - Math.max(step, 3) / 2);
  hover.setAttribute("fill-opacity", hovered === null ? 0 : 0.1);
  if (hovered !== null) hover.setAttribute("x", centre(hovered) - Math.max(step, 3) / 2);
}

// -- one layer ------------------------------------------------------------------------------------------

function facts(layer) {
  const real = (level) => (layer.scale * (level - layer.zero_point)).toPrecision(4);
  const rows = [
    ["operator", layer.op], ["output", `${layer.shape.join(" × ")} ${layer.dtype}`], ["tensor", layer.tensor],
    ["scale, zero-point", `${layer.scale.toPrecision(5)}, ${layer.zero_point}`],
    ["range used", `${layer.used[0]} to ${layer.used[1]} (${percent(layer.range_used)}), real ${real(layer.used[0])} to ${real(layer.used[1])}`],
    ["clamp", `${layer.clamp[0]} to ${layer.clamp[1]}`],
    ["saturated, zero", `${percent(layer.saturated)}, ${percent(layer.zeros)}`],
  ];
  if (layer.float) {
    const own = layer.float.own_sqnr_db;
    rows.push(["against float", `${decibels(layer.float.sqnr_db)}${own === null ? "" : `, alone ${decibels(own)}`}; ${percent(layer.float.clipped)} beyond the range`]);
  }
  if (layer.gain_db !== null) rows.push(["in floats", `the outputs gain ${layer.gain_db.toFixed(1)} dB`]);
  if (layer.onnxruntime) {
    const o = layer.onnxruntime;
    rows.push(["against onnxruntime", o.mismatches ? `${number(o.mismatches)} differ, by up to ${o.max_abs_diff}; this layer alone by ${o.own_max_abs_diff}` : "equal"]);
  } else if (layer.onnxruntime_in) rows.push(["against onnxruntime", `in ${layer.onnxruntime_in}`]);
  if (layer.target) {
    const t = layer.target;
    rows.push(["on the target", t.mismatches ? `${number(t.mismatches)} of ${number(t.elements)} differ, by up to ${t.max_abs_diff} (${decibels(t.sqnr_db)}); ${number(t.own_mismatches)} of them its own` : "equal"]);
    if (t.first) rows.push(["first mismatch", `[${t.first.index.join(", ")}]: ${t.first.target} instead of ${t.first.reference}`]);
  } else rows.push(["on the target", layer.target_in ? `kept in ${layer.target_in}` : "not kept"]);
  return rows;
}

function drawLayer() {
  const layer = layers[selected], box = $("histogram");
  $("layer-name").textContent = `${selected} · ${layer.node}`;
  $("layer-facts").innerHTML = facts(layer).map(([key, value]) => `<dt>${clean(key)}</dt><dd>${clean(String(value))}</dd>`).join("");
  const width = box.clientWidth, height = 220, bottom = height - 34, bins = layer.counts.length;
  box.replaceChildren();
  const svg = element(box, "svg", { width, height, role: "img", "aria-label": `values of ${layer.node} by quantised level` });
  const step = (width - 16) / bins, share = (counts) => counts.map((count) => Math.sqrt(count / Math.max(1, counts.reduce((a, b) => a + b))));
  const bars = share(layer.counts), outline = layer.float_counts ? share(layer.float_counts) : [];
  const most = Math.max(...bars, ...outline), y = (value) => bottom - (bottom - 12) * value / most;
  bars.forEach((value, bin) => value && element(svg, "rect", { x: 8 + bin * step + 0.5, y: y(value), width: Math.max(0.5, step - 1), height: bottom - y(value), fill: "var(--signal)", "fill-opacity": 0.55 }));
  if (outline.length) {
    const d = outline.map((value, bin) => `${bin ? "L" : "M"}${8 + bin * step},${y(value)}H${8 + (bin + 1) * step}`).join("");
    element(svg, "path", { d, fill: "none", stroke: "var(--alone)", "stroke-width": 1.5 });
  }
  element(svg, "line", { x1: 8, x2: width - 8, y1: bottom, y2: bottom, class: "axis" });
  const least = layer.zero_point - layer.zero_level;
  const at = (level) => 8 + (level - least + 0.5) / 256 * (width - 16);
  const zero = at(layer.zero_point);
  element(svg, "line", { x1: zero, x2: zero, y1: bottom, y2: bottom + 5, stroke: "var(--ink)" });
  for (const [level, anchor] of [[least, "start"], [least + 255, "end"]]) {
    const real = (layer.scale * (level - layer.zero_point)).toPrecision(3);
    element(svg, "text", { x: anchor === "start" ? 8 : width - 8, y: bottom + 28, "text-anchor": anchor }, `${level}: ${real}`);
  }
  if (zero > 80 && zero < width - 80) element(svg, "text", { x: zero, y: bottom + 18, "text-anchor": "middle" }, `${layer.zero_point}: 0`);
}

function select(index, scroll) {
  document.querySelector(`tr[data-layer="${selected}"]`)?.setAttribute("aria-selected", "false");
  selected = Math.min(Math.max(index, 0), layers.length - 1);
  document.querySelector(`tr[data-layer="${selected}"]`)?.setAttribute("aria-selected", "true");
  moveCursor();
  const box = $("depth"), x = centre(selected);
  if (x < box.scrollLeft + LEFT || x > box.scrollLeft + box.clientWidth - RIGHT) box.scrollLeft = x - box.clientWidth / 2;
  drawLayer();
  if (scroll) $("layer").scrollIntoView({ behavior: "smooth", block: "nearest" });
}

// -- the first diverging layer --------------------------------------------------------------------------

function drawDivergence() {
  const found = data.divergence, box = $("maps");
  if (!found || !box) return;
  box.replaceChildren();
  const figure = (caption, canvas, width, height, label) => {
    const node = document.createElement("figure"), text = document.createElement("figcaption");
    text.textContent = caption;
    [width, height] = [Math.max(width, 12), Math.max(height, 12)]; // a single row or column is still seen
    canvas.style.width = `${Math.round(width)}px`;
    canvas.style.aspectRatio = `${width} / ${height}`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", label);
    node.append(text, canvas);
    box.append(node);
  };
  const rows = found.peak.length, columns = found.peak[0].length, room = box.clientWidth;
  if (rows * columns > 1) {
    const most = Math.max(...found.peak.flat());
    const scale = Math.max(1, Math.min(300 / rows, Math.min(460, room) / columns));
    const strength = (x, y) => found.peak[y][x] ? 0.2 + 0.8 * found.peak[y][x] / most : 0;
    figure(`rows × columns (${found.shape.join(" × ")}): the greatest difference over the channels, up to ${most}`, bitmap(columns, rows, strength, "bad"), columns * scale, rows * scale, "map of differences");
  }
  const count = found.channels.length, most = found.channels.reduce((a, b) => Math.max(a, b));
  if (count < 2) return;
  const wide = Math.min(count, Math.max(1, Math.ceil(Math.sqrt(count * 2)))), tall = Math.ceil(count / wide);
  const scale = Math.max(2, Math.min(28, Math.min(460, room) / wide));
  const strength = (x, y) => {
    const wrong = found.channels[y * wide + x];
    return wrong ? 0.25 + 0.75 * wrong / most : y * wide + x < count ? 0.04 : 0;
  };
  figure(`channels (${count}, ${wide} to a line): share of elements that differ`, bitmap(wide, tall, strength, "bad"), wide * scale, tall * scale, "map of channels that differ");
}

// -- all together ---------------------------------------------------------------------------------------

function under(event) {
  const box = $("depth").querySelector("svg").getBoundingClientRect(), step = centre(1) - centre(0);
  const index = Math.floor((event.clientX - box.left - LEFT) / step);
  return index >= 0 && index < layers.length ? index : null;
}

function showTip(event) {
  hovered = under(event);
  const tip = $("tip");
  tip.hidden = hovered === null;
  if (hovered !== null) {
    const layer = layers[hovered], words = { equal: "equal to the reference", broken: "wrong by itself", follows: "wrong because of its inputs", fused: layer.target_in ? `kept in ${layer.target_in}` : "not kept", host: "done by the host" };
    const lines = [`${layer.op}, ${layer.shape.join(" × ")}`, words[status(layer)]];
    if (layer.float) lines.push(`float: ${decibels(layer.float.sqnr_db)}`);
    if (layer.target && layer.target.mismatches) lines.push(`${number(layer.target.mismatches)} mismatches`);
    tip.innerHTML = `<b>${hovered} · ${clean(layer.node)}</b>${lines.map(clean).join("<br>")}`;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - width - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - height - 8)}px`;
  }
  moveCursor();
}

function draw() {
  drawDepth();
  drawLayer();
  drawDivergence();
}

const plot = $("depth");
plot.addEventListener("pointermove", showTip);
plot.addEventListener("pointerleave", () => { hovered = null; $("tip").hidden = true; moveCursor(); });
plot.addEventListener("click", (event) => { const index = under(event); if (index !== null) select(index); });
plot.addEventListener("keydown", (event) => {
  const move = { ArrowRight: selected + 1, ArrowLeft: selected - 1, Home: 0, End: layers.length - 1 }[event.key];
  if (move !== undefined) { event.preventDefault(); select(move); }
});
document.querySelectorAll("button.layer").forEach((button) =>
  button.addEventListener("click", () => select(Number(button.closest("tr").dataset.layer), true)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
let waiting;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(draw, 80); });
document.body.classList.add("live");
draw();
select(selected);
