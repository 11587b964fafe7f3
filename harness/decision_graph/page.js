"use strict";
// Draws the graph of the element "data" on a canvas. Text from the data only ever becomes
// textContent. `graph` at the end is for the console and for tests.
const graph = (() => {
  const told = JSON.parse(document.getElementById("data").textContent);
  const {roots, nodes, edges} = told;
  const byId = new Map(nodes.map((node) => [node.id, node]));
  for (const node of nodes) Object.assign(node, {out: [], into: [], kids: []});
  for (const edge of edges) {
    edge.from = byId.get(edge.source);
    edge.to = byId.get(edge.target);
    edge.tree = edge.to.parent === edge.id;
    edge.from.out.push(edge);
    edge.to.into.push(edge);
    if (edge.tree) edge.from.kids.push(edge.to);
  }
  const bestEdges = new Set(roots.flatMap((root) => root.best_path));
  const bestStates = new Set(roots.map((root) => root.best));
  const element = (name) => document.getElementById(name);
  const canvas = element("graph"), pen = canvas.getContext("2d");

  // -- what colours and shapes mean: Okabe and Ito's palette, and cividis for speedups ------------
  const FAMILIES = {
    passed: ["circle", null], "": ["ring", "#8a8f98"],
    wrong_result: ["cross", "#d55e00"], flaky: ["cross", "#d55e00"],
    crash: ["square", "#cc79a7"], timeout: ["square", "#cc79a7"], out_of_memory: ["square", "#cc79a7"],
    illegal: ["diamond", "#56b4e9"], compile_error: ["diamond", "#56b4e9"],
  };
  const OPEN = ["triangle", "#e69f00"];  // too slow, noisy, suspect, not checked in full
  const CIVIDIS = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"];
  const speeds = nodes.filter((node) => node.speedup !== null).map((node) => node.speedup);
  const slow = speeds.length ? least(speeds) : 1;
  const fast = speeds.length ? -least(speeds.map((value) => -value)) : 1;
  function least(values) { return values.reduce((a, b) => Math.min(a, b), Infinity); }
  function colour(speedup) {
    const span = Math.log(fast / slow);
    const at = (span > 0 ? Math.log(speedup / slow) / span : 1) * (CIVIDIS.length - 1);
    const low = Math.min(CIVIDIS.length - 2, Math.floor(at)), rest = at - low;
    const part = (hex, i) => parseInt(hex.slice(1 + 2 * i, 3 + 2 * i), 16);
    const mix = (i) => Math.round(part(CIVIDIS[low], i) * (1 - rest) + part(CIVIDIS[low + 1], i) * rest);
    return `rgb(${mix(0)} ${mix(1)} ${mix(2)})`;
  }
  function glyph(on, status, speedup, x, y, r, ink) {
    const [shape, fixed] = FAMILIES[status] || OPEN;
    on.beginPath();
    if (shape === "cross") {
      for (const d of [1, -1]) { on.moveTo(x - r, y - d * r); on.lineTo(x + r, y + d * r); }
      on.lineWidth = Math.max(2, r / 2); on.strokeStyle = fixed; on.stroke();
      return;
    }
    if (shape === "square") on.rect(x - r * 0.85, y - r * 0.85, r * 1.7, r * 1.7);
    else if (shape === "diamond" || shape === "triangle") {
      const corners = shape === "diamond" ? [[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]] : [[0, -1.1], [1, 0.8], [-1, 0.8]];
      corners.forEach(([dx, dy], i) => on[i ? "lineTo" : "moveTo"](x + dx * r, y + dy * r));
      on.closePath();
    } else on.arc(x, y, shape === "ring" ? r * 0.75 : r, 0, 7);
    if (shape === "ring") { on.fillStyle = theme.ground; on.fill(); on.strokeStyle = fixed; on.lineWidth = 1.5; on.stroke(); return; }
    on.fillStyle = fixed || colour(speedup); on.fill();
    on.strokeStyle = ink; on.lineWidth = 1; on.stroke();
  }
  const theme = {};
  function readTheme() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ground", "ink", "quiet", "line", "best", "chosen", "panel"]) theme[name] = style.getPropertyValue(`--${name}`).trim();
  }

  // -- words ----------------------------------------------------------------------------------------
  const times = (speedup) => `${speedup.toFixed(2)}x`;
  const micro = (us) => us === null ? "" : `${us < 100 ? us.toPrecision(3) : Math.round(us)} µs`;
  const factor = (gain) => gain === null ? "" : `${Math.exp(gain).toFixed(2)}x`;
  const verdict = (node) => node.speedup !== null ? `${times(node.speedup)} ${node.status}` : node.status.replaceAll("_", " ") || "not judged";
  const short = (label) => label.replace(/\b\w+=/g, "");  // without the names of parameters
  const isRoot = (node) => roots[node.root].state === node.id;
  const kernel = (root) => root.workload.replace(/^tirgym:\/\//, "");
  const way = (node) => { const found = []; for (let at = node; at.parent !== null; at = edges[at.parent].from) found.unshift(edges[at.parent]); return found; };
  function gainText(edge) {
    if (edge.gain === null) return "";
    return edge.gain_from === "same IR" ? "same IR" : `${factor(edge.gain)} ${edge.gain_from}`;
  }
  function edgeText(edge) {
    const parts = [`visits ${edge.visits}`, gainText(edge)];
    if (edge.cost_gain) parts.push(`static cost says ${factor(edge.cost_gain)}`);
    if (edge.weight !== null) parts.push(`confidence ${edge.weight.toFixed(2)}`);
    if (edge.predicted_gain !== null) parts.push(`expected ${edge.predicted_gain.toFixed(2)}x`);
    if (edge.regret !== null) parts.push(edge.regret > 0.005 ? `regret ${factor(edge.regret)}` : "best choice here");
    return parts.filter(Boolean).join(", ");
  }

  // -- filter and search ------------------------------------------------------------------------------
  const statuses = [...new Set(nodes.map((node) => node.status))].sort();
  const wanted = new Set(statuses);
  let floor = 0, query = "", showBest = true, showAhead = false;
  const words = (node) => [node.id, node.code_key, node.status || "not judged", node.point, node.message, ...node.into.map((edge) => edge.label)].join("\n").toLowerCase();
  for (const node of nodes) node.words = words(node);
  function filter() {
    for (const node of nodes) {
      node.match = wanted.has(node.status) && (floor === 0 || (node.speedup !== null && node.speedup >= floor));
      node.hit = query !== "" && node.match && node.words.includes(query);
      node.shown = node.match;
    }
    for (const node of nodes) {
      if (node.match) for (const edge of way(node)) edge.from.shown = true;
    }
    listHits();
    const matching = nodes.filter((node) => node.match).length;
    element("counts").textContent = `${matching} of ${nodes.length} states, ${edges.length} edges` + (told.warnings.length ? `, ${told.warnings.length} warnings` : "");
    element("counts").title = told.warnings.join("\n");
    draw();
  }
  function listHits() {
    const list = element("found"), hits = nodes.filter((node) => node.hit);
    list.replaceChildren();
    list.hidden = query === "";
    const leads = (node) => node.best === null ? 0 : byId.get(node.best).speedup;
    hits.sort((a, b) => leads(b) - leads(a));
    const head = document.createElement("li");
    head.className = "said";
    head.textContent = hits.length > 20 ? `${hits.length} states, 20 that lead to the fastest:` : `${hits.length} states`;
    list.append(head);
    for (const node of hits.slice(0, 20)) {
      const last = node.parent === null ? kernel(roots[node.root]) : edges[node.parent].label;
      list.append(item(last, verdict(node) + (node.best === null || node.best === node.id ? "" : `, leads to ${times(leads(node))}`), node));
    }
  }

  // -- the panel --------------------------------------------------------------------------------------
  let chosen = null;
  function item(what, said, node) {
    const row = document.createElement("li"), button = document.createElement("button");
    for (const [name, text] of [["what", what], ["said", said]]) {
      const span = document.createElement("span");
      span.className = name;
      span.textContent = text;
      button.append(span);
    }
    button.addEventListener("click", () => select(node, true));
    row.append(button);
    return row;
  }
  function select(node, show) {
    chosen = node;
    const root = roots[node.root];
    element("headline").textContent = (isRoot(node) ? "unscheduled program: " : "") + verdict(node);
    const facts = [
      ["workload", kernel(root)], ["target", `${root.target.backend}/${root.target.arch}, ${root.target.num_threads} thread${root.target.num_threads === 1 ? "" : "s"}`],
      ["time", micro(node.latency_us)], ["static cost", micro(node.cost_us)], ["evaluated", node.level],
      ["visits", `${node.visits} by ${node.runs} run${node.runs === 1 ? "" : "s"}`], ["open question", node.point], ["message", node.message],
      ["best within reach", node.best === null ? "" : times(byId.get(node.best).speedup)],
      ["untried here", node.frontier ? node.frontier.untried.join(", ") : ""], ["IR key", node.ir_key], ["code key", node.code_key],
    ];
    element("facts").replaceChildren(...facts.filter(([, text]) => text).flatMap(([name, text]) => {
      const term = document.createElement("dt"), value = document.createElement("dd");
      term.textContent = name;
      value.textContent = text;
      return [term, value];
    }));
    element("way").replaceChildren(...way(node).map((edge) => item(edge.label, edgeText(edge), edge.to)));
    element("way-title").hidden = isRoot(node);
    const after = [...node.out].sort((a, b) => (byId.get(b.to.best)?.speedup || 0) - (byId.get(a.to.best)?.speedup || 0));
    element("next").replaceChildren(...after.map((edge) => item(edge.label, `${verdict(edge.to)}; ${edgeText(edge)}`, edge.to)));
    element("next-title").hidden = after.length === 0;
    if (show) reveal(node);
    draw();
  }

  // -- drawing ----------------------------------------------------------------------------------------
  const DX = 220;
  let DY = 26;  // more where there is room, see fit
  const view = {k: 1, x: 0, y: 0};
  const screen = (node) => [node.x * DX * view.k + view.x, node.y * DY * view.k + view.y];
  const radius = (node) => (node.status ? 5.5 : 4) + Math.min(4, Math.log2(1 + node.visits) * 0.6);
  let asked = false;
  function draw() {
    if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; paint(); }); }
  }
  function curve(edge) {
    const [ax, ay] = screen(edge.from), [bx, by] = screen(edge.to);
    if (edge.from === edge.to) return [ax, ay, ax - 18, ay - 26, ax + 18, ay - 26, bx, by];
    if (edge.tree) return [ax, ay, (ax + bx) / 2, ay, ax + (bx - ax) * 0.3, by, bx, by];
    const bend = 0.1 * (ax < bx ? bx - ax : ay - by || 40);
    return [ax, ay, ax + (bx - ax) / 3, ay + (by - ay) / 3 - bend, ax + 2 * (bx - ax) / 3, ay + 2 * (by - ay) / 3 - bend, bx, by];
  }
  function stroke(edge, style, width, dash) {
    const c = curve(edge);
    pen.beginPath();
    pen.moveTo(c[0], c[1]);
    pen.bezierCurveTo(...c.slice(2));
    pen.strokeStyle = style;
    pen.lineWidth = width;
    pen.setLineDash(dash || []);
    pen.stroke();
  }
  function paint() {
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const inside = (edge) => {
      const [ax, ay] = screen(edge.from), [bx, by] = screen(edge.to), far = 60;
      return Math.max(ax, bx) > -far && Math.min(ax, bx) < width + far && Math.max(ay, by) > -far && Math.min(ay, by) < height + far;
    };
    const visible = edges.filter((edge) => edge.from.shown && edge.to.shown && inside(edge));
    for (const edge of visible) stroke(edge, theme.line, Math.min(4, 1 + Math.log10(1 + edge.visits)), edge.tree ? [] : [4, 4]);
    if (showBest) for (const edge of visible) if (bestEdges.has(edge.id)) stroke(edge, theme.best, 6);
    if (chosen) for (const edge of way(chosen)) if (inside(edge)) stroke(edge, theme.chosen, 2.5);
    pen.setLineDash([]);
    const size = Math.min(1.3, Math.max(0.5, view.k));
    for (const node of nodes) {
      const [x, y] = screen(node);
      if (!node.shown || x < -20 || y < -20 || x > width + 20 || y > height + 20) continue;
      const r = radius(node) * size;
      pen.globalAlpha = node.match ? 1 : 0.3;
      glyph(pen, node.status, node.speedup, x, y, r, theme.ink);
      if (node.hit || (showAhead && node.frontier)) ring(x, y, r + 3.5, "#e69f00");
      if (showBest && bestStates.has(node.id)) ring(x, y, r + 3, theme.best);
      if (node === chosen) ring(x, y, r + 5, theme.chosen);
      pen.globalAlpha = 1;
    }
    label(width, height);
  }
  function ring(x, y, r, style) {
    pen.beginPath();
    pen.arc(x, y, r, 0, 7);
    pen.strokeStyle = style;
    pen.lineWidth = 2.5;
    pen.stroke();
  }
  function write(text, x, y, style, room) {
    if (room) while (text.length > 2 && pen.measureText(text).width > room) text = text.slice(0, -2) + "…";
    pen.lineWidth = 3;
    pen.strokeStyle = theme.ground;
    pen.strokeText(text, x, y);
    pen.fillStyle = style;
    pen.fillText(text, x, y);
  }
  function label(width, height) {
    pen.textBaseline = "bottom";
    pen.font = "600 12px system-ui, 'DejaVu Sans', sans-serif";
    roots.forEach((root) => {
      const [x, y] = screen(byId.get(root.state));
      write(kernel(root), Math.max(6, x - 6), y - 12, theme.ink);
    });
    if (view.k < 0.62) return;
    pen.font = `${Math.min(12, 11 * view.k)}px system-ui, 'DejaVu Sans', sans-serif`;
    for (const node of nodes) {
      const [x, y] = screen(node);
      if (!node.shown || x < 0 || x > width + DX * view.k || y < 0 || y > height + 20) continue;
      if (node.parent !== null) write(short(edges[node.parent].label), x - DX * view.k * 0.72, y - 4, node.match ? theme.ink : theme.quiet, DX * view.k * 0.68);
      if (node.speedup !== null && !node.kids.length) { pen.textBaseline = "middle"; write(times(node.speedup), x + 14, y, theme.ink); pen.textBaseline = "bottom"; }
    }
  }

  // -- the view ---------------------------------------------------------------------------------------
  function zoom(by, x, y) {
    const k = Math.min(3, Math.max(0.01, view.k * by));
    view.x = x - (x - view.x) * k / view.k;
    view.y = y - (y - view.y) * k / view.k;
    view.k = k;
    draw();
  }
  function fit(some = nodes.filter((node) => node.shown)) {
    if (!some.length) return;
    const xs = some.map((node) => node.x * DX), rows = some.map((node) => node.y);
    const left = least(xs), right = -least(xs.map((v) => -v)), first = least(rows), last = -least(rows.map((v) => -v));
    const width = canvas.clientWidth, height = canvas.clientHeight, room = 40;
    const across = Math.min(1.2, (width - 2 * room - 30) / Math.max(1, right - left));
    DY = Math.max(26, Math.min(60, (height - 2 * room) / across / Math.max(1, last - first)));
    const top = first * DY, bottom = last * DY;
    view.k = Math.max(0.01, Math.min(across, (height - 2 * room) / Math.max(1, bottom - top)));
    view.x = room - left * view.k;
    view.y = Math.max(room, (height - (bottom - top) * view.k) / 2) - top * view.k;
    draw();
  }
  function reveal(node) {
    if (view.k < 0.4) view.k = 0.8;
    view.x += canvas.clientWidth / 2 - screen(node)[0];
    view.y += canvas.clientHeight / 2 - screen(node)[1];
  }
  function nodeAt(x, y, reach) {
    let found = null, nearest = Infinity;
    for (const node of nodes) {
      if (!node.shown) continue;
      const [nx, ny] = screen(node), distance = Math.hypot(nx - x, ny - y);
      if (distance < Math.max(reach, radius(node) + 3) && distance < nearest) { found = node; nearest = distance; }
    }
    return found;
  }
  function edgeAt(x, y, reach) {
    let found = null, nearest = reach;
    for (const edge of edges) {
      if (!edge.from.shown || !edge.to.shown) continue;
      const c = curve(edge);
      if (x < Math.min(c[0], c[6]) - 20 || x > Math.max(c[0], c[6]) + 20) continue;
      let [ax, ay] = c;
      for (let i = 1; i <= 16; i++) {
        const t = i / 16, u = 1 - t, f = [u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t];
        const bx = f[0] * c[0] + f[1] * c[2] + f[2] * c[4] + f[3] * c[6], by = f[0] * c[1] + f[1] * c[3] + f[2] * c[5] + f[3] * c[7];
        const long = (bx - ax) ** 2 + (by - ay) ** 2 || 1;
        const on = Math.min(1, Math.max(0, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / long));
        const distance = Math.hypot(ax + on * (bx - ax) - x, ay + on * (by - ay) - y);
        if (distance < nearest) { found = edge; nearest = distance; }
        [ax, ay] = [bx, by];
      }
    }
    return found;
  }
  function tip(text, x, y) {
    const box = element("tip");
    box.hidden = !text;
    if (!text) return;
    box.textContent = text;
    box.style.left = `${Math.max(4, Math.min(x + 12, canvas.clientWidth - box.offsetWidth - 6))}px`;
    box.style.top = `${y + 14 + box.offsetHeight > canvas.clientHeight ? Math.max(4, y - box.offsetHeight - 8) : y + 14}px`;
  }
  function explain(x, y, reach) {
    const node = nodeAt(x, y, reach), edge = node ? null : edgeAt(x, y, reach);
    const name = node && node.parent !== null ? edges[node.parent].label : node ? kernel(roots[node.root]) : "";
    tip(node ? `${name}\n${verdict(node)}, visits ${node.visits}` : edge ? `${edge.label}\n${edgeText(edge)}` : "", x, y);
    canvas.style.cursor = node ? "pointer" : "grab";
    return node;
  }

  // -- events -----------------------------------------------------------------------------------------
  const fingers = new Map();
  let moved = 0;
  const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (fingers.size === 0) moved = 0;
    fingers.set(event.pointerId, place(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place(event), before = fingers.get(event.pointerId);
    if (!before) { if (event.pointerType === "mouse") explain(...now, 8); return; }
    const other = [...fingers].find(([id]) => id !== event.pointerId);
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (other) {
      const [ox, oy] = other[1], apart = (at) => Math.max(10, Math.hypot(at[0] - ox, at[1] - oy));
      zoom(apart(now) / apart(before), (now[0] + ox) / 2, (now[1] + oy) / 2);
      moved = 99;
    } else if (moved > 4) {
      view.x += now[0] - before[0];
      view.y += now[1] - before[1];
      tip("");
      draw();
    }
    fingers.set(event.pointerId, now);
  });
  const lift = (event) => {
    const held = fingers.delete(event.pointerId);
    if (event.type !== "pointerup" || !held || fingers.size || moved > 4) return;
    const node = explain(...place(event), event.pointerType === "mouse" ? 8 : 22);
    if (node) select(node, false);
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => tip(""));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), ...place(event));
  }, {passive: false});
  canvas.addEventListener("keydown", (event) => {
    const shown = (list) => list.filter((node) => node.shown).sort((a, b) => a.y - b.y);
    const row = chosen ? shown(nodes.filter((node) => node.x === chosen.x)) : [];
    const at = row.indexOf(chosen);
    const moves = {ArrowLeft: chosen?.parent != null ? edges[chosen.parent].from : null, ArrowRight: chosen ? shown(chosen.kids)[0] : null, ArrowUp: row[at - 1], ArrowDown: row[at + 1]};
    if (!(event.key in moves)) return;
    event.preventDefault();
    if (moves[event.key]) select(moves[event.key], true);
  });
  const middle = () => [canvas.clientWidth / 2, canvas.clientHeight / 2];
  element("in").addEventListener("click", () => zoom(1.4, ...middle()));
  element("out").addEventListener("click", () => zoom(1 / 1.4, ...middle()));
  element("fit").addEventListener("click", () => fit());
  element("search").addEventListener("input", (event) => { query = event.target.value.trim().toLowerCase(); filter(); });
  element("search").addEventListener("keydown", (event) => { if (event.key === "Enter") element("found").querySelector("button")?.click(); });
  element("best").addEventListener("change", (event) => { showBest = event.target.checked; draw(); });
  element("ahead").addEventListener("change", (event) => { showAhead = event.target.checked; draw(); });
  element("fast").addEventListener("input", (event) => {
    const share = event.target.value / 100;
    floor = share === 0 ? 0 : slow * (fast / slow) ** share * (1 - 1e-9);
    element("fast-value").textContent = share === 0 ? "any" : times(floor);
    filter();
  });
  element("root").addEventListener("change", (event) => {
    const number = Number(event.target.value), root = roots[number];
    if (number < 0) { fit(); return; }
    select(byId.get(root.best ?? root.state), false);
    fit(nodes.filter((node) => node.root === number && node.shown));
  });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); legend(); draw(); });

  // -- the legend -------------------------------------------------------------------------------------
  function legend() {
    element("statuses").replaceChildren(...statuses.map((status) => {
      const row = document.createElement("label"), box = document.createElement("input"), sign = document.createElement("canvas");
      box.type = "checkbox";
      box.checked = wanted.has(status);
      box.name = status || "not judged";
      box.addEventListener("change", () => { if (box.checked) wanted.add(status); else wanted.delete(status); filter(); });
      sign.width = sign.height = 32;
      const on = sign.getContext("2d");
      on.scale(2, 2);
      glyph(on, status, fast, 8, 8, 5.5, theme.ink);
      const count = nodes.filter((node) => node.status === status).length;
      row.append(box, sign, `${status.replaceAll("_", " ") || "not judged"} (${count})`);
      return row;
    }));
    element("ramp").hidden = !speeds.length;
    const bar = element("colours").getContext("2d");
    for (let x = 0; x < 160; x++) { bar.fillStyle = colour(slow * (fast / slow) ** (x / 159)); bar.fillRect(x, 0, 1, 12); }
    element("slowest").textContent = times(slow);
    element("fastest").textContent = times(fast);
  }
  readTheme();
  legend();
  if (roots.length > 1) {
    element("root-choice").hidden = false;
    element("root").append(new Option(`all ${roots.length}`, "-1"), ...roots.map((root, i) => new Option(`${kernel(root)} ${root.target.arch}, ${root.target.num_threads}`, String(i))));
  }
  if (innerWidth < 760) element("legend").open = false;
  element("fast").disabled = !speeds.length;
  filter();
  fit();
  select(byId.get(roots[0].best ?? roots[0].state), false);
  return {told, view, screen, select, fit, chosen: () => chosen, node: (id) => byId.get(id)};
})();
