// One workload: agents, the winning trace, search, every answer.
{
  const here = workloads.get(told.workload), winner = told.winner;
  const cells = () => told.cells.filter((cell) => String(cell.trials) === trials);
  const RECIPES = {transforms: "transforms", schedule: "TVM schedule", default: "compiler's default", library: "library", control: "unscheduled program"};

  function facts() {
    const naive = here.naive_us, floor = here.floor_us, control = told.control;
    const lines = [["family", here.family + (here.split ? `, split ${here.split}` : "")], ["shape", shapeOf(here)], ["type", here.dtype],
      ["operations", scaled(here.flops, "FLOP")], ["bytes at least", scaled(here.bytes, "B")], ["unscheduled program", micro(naive)], ["measured roofline", micro(floor)],
      ["room", known(naive) && known(floor) ? times(naive / floor) : ""], ["A/A control", control ? control.map((value) => value.toFixed(4)).join(", ") : ""], ["workload", here.uri]];
    show("facts", ...lines.filter(([, text]) => text).flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  }
  // -- agents ---------------------------------------------------------------------------------------------
  function agentTable() {
    const mine = new Map(players.map((agent) => [agent.name, cells().filter((cell) => cell.agent === agent.name)]));
    const scale = logScale(cells().flatMap((cell) => cell.sessions));
    const mean = (values) => values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
    const of = (name, field) => mean(mine.get(name).map((cell) => cell[field]).filter(known));
    const entry = (agent) => told.table[trials][agent.name];
    const state = (agent) => [...new Set(mine.get(agent.name).filter((cell) => cell.standing !== "verified").map((cell) => STANDINGS[cell.standing]))].join(", ");
    const columns = [
      {name: "agent", head: "agent", head_cell: true, value: (agent) => agent.name, cell: (agent) => who(agent.name)},
      {name: "speedup", head: "speedup", number: true, value: (agent) => entry(agent).speedup, cell: (agent) => times(entry(agent).speedup)},
      {name: "range", head: "sessions", value: null, cell: (agent) => whisker(entry(agent).speedup, entry(agent).low, entry(agent).high, scale, agent.colour, mine.get(agent.name).flatMap((cell) => cell.sessions))},
      {name: "time", head: "time", number: true, up: true, value: (agent) => of(agent.name, "best_us"), cell: (agent) => micro(of(agent.name, "best_us"))},
      {name: "roofline", head: "of roofline", number: true, value: (agent) => entry(agent).roofline, cell: (agent) => percent(entry(agent).roofline)},
      {name: "verified", head: "verified", number: true, value: (agent) => entry(agent).verified, cell: (agent) => `${entry(agent).verified}/${entry(agent).runs}`},
      {name: "state", head: "not verified", value: state, kind: (agent) => state(agent) === "has none" ? "quiet" : "bad"},
    ];
    return [columns, players];
  }
  // -- the winning trace ------------------------------------------------------------------------------------
  // Lines of both texts as [sign, line], by their longest common subsequence.
  function difference(before, after) {
    const [a, b] = [before.split("\n"), after.split("\n")], length = Array.from({length: a.length + 1}, () => new Uint16Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    const found = [];
    let i = 0, j = 0;
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && a[i] === b[j]) { found.push([" ", a[i]]); i++; j++; }
      else if (j >= b.length || (i < a.length && length[i + 1][j] >= length[i][j + 1])) found.push(["-", a[i++]]);
      else found.push(["+", b[j++]]);
    }
    return found;
  }
  const SIGNS = {"-": "del", "+": "ins", " ": "span"};
  function listing(name, lines) {
    return make("pre", {tabindex: "0", "aria-label": name}, make("code", {}, ...lines.map(([sign, text]) => make(SIGNS[sign], {class: "line"}, `${sign} ${text}\n`))));
  }
  function viewsOf(number, before, after) {
    const place = make("div"), same = (text) => text.split("\n").map((line) => [" ", line]);
    const views = {changes: () => difference(before, after), before: () => same(before), after: () => same(after)};
    const buttons = Object.keys(views).map((name) => make("button", {type: "button", onclick: () => select(name)}, name));
    function select(name) {
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === name));
      place.replaceChildren(listing(`IR of step ${number}: ${name}`, views[name]()));
    }
    select("changes");
    return [make("div", {class: "views", role: "group", "aria-label": `IR of step ${number}`}, ...buttons), place];
  }
  function trace() {
    if (!winner) {
      element("trace-said").textContent = "There is no verified trace of transforms to show: no agent found one, it does not apply with what is installed here, or the report was made with --no-steps.";
      return;
    }
    const all = told.cells.filter((cell) => cell.standing === "verified" && agents.get(cell.agent).kind !== "control");
    const best = all.reduce((a, b) => a.speedup >= b.speedup ? a : b);
    const other = best.speedup > winner.speedup && best.recipe !== "transforms" ? ` ${best.agent} is faster, ${times(best.speedup)}, and is no trace of transforms.` : "";
    element("trace-said").textContent = `${winner.agent}, seed ${winner.seed}, at ${plural(winner.trials, "trial")}: ${times(winner.speedup)} verified, the fastest trace of transforms on this workload, in ${plural(winner.steps.length, "step")}.${other}`;
    const measured = winner.steps.some((step) => known(step.measured_us)), field = measured ? "measured_us" : "predicted_us";
    const ends = [winner.start, ...winner.steps], longest = Math.max(...ends.map((end) => end[field] || 0));
    const predicted = (number) => known(ends[number - 1].predicted_us) && ends[number].predicted_us ? ends[number - 1].predicted_us / ends[number].predicted_us : null;
    const rows = ends.map((end, number) => ({number, end, name: number ? end.transform : "unscheduled program"}));
    const time = ({end}) => {
      const bar = draw("svg", {class: "time", width: 120, height: 12, "aria-hidden": "true"});
      if (known(end[field]) && longest) bar.append(draw("rect", {width: Math.max(1, 120 * end[field] / longest), height: 12}));
      return bar;
    };
    const gained = {name: "gain", head: "gained", number: true, title: "time before / time after, and its 95 % interval", value: ({end}) => end.gain ?? null,
      kind: ({end}) => end.verdict === "faster" ? "good" : end.verdict === "slower" ? "bad" : "quiet",
      cell: ({end}) => known(end.gain) ? [times(end.gain), " ", make("span", {class: "quiet"}, end.gain_ci ? `[${figure(end.gain_ci[0])}, ${figure(end.gain_ci[1])}]` : ""), end.verdict === "no difference shown" ? " no difference shown" : ""] : ""};
    const columns = [
      {name: "number", head: "step", number: true, up: true, value: ({number}) => number},
      {name: "name", head: "transform", head_cell: true, value: ({name}) => name, cell: ({name, number}) => number ? make("button", {type: "button", class: "link", onclick: () => open(number)}, make("code", {}, name)) : name},
      ...(measured ? [{name: "measured", head: "measured", number: true, value: ({end}) => end.measured_us, cell: ({end}) => micro(end.measured_us)}, gained] : []),
      {name: "bar", head: measured ? "measured time" : "predicted time", value: null, cell: time},
      {name: "predicted", head: "predicted", number: true, title: "static cost model", value: ({end}) => end.predicted_us, cell: ({end}) => micro(end.predicted_us)},
      {name: "expected", head: "predicted gain", number: true, value: ({number}) => number ? predicted(number) : null, cell: ({number}) => number ? times(predicted(number)) : ""},
    ];
    show("trace", table(columns, rows, {name: "The winning trace", sort: "number", down: false}).node,
      measured ? make("p", {class: "quiet"}, "Measured times of steps are of this report, one evaluation each; the speedup above is the verified one.") :
        make("p", {class: "quiet"}, "The steps were not measured: times and gains are the static cost model's (tirgym bench report --measure-steps measures them)."));
    show("steps", ...winner.steps.map((step, index) => {
      const number = index + 1, before = index ? winner.steps[index - 1].text : winner.start.text;
      const summary = make("summary", {}, `${number}. `, make("code", {}, step.transform), known(step.gain) ? make("span", {class: "quiet"}, ` ${times(step.gain)}`) : "");
      const details = make("details", {id: `step-${number}`}, summary);
      details.addEventListener("toggle", () => {
        if (!details.open || details.childElementCount > 1) return;
        const said = step.changes.length ? make("ul", {}, ...step.changes.map((text) => make("li", {}, text))) : make("p", {class: "quiet"}, "Static analysis sees no change.");
        details.append(said, ...viewsOf(number, before, step.text));
      });
      return details;
    }));
  }
  function open(number) {
    const details = element(`step-${number}`);
    details.open = true;
    details.querySelector("summary").focus();
    details.scrollIntoView({block: "start"});
  }
  // -- every answer -------------------------------------------------------------------------------------------
  const how = (cell) => cell.transforms.length ? cell.transforms.join("; ") : cell.vendor || RECIPES[cell.recipe] || "";
  const standing = (cell) => cell.standing === "verified" ? "verified" : STANDINGS[cell.standing];
  const answerColumns = [
    {name: "agent", head: "agent", head_cell: true, value: (cell) => cell.agent, cell: (cell) => who(cell.agent)},
    {name: "seed", head: "seed", number: true, up: true, value: (cell) => cell.seed},
    {name: "standing", head: "standing", value: standing, kind: (cell) => cell.standing === "verified" ? "good" : cell.standing === "not_applicable" ? "quiet" : "bad"},
    {name: "speedup", head: "speedup", number: true, value: (cell) => cell.speedup, cell: (cell) => [times(cell.speedup), " ", make("span", {class: "quiet"}, known(cell.low) ? `[${figure(cell.low)}, ${figure(cell.high)}]` : "")]},
    {name: "claimed", head: "claimed", number: true, value: (cell) => cell.claimed, kind: (cell) => cell.claim_holds === false ? "bad" : "", cell: (cell) => times(cell.claimed)},
    {name: "time", head: "time", number: true, up: true, value: (cell) => cell.best_us, cell: (cell) => micro(cell.best_us)},
    {name: "shapes", head: "other shapes", value: null, cell: (cell) => Object.entries(cell.shapes).map(([name, number]) => `${number} ${words(name)}`).join(", ")},
    {name: "how", head: "made by", value: null, kind: () => "long", cell: (cell) => cell.transforms.length ? make("details", {}, make("summary", {}, plural(cell.transforms.length, "transform")), make("ol", {}, ...cell.transforms.map((text) => make("li", {}, make("code", {}, text))))) : how(cell)},
    {name: "reason", head: "why", value: (cell) => cell.reason || cell.message, kind: () => "long"},
  ];
  const answers = () => {
    const wanted = element("find").value.toLowerCase();
    return cells().filter((cell) => [cell.agent, standing(cell), how(cell), cell.reason].join("\n").toLowerCase().includes(wanted));
  };

  let trials = radios("trials", trialOptions, mostTrials, (value) => { trials = value; refresh(); });
  const agentsTable = table(...agentTable(), {name: "Agents", sort: "speedup"});
  const answersTable = table(answerColumns.filter(({name, value}) => name !== "reason" || told.cells.some(value)), answers(), {name: "Every answer", sort: "speedup", empty: "no answer matches"});
  element("find").addEventListener("input", () => answersTable.set(answers()));
  const chart = lineChart(bestChart(told.curves, players.map((agent) => agent.name)));
  show("agents", agentsTable.node);
  show("answers", answersTable.node);
  show("charts", chart.node);
  facts();
  trace();
  function refresh() {
    const [columns, rows] = agentTable();
    agentsTable.set(rows, columns);
    answersTable.set(answers());
  }
}
