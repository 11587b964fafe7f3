// The first page: ranking, curves, who beats whom, workloads, what was not verified, how it was made.
{
  const KINDS = {agent: "agents", peer: "peers", reference: "references"};
  const kinds = new Set(Object.keys(KINDS));
  const runs = told.workloads.length * told.seeds.length;
  let query = chosen.get("find") || "";

  const matches = (name) => {
    const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
    return wanted.length === 0 || wanted.some((word) => name.toLowerCase().includes(word));
  };
  const isShown = (name) => kinds.has(agents.get(name).kind) && matches(name);
  const names = () => players.map((agent) => agent.name).filter(isShown);

  // -- ranking ------------------------------------------------------------------------------------------
  const number = (name, head, title, value, text = figure, up = false) =>
    ({name, head, title, number: true, up, value, cell: (row) => text(value(row))});
  const estimate = (name, head, title) => ({name, head, title, number: true, value: (row) => row[name].value,
    cell: (row) => [make("span", {}, times(row[name].value)), " ", make("span", {class: "quiet"}, spread(row[name]))]});
  const share = (p) => number(`fast_${p}`, `fast_${p}`, `share of runs verified and more than ${p} times as fast as the unscheduled program`, (row) => row.fast_p[p], percent);
  const others = [...new Set(Object.values(told.rankings).flat().flatMap((row) => Object.keys(row.against).filter((other) => row.against[other])))];
  others.sort((a, b) => (b === "naive") - (a === "naive"));
  const against = (other) => ({name: `x-${other}`, head: `×\u00a0${other}`, number: true, value: (row) => row.against[other]?.geomean ?? null,
    title: other === "naive" ? "times as fast as the unscheduled program, geometric mean" : `times as fast as ${other}, geometric mean over the workloads where it has verified numbers`,
    cell: (row) => {
      const found = row.against[other];
      if (!found) return make("span", {class: "quiet"}, other === row.agent ? "itself" : "–");
      return [times(found.geomean), found.workloads < told.workloads.length ? make("span", {class: "quiet"}, ` (${found.workloads})`) : null].filter(Boolean);
    }});
  const roofline = number("roofline", "of roofline", "mean share of the measured roofline", (row) => row.roofline, percent);
  const verified = {...number("verified", "verified", "verified answers of all runs", (row) => row.verified),
    kind: (row) => row.verified + row.not_applicable < runs ? "bad" : "", cell: (row) => `${row.verified}/${runs}`};
  const answer = (name) => ({...number(name, STANDINGS[name], "", (row) => row[name], count), kind: (row) => row[name] && name !== "not_applicable" ? "bad" : ""});
  const saw = {name: "saw", head: "saw before", value: (row) => agents.get(row.agent).saw.what, cell: (row) => {
    const {what, families, source} = agents.get(row.agent).saw;
    return [what, families.length ? ` of ${families.join(", ")}` : "", source ? make("span", {class: "quiet"}, ` ${source}`) : ""];
  }};
  const geomean = estimate("geomean", "geomean", "geometric mean; a verified speedup below 1 counts 1, what is not verified 0.5");
  const VIEWS = {
    overview: ["overview", (scale) => [geomean, picture(scale), number("median", "median", "median over workloads of the mean over seeds", (row) => row.median.value, times),
      number("iqm", "IQM", "interquartile mean", (row) => row.iqm.value, times), share("1"), share("2"), ...others.filter((other) => other === "default" || other === "metaschedule").map(against), roofline, verified]],
    scores: ["scores", (scale) => [geomean, picture(scale), estimate("median", "median", "median over workloads of the mean over seeds"),
      estimate("iqm", "IQM", "interquartile mean"), estimate("geomean_unclipped", "unclipped", "geometric mean without “below 1 counts as 1”")]],
    fast_p: ["fast_p", () => ["0", "1", "1.5", "2", "5", "10"].map(share)],
    against: ["speedup against", () => [...others.map(against), roofline]],
    answers: ["answers", () => [verified, ...Object.keys(STANDINGS).map(answer), saw]],
    trials_to: ["trials to x", () => told.trials_to.levels.map((level) => number(`to_${level}`, `to ${percent(level)}`,
      "trials to this share of the best verified speedup of a workload, median over runs, as seen while searching",
      (row) => told.trials_to.agents[row.agent][level]?.median ?? null, (value) => known(value) ? count(value) : "–", true))],
    spent: ["spent", () => [
      number("trials_used", "trials", "mean of whole runs", (row) => row.trials_used, count, true), number("failures", "failed trials", "", (row) => row.failures, count, true),
      number("compiles", "compiles", "", (row) => row.compiles, count, true), number("steps", "steps", "transforms of all programs that were evaluated", (row) => row.steps, count, true),
      number("tokens", "tokens", "of a language model", (row) => row.tokens, count, true), number("wall_s", "wall time", "of a search", (row) => row.wall_s, seconds, true)]],
  };
  function picture(scale) {
    return {name: "interval", head: "interval", title: "95 % interval of the geometric mean", value: null, cell: (row) => whisker(row.geomean.value, row.geomean.low, row.geomean.high, scale, agents.get(row.agent).colour)};
  }
  const rank = {name: "rank", head: "#", number: true, up: true, value: (row) => row.rank};
  const agentColumn = {name: "agent", head: "agent", head_cell: true, value: (row) => row.agent, cell: (row) => {
    const {why} = agents.get(row.agent);
    return who(row.agent, why ? make("span", {class: "why"}, why) : null);
  }};
  const columns = () => {
    const scale = logScale(told.rankings[trials].flatMap(({geomean}) => [geomean.value, geomean.low, geomean.high]));
    return [rank, agentColumn, ...VIEWS[view][1](scale)];
  };
  const rowsOf = (headline) => told.rankings[trials].filter((row) => row.headline === headline && isShown(row.agent));

  // -- improvement, workloads, the rest ------------------------------------------------------------------
  function improvement() {
    const order = told.rankings[trials].map((row) => row.agent).filter(isShown), found = told.improvement[trials];
    const cell = (one, other) => {
      if (one === other) return make("td", {class: "number quiet"}, "–");
      const {value, low, high} = found[one][other];
      const box = make("td", {class: "number heat", title: `${one} beats ${other}: ${figure(value)} ${spread({low, high})}`}, figure(value), make("span", {class: "range"}, spread({low, high})));
      box.style.setProperty("--heat", `${Math.round(100 * Math.abs(value - 0.5))}%`);
      box.style.setProperty("--hue", value >= 0.5 ? "var(--more)" : "var(--less)");
      return box;
    };
    const head = make("tr", {}, make("td"), ...order.map((name) => make("th", {scope: "col", title: name}, make("span", {class: "clamp"}, name))));
    const lines = order.map((one) => make("tr", {}, make("th", {scope: "row"}, who(one)), ...order.map((other) => cell(one, other))));
    show("improvement", make("div", {class: "scroll", role: "region", tabindex: "0", "aria-label": "Probability of improvement"},
      make("table", {class: "matrix"}, make("thead", {}, head), make("tbody", {}, ...lines))));
  }
  const marked = (uri, name) => standingOf(uri, name, trials);
  function workloadColumns() {
    const base = element("against").value, text = base === "roofline" ? percent : times, order = names();
    const ratio = ({cells}, name) => {
      const cell = cells[trials][name], other = base === "naive" ? 1 : cells[trials][base]?.speedup;
      if (base === "roofline") return cell.roofline;
      return known(cell.speedup) && known(other) ? cell.speedup / other : null;
    };
    const best = new Map(told.workload_table.map((row) => [row, Math.max(...order.map((name) => ratio(row, name) ?? 0))]));
    const kind = (row, name) => {
      const value = ratio(row, name);
      if (known(value)) return value === best.get(row) ? "best" : "";
      return row.cells[trials][name].verified || marked(row.workload, name) === STANDINGS.not_applicable ? "quiet" : "bad";
    };
    const column = (name) => ({name, head: name, number: true, value: (row) => ratio(row, name), kind: (row) => kind(row, name),
      cell: (row) => {
        const {verified, runs} = row.cells[trials][name], value = ratio(row, name);
        if (!known(value)) return verified ? "–" : marked(row.workload, name);
        return [text(value), verified < runs ? make("span", {class: "bad"}, ` ${verified}/${runs}`) : ""];
      }});
    return [
      {name: "workload", head: "workload", head_cell: true, value: (row) => workloads.get(row.workload).label, cell: (row) => kernelLink(row.workload)},
      {name: "family", head: "family", value: (row) => workloads.get(row.workload).family, cell: (row) => { const {family, split} = workloads.get(row.workload); return [family, split ? make("span", {class: "quiet"}, ` ${split}`) : ""]; }},
      {name: "naive", head: "unscheduled", number: true, value: (row) => workloads.get(row.workload).naive_us, cell: (row) => micro(workloads.get(row.workload).naive_us)},
      ...order.map(column)];
  }
  function workloadRows() {
    const family = element("family").value, wanted = element("find-workload").value.toLowerCase();
    return told.workload_table.filter(({workload}) => (!family || workloads.get(workload).family === family) && `${workload} ${workloads.get(workload).family}`.toLowerCase().includes(wanted));
  }
  const failureColumns = [
    {name: "agent", head: "agent", head_cell: true, value: (cell) => cell.agent, cell: (cell) => who(cell.agent)},
    {name: "workload", head: "workload", value: (cell) => workloads.get(cell.workload).label, cell: (cell) => kernelLink(cell.workload)},
    {name: "seeds", head: "seeds", value: (cell) => cell.seeds.join(", ")},
    {name: "standing", head: "standing", value: (cell) => cell.standing === "verified" ? "claim not reached" : STANDINGS[cell.standing], kind: (cell) => cell.standing === "not_applicable" ? "quiet" : "bad"},
    {name: "reason", head: "why", value: (cell) => cell.reason, kind: () => "long"},
  ];
  // One row for all seeds of which the same is to be said.
  function failures() {
    const found = new Map();
    for (const cell of told.unverified) {
      if (String(cell.trials) !== trials || !isShown(cell.agent)) continue;
      const same = JSON.stringify([cell.agent, cell.workload, cell.standing, cell.reason]);
      if (!found.has(same)) found.set(same, {...cell, seeds: []});
      found.get(same).seeds.push(cell.seed);
    }
    return [...found.values()];
  }
  function shipped() {
    element("shipped-section").hidden = told.shipped.length === 0;
    const searches = [...new Set(told.shipped.flatMap((row) => Object.keys(row.searches)))];
    show("shipped", table([
      {name: "workload", head: "workload", head_cell: true, value: (row) => workloads.get(row.workload)?.label ?? row.workload, cell: (row) => workloads.has(row.workload) ? kernelLink(row.workload) : row.workload},
      {name: "trials", head: "trials", number: true, value: (row) => row.trials},
      {name: "wall", head: "as it ships", number: true, value: (row) => row.wall_s, cell: (row) => seconds(row.wall_s)},
      ...searches.map((name) => ({name: `of-${name}`, head: name, number: true, value: (row) => row.ratios[name] ?? null,
        cell: (row) => [seconds(row.searches[name]), known(row.ratios[name]) ? make("span", {class: "quiet"}, ` ${row.ratios[name].toFixed(1)}x`) : ""]})),
    ], told.shipped, {name: "Wall time beside MetaSchedule as it ships"}).node);
  }
  function control() {
    const found = told.control;
    element("control-said").textContent = found === null ? "This board has no control row." :
      `Over all workloads ${found.geomean.toFixed(4)}, from ${found.low.toFixed(4)} to ${found.high.toFixed(4)}; the worst is off by ${percent(found.worst, 2)}.`;
    if (found === null) return;
    const rows = Object.entries(found.workloads).map(([uri, ratios]) => ({uri, ratios: [...ratios].sort((a, b) => a - b)}));
    const middle = ({ratios}) => (ratios[(ratios.length - 1) >> 1] + ratios[ratios.length >> 1]) / 2;
    show("control", table([
      {name: "workload", head: "workload", head_cell: true, value: ({uri}) => workloads.get(uri).label, cell: ({uri}) => kernelLink(uri)},
      {name: "median", head: "median ratio", number: true, value: middle, cell: (row) => middle(row).toFixed(4)},
      {name: "off", head: "off by", number: true, value: (row) => Math.abs(middle(row) - 1), cell: (row) => percent(Math.abs(middle(row) - 1), 2)},
      {name: "sessions", head: "sessions", value: null, cell: ({ratios}) => ratios.map((value) => value.toFixed(4)).join(", ")},
    ], rows, {name: "A/A control", sort: "off"}).node);
  }
  function facts() {
    const {machine, target, versions} = told;
    const lines = [["processor", machine.cpu], ["cores", machine.cores], ["fingerprint", machine.fingerprint],
      ["target", `${target.backend}/${target.arch}, ${plural(target.num_threads || 0, "thread")}`], ["suite", told.suite],
      ["trials", told.trials.join(", ")], ["seeds", told.seeds.join(", ")], ["sessions of each answer", told.sessions], ["made", told.made],
      ...Object.entries(versions)];
    show("facts", ...lines.filter(([, text]) => known(text)).flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, String(text))]));
    show("protocol", ...told.protocol.map((sentence) => make("li", {}, sentence)));
    if (told.problems.length) show("problems", make("h3", {}, "Problems with the files"), make("ul", {}, ...told.problems.map((problem) => make("li", {}, problem))));
  }
  function denominator() {
    const parts = Object.keys(STANDINGS).filter((name) => told.counts[name]).map((name) => `${told.counts[name]} ${words(name)}`);
    const claims = told.counts.claims_not_reached;
    element("denominator").textContent = `${plural(told.counts.expected, "answer")} (agent × workload × seed × trial count) are in the denominator: `
      + [`${told.counts.verified} verified`, ...parts].join(", ") + (claims ? `; ${plural(claims, "claim")} not reached.` : ".");
  }

  // -- putting it together ---------------------------------------------------------------------------------
  let trials = radios("trials", trialOptions, mostTrials, (value) => { trials = value; refresh(); });
  let view = radios("columns", Object.entries(VIEWS).map(([value, [text]]) => [value, text]), "overview", (value) => { view = value; refresh(); });
  let level = String(told.trials_to.levels.includes(0.9) ? 0.9 : told.trials_to.levels[0]);
  for (const [kind, text] of Object.entries(KINDS)) {
    const box = make("input", {type: "checkbox", checked: true, onchange: () => { if (!kinds.delete(kind)) kinds.add(kind); refresh(); }});
    element("kinds").append(make("label", {}, box, ` ${text}`));
  }
  element("find").value = query;
  element("find").addEventListener("input", () => { query = element("find").value; choose("find", query); refresh(); });
  for (const [value, text] of [["naive", "speedup over the unscheduled program"], ...others.filter((other) => other !== "naive").map((other) => [other, `speedup over ${other}`]), ["roofline", "share of the roofline"]]) element("against").append(make("option", {value}, text));
  for (const family of ["", ...new Set(told.workloads.map((workload) => workload.family))]) element("family").append(make("option", {value: family}, family || "all"));
  for (const [name, event] of [["against", "change"], ["family", "change"], ["find-workload", "input"]]) element(name).addEventListener(event, () => workloadTable.set(workloadRows(), workloadColumns()));

  const mark = (row) => agents.get(row.agent).kind;
  const none = "no row of this kind, or none that matches";
  const tables = {headline: table([], [], {name: "Ranking", sort: "rank", down: false, mark, empty: none}),
    others: table([], [], {name: "Agents that saw measurements", sort: "rank", down: false, mark, empty: none})};
  const workloadTable = table([], [], {name: "Workloads", sort: null});
  const failureTable = table(failureColumns, [], {name: "What was not verified", sort: "standing", down: false, empty: "everything is verified"});
  const charts = [lineChart(fastChart(trials, names())), lineChart(profileChart(trials, names())), lineChart(bestChart(told.curves, names())), lineChart(reachChart(level, names()))];
  const levels = make("select", {"aria-label": "share of the best speedup", onchange: () => { level = levels.value; refresh(); }},
    ...told.trials_to.levels.map((value) => make("option", {value: String(value), selected: String(value) === level}, percent(value))));
  charts[3].node.querySelector("figcaption").after(make("label", {class: "level"}, "share of the best ", levels));
  for (const [name, made] of Object.entries(tables)) show(name, made.node);
  show("workloads", workloadTable.node);
  show("failures", failureTable.node);
  show("charts", ...charts.map((chart) => chart.node));
  element("others-section").hidden = !told.agents.some((agent) => !agent.headline);
  denominator();
  shipped();
  control();
  facts();
  function refresh() {
    tables.headline.set(rowsOf(true), columns());
    tables.others.set(rowsOf(false), columns());
    workloadTable.set(workloadRows(), workloadColumns());
    failureTable.set(failures());
    [fastChart(trials, names()), profileChart(trials, names()), bestChart(told.curves, names()), reachChart(level, names())].forEach((given, i) => charts[i].set(given));
    improvement();
    element("shown").textContent = `${names().length} of ${plural(players.length, "row")} shown, at ${trials} trials`;
  }
  refresh();
}
