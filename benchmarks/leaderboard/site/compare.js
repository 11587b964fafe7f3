// Two agents side by side.
const order = told.rankings[mostTrials].map((row) => row.agent);
if (order.length < 2) element("verdict").textContent = "This board has no two agents.";
else {
  const row = (name) => told.rankings[trials].find((found) => found.agent === name);
  // The best agent and the best peer, unless the address names others.
  const best = (kind, but) => order.find((name) => name !== but && agents.get(name).kind === kind) || order.find((name) => name !== but);
  let first = order.includes(chosen.get("first")) ? chosen.get("first") : best("agent");
  let second = order.includes(chosen.get("second")) ? chosen.get("second") : best("peer", first);
  let trials = radios("trials", trialOptions, mostTrials, (value) => { trials = value; refresh(); });

  function ratioOf(cells) {
    const [one, two] = [cells[first], cells[second]];
    if (!known(one.speedup) || !known(two.speedup)) return {value: null, low: null, high: null};
    return {value: one.speedup / two.speedup, low: one.low / two.high, high: one.high / two.low};
  }
  function verdict() {
    const ratio = row(first).geomean.value / row(second).geomean.value, found = told.improvement[trials][first]?.[second];
    const [fast, slow, by] = ratio >= 1 ? [first, second, ratio] : [second, first, 1 / ratio];
    const beats = found ? ` On a workload chosen at random, ${first} scores more than ${second} with probability ${figure(found.value)} ${spread(found)}.` : "";
    element("verdict").textContent = first === second ? "Choose two different agents." :
      (by.toFixed(2) === "1.00" ? `At ${trials} trials, ${first} and ${second} have the same geometric mean score.` :
        `At ${trials} trials, the geometric mean score of ${fast} is ${by.toFixed(2)} times that of ${slow}.`) + beats;
  }
  // A bar to the right if the first is faster, to the left if the second is.
  function bar({value, low, high}, reach) {
    const width = 120, at = (v) => width / 2 * (1 + Math.log(v) / reach);
    const box = draw("svg", {class: "bar", width, height: 16, "aria-hidden": "true"}, draw("line", {class: "one", x1: width / 2, x2: width / 2, y1: 0, y2: 16}));
    if (!known(value)) return box;
    const [from, to] = [Math.min(at(value), width / 2), Math.max(at(value), width / 2)];
    const winner = agents.get(value >= 1 ? first : second);
    box.append(draw("rect", {class: `line-${winner.colour}`, x: from, width: Math.max(1, to - from), y: 3, height: 10}),
      draw("line", {class: "range", x1: at(low), x2: at(high), y1: 8, y2: 8}));
    return box;
  }
  function byWorkload() {
    const ratios = new Map(told.workload_table.map(({workload, cells}) => [workload, ratioOf(cells[trials])]));
    const reach = Math.max(0.1, ...[...ratios.values()].flatMap(({low, high}) => known(low) ? [Math.abs(Math.log(low)), Math.abs(Math.log(high))] : [])) * 1.05;
    const speedup = (name, id) => ({name: id, head: name, number: true, value: ({cells}) => cells[trials][name].speedup,
      kind: ({workload, cells}) => known(cells[trials][name].speedup) ? "" : standingOf(workload, name, trials) === STANDINGS.not_applicable ? "quiet" : "bad",
      cell: ({workload, cells}) => {
        const {speedup, verified, runs} = cells[trials][name];
        if (!known(speedup)) return standingOf(workload, name, trials);
        return [times(speedup), verified < runs ? make("span", {class: "bad"}, ` ${verified}/${runs}`) : ""];
      }});
    const columns = [
      {name: "workload", head: "workload", head_cell: true, value: ({workload}) => workloads.get(workload).label, cell: ({workload}) => [kernelLink(workload), make("span", {class: "why"}, workloads.get(workload).family)]},
      {name: "ratio", head: "first / second", number: true, title: "speedup of the first / speedup of the second", value: ({workload}) => ratios.get(workload).value, cell: ({workload}) => times(ratios.get(workload).value)},
      {name: "bar", head: "◂ second · first ▸", title: "who is faster, and the range over seeds", value: null, cell: ({workload}) => bar(ratios.get(workload), reach)},
      speedup(first, "one"), speedup(second, "two"),
    ];
    show("workloads", table(columns, told.workload_table, {name: "By workload", sort: "ratio"}).node,
      make("p", {class: "quiet"}, "Geometric means over the verified seeds; the thin line is the range over seeds. 2/3: two of three runs are verified."));
  }
  const SUMS = [
    ["geomean", (r) => `${times(r.geomean.value)} ${spread(r.geomean)}`], ["median", (r) => `${times(r.median.value)} ${spread(r.median)}`],
    ["IQM", (r) => `${times(r.iqm.value)} ${spread(r.iqm)}`], ...["0", "1", "1.5", "2", "5", "10"].map((p) => [`fast_${p}`, (r) => percent(r.fast_p[p])]),
    ["of roofline", (r) => percent(r.roofline)], ["verified", (r) => count(r.verified)],
    ...Object.keys(STANDINGS).map((name) => [STANDINGS[name], (r) => count(r[name])]),
    ["trials used", (r) => count(r.trials_used)], ["failed trials", (r) => count(r.failures)], ["compiles", (r) => count(r.compiles)],
    ["steps", (r) => count(r.steps)], ["tokens", (r) => count(r.tokens)], ["wall time of a run", (r) => seconds(r.wall_s)],
    ["kind", (r) => r.kind], ["saw before", (r) => { const {what, families} = agents.get(r.agent).saw; return [what, families.join(", ")].filter(Boolean).join(" of "); }],
    ["table", (r) => r.headline ? `ranking, place ${r.rank}` : `agents that saw measurements, place ${r.rank}`],
  ];
  function sums() {
    const column = (name, id) => ({name: id, head: name, value: null, cell: ([, text]) => text(row(name)) || "–"});
    const rows = SUMS.filter(([, text]) => text(row(first)) || text(row(second)));
    show("sums", table([{name: "what", head: "", head_cell: true, value: null, cell: ([name]) => name}, column(first, "one"), column(second, "two")], rows, {name: "All workloads"}).node);
  }
  const names = () => [...new Set([first, second])];
  const level = String(told.trials_to.levels.includes(0.9) ? 0.9 : told.trials_to.levels[0]);
  const given = () => [fastChart(trials, names()), profileChart(trials, names()), bestChart(told.curves, names()), reachChart(level, names())];
  const charts = given().map(lineChart);
  function refresh() {
    for (const [id, value] of [["first", first], ["second", second]]) element(id).value = value;
    verdict();
    byWorkload();
    sums();
    given().forEach((next, i) => charts[i].set(next));
  }
  for (const id of ["first", "second"]) {
    element(id).append(...order.map((name) => make("option", {value: name}, name)));
    element(id).addEventListener("change", () => {
      if (id === "first") first = element(id).value; else second = element(id).value;
      choose("first", first);
      choose("second", second);
      refresh();
    });
  }
  element("swap").addEventListener("click", () => {
    [first, second] = [second, first];
    choose("first", first);
    choose("second", second);
    refresh();
  });
  show("charts", ...charts.map((chart) => chart.node));
  refresh();
}
