// `lineChart`: lines of agents over one axis, as SVG that fits its box.
//   given  {name, x: {label, log, low, high}, y: {label, log, share}, text: y => string, points: bool,
//          series: [{agent, points: [[x, y], …], step: bool}], start: x of the cursor at first}
// A cursor (pointer, tap, arrow keys) shows the values of all lines in the legend; an entry of the legend
// hides its line, or stresses it while it is pointed at. Answers {node, set(given)}.
let charted = 0;
function lineChart(given) {
  const hidden = new Set(), id = `chart-${++charted}`;
  const box = draw("svg", {class: "chart", tabindex: "0", role: "slider", "aria-labelledby": id, "aria-valuemin": 0});
  const name = make("figcaption", {id}), legend = make("ul", {class: "legend"}), at = make("p", {class: "at"});
  const node = make("figure", {}, name, box, at, legend);
  const MARGIN = {left: 46, right: 14, top: 10, bottom: 38};
  let width = 0, height = 0, cursor = null, values = {}, stressed = null;

  const scaleOf = (axis, from, to) => {
    const [low, high] = axis.log ? [Math.log(axis.low), Math.log(axis.high)] : [axis.low, axis.high];
    return (value) => from + (to - from) * (((axis.log ? Math.log(value) : value) - low) / (high - low || 1));
  };
  function ticks(axis, room) {
    if (axis.ticks) return axis.ticks;
    if (axis.log) {
      for (const digits of [[1, 1.5, 2, 3, 4, 6, 8], [1, 2, 5], [1]]) {
        const all = [-3, -2, -1, 0, 1, 2, 3, 4].flatMap((power) => digits.map((digit) => digit * 10 ** power));
        const inside = all.filter((value) => value >= axis.low * 0.999 && value <= axis.high * 1.001);
        if (inside.length <= room) return inside;
      }
    }
    const raw = (axis.high - axis.low) / room, size = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((digit) => digit * size).find((value) => value >= raw);
    const found = [];
    for (let value = Math.ceil(axis.low / step) * step; value <= axis.high + 1e-9; value += step) found.push(Number(value.toPrecision(6)));
    return found;
  }
  const label = (axis, value) => axis.share ? `${Math.round(100 * value)} %` : String(Number(value.toPrecision(4)));
  const shown = () => given.series.filter((series) => !hidden.has(series.agent.name));
  const positions = () => [...new Set(given.series.flatMap((series) => series.points.map(([x]) => x)))].sort((a, b) => a - b);

  function paint() {
    width = node.clientWidth || 600;
    height = Math.round(Math.max(200, Math.min(320, width * 0.5)));
    const x = scaleOf(given.x, MARGIN.left, width - MARGIN.right), y = scaleOf(given.y, height - MARGIN.bottom, MARGIN.top);
    fill(box, {width, height, viewBox: `0 0 ${width} ${height}`}, []);
    const parts = [];
    for (const value of ticks(given.x, Math.floor(width / 70))) {
      parts.push(draw("line", {class: "grid", x1: x(value), x2: x(value), y1: MARGIN.top, y2: height - MARGIN.bottom}),
        draw("text", {x: x(value), y: height - MARGIN.bottom + 15, "text-anchor": "middle"}, label(given.x, value)));
    }
    for (const value of ticks(given.y, 6)) {
      parts.push(draw("line", {class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value)}),
        draw("text", {x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end"}, label(given.y, value)));
    }
    parts.push(draw("text", {class: "axis", x: (MARGIN.left + width - MARGIN.right) / 2, y: height - 5, "text-anchor": "middle"}, given.x.label));
    for (const series of shown()) {
      const path = series.points.map(([a, b], i) => `${i ? series.step ? `H${x(a)}V` : `L${x(a)} ` : `M${x(a)} `}${y(b)}`).join("");
      const kind = `line-${series.agent.colour}${stressed && stressed !== series.agent.name ? " dim" : ""}`;
      parts.push(draw("path", {class: kind, d: path, "stroke-dasharray": DASHES[series.agent.dash]}));
      if (given.points) for (const [a, b] of series.points) parts.push(draw("circle", {class: kind, cx: x(a), cy: y(b), r: 2.5}));
    }
    if (cursor !== null) parts.push(draw("line", {class: "cursor", x1: x(cursor), x2: x(cursor), y1: MARGIN.top, y2: height - MARGIN.bottom}));
    box.replaceChildren(...parts);
  }
  function valueAt(series, where) {
    const before = series.points.filter(([x]) => x <= where);
    return before.length ? before[before.length - 1][1] : null;
  }
  function key(series) {
    const value = make("span", {class: "value"});
    values[series.agent.name] = value;
    const toggle = () => {
      if (!hidden.delete(series.agent.name)) hidden.add(series.agent.name);
      button.setAttribute("aria-pressed", String(!hidden.has(series.agent.name)));
      point(cursor);
    };
    const stress = (name) => () => { stressed = name; paint(); };
    const button = make("button", {type: "button", "aria-pressed": String(!hidden.has(series.agent.name)), title: series.agent.name, onclick: toggle,
      onpointerenter: stress(series.agent.name), onpointerleave: stress(null), onfocus: stress(series.agent.name), onblur: stress(null)},
      swatch(series.agent), make("span", {class: "name"}, series.agent.name), value);
    return make("li", {}, button);
  }
  function point(where) {
    cursor = where;
    at.textContent = where === null ? "No line to show." : `${given.x.label}: ${label(given.x, where)}`;
    const said = [at.textContent];
    for (const series of given.series) {
      const value = where === null ? null : valueAt(series, where), text = value === null ? "" : given.text(value);
      values[series.agent.name].textContent = text;
      if (text && !hidden.has(series.agent.name)) said.push(`${series.agent.name} ${text}`);
    }
    const all = positions();
    fill(box, {"aria-valuenow": Math.max(0, all.indexOf(where)), "aria-valuemax": Math.max(0, all.length - 1), "aria-valuetext": said.join("; ")}, []);
    paint();
  }
  function nearest(event) {
    const x = scaleOf(given.x, MARGIN.left, width - MARGIN.right), mouse = event.clientX - box.getBoundingClientRect().left;
    const all = positions();
    return all.length ? all.reduce((a, b) => Math.abs(x(a) - mouse) <= Math.abs(x(b) - mouse) ? a : b) : null;
  }
  const KEYS = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity, PageUp: 10, PageDown: -10};
  box.addEventListener("pointermove", (event) => point(nearest(event)));
  box.addEventListener("pointerdown", (event) => point(nearest(event)));
  box.addEventListener("keydown", (event) => {
    const all = positions();
    if (!(event.key in KEYS) || !all.length) return;
    event.preventDefault();
    const from = cursor === null ? (KEYS[event.key] > 0 ? -1 : all.length) : all.indexOf(cursor);
    point(all[Math.max(0, Math.min(all.length - 1, from + KEYS[event.key]))]);
  });
  function set(next) {
    given = next;
    values = {};
    name.textContent = given.name;
    legend.replaceChildren(...given.series.map(key));
    const all = positions();
    if (!all.includes(cursor)) cursor = all.includes(given.start) ? given.start : all.length ? all[all.length - 1] : null;
    point(cursor);
  }
  set(given);
  new ResizeObserver(() => { if (node.clientWidth && node.clientWidth !== width) paint(); }).observe(node);
  return {node, set};
}

// -- the charts of a board ------------------------------------------------------------------------------------
function chosenSeries(shares, xs, names, step = false) {
  return names.filter((name) => shares[name]).map((name) => ({agent: agents.get(name), step, points: xs.map((x, i) => [x, shares[name][i]])}));
}
const SHARE = {low: 0, high: 1, share: true};
// The end of an axis after which no line goes on.
function last(series, xs) {
  const ends = series.map(({points}) => { const alive = points.filter(([, y]) => y > 0); return alive.length ? alive[alive.length - 1][0] : xs[0]; });
  return Math.max(xs[Math.min(10, xs.length - 1)], ...ends);
}
function until(series, high) {
  return series.map((one) => ({...one, points: one.points.filter(([x]) => x <= high)}));
}
function fastChart(trials, names) {
  const {p, share} = told.fast_p[trials], series = chosenSeries(share, p, names), high = last(series, p);
  return {name: "fast_p: share of runs verified and more than p times as fast as the unscheduled program", series: until(series, high),
    start: 2,
    x: {label: "p", low: 0, high}, y: SHARE, text: (value) => percent(value)};
}
function profileChart(trials, names) {
  const {tau, share} = told.profiles[trials], series = chosenSeries(share, tau, names), high = last(series, tau);
  return {name: "Performance profile: share of runs with a score above τ", series: until(series, high), start: tau.find((value) => value >= 2),
    x: {label: "score τ", log: true, low: tau[0], high}, y: SHARE, text: (value) => percent(value)};
}
function bestChart(curves, names) {
  const series = chosenSeries(curves.agents, curves.n, names, true), all = series.flatMap(({points}) => points.map(([, y]) => y));
  return {name: "Best speedup after n trials, as seen while searching (not verified)", series, points: true,
    x: {label: "trials", log: true, low: 1, high: Math.max(2, ...curves.n), ticks: curves.n},
    y: {log: true, low: 1, high: Math.max(2, ...all) * 1.05}, text: times};
}
function reachChart(level, names) {
  const {n} = told.trials_to, found = Object.fromEntries(names.map((name) => [name, told.trials_to.agents[name]?.[level]?.share]));
  return {name: `Trials to ${percent(Number(level))} of the best verified speedup: share of runs there, as seen while searching`,
    series: chosenSeries(found, n, names, true), points: true,
    x: {label: "trials", log: true, low: 1, high: Math.max(2, ...n), ticks: n}, y: SHARE, text: (value) => percent(value)};
}
