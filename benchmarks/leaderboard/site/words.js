"use strict";
// Data, elements and numbers, for every page. Text from the data only ever becomes textContent.
const told = JSON.parse(document.getElementById("data").textContent);
const element = (name) => document.getElementById(name);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const show = (name, ...children) => element(name).replaceChildren(...children);

// -- numbers ----------------------------------------------------------------------------------------
const known = (value) => value !== null && value !== undefined;
const figure = (value, digits = 2) => known(value) ? value.toFixed(digits) : "";
const times = (value) => known(value) ? `${value >= 100 ? Math.round(value) : value.toFixed(2)}x` : "";
const percent = (value, digits = 0) => known(value) ? `${(100 * value).toFixed(digits)} %` : "";
const micro = (us) => !known(us) ? "" : us >= 1e4 ? `${(us / 1000).toPrecision(3)} ms` : `${us < 100 ? us.toPrecision(3) : Math.round(us)} µs`;
const count = (value) => known(value) ? (Number.isInteger(value) ? value : Number(value.toFixed(1))).toLocaleString("en") : "";
const seconds = (s) => !known(s) ? "" : s < 120 ? `${s.toFixed(1)} s` : `${(s / 60).toFixed(1)} min`;
const spread = (estimate, text = figure) => known(estimate.low) ? `[${text(estimate.low)}, ${text(estimate.high)}]` : "";
const words = (name) => name.replaceAll("_", " ");
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const SCALES = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
function scaled(value, unit) {
  const [size, letter] = SCALES.find(([size]) => value >= size) || [1, ""];
  return `${Number((value / size).toPrecision(3))} ${letter}${unit}`;
}

// -- agents and workloads -----------------------------------------------------------------------------
const agents = new Map(told.agents.map((agent) => [agent.name, agent]));
const players = told.agents.filter((agent) => agent.kind !== "control");
players.forEach((agent, number) => { agent.colour = number % 7; agent.dash = Math.floor(number / 7) % 3; });
const DASHES = ["", "7 4", "2 3"];
const workloads = new Map(told.workloads.map((workload) => [workload.uri, workload]));
const shapeOf = (workload) => Object.entries(workload.shape).map(([name, size]) => `${name}=${size}`).join(", ");
const kernelLink = (uri) => make("a", {href: told.root + told.pages[uri]}, workloads.get(uri).label);
const agentLink = (name) => make("a", {class: "clamp", href: `${told.root}compare.html#${new URLSearchParams({first: name})}`, title: `compare ${name}`}, name);
// An agent's mark and name, as they begin a row; `more` stands below.
function who(name, ...more) {
  const agent = agents.get(name), tag = agent.kind === "agent" ? null : make("span", {class: "tag"}, agent.kind);
  return make("span", {class: "who"}, known(agent.colour) ? swatch(agent) : null, make("span", {}, agentLink(name), " ", tag, ...more));
}
function swatch(agent) {
  return draw("svg", {class: `swatch line-${agent.colour}`, width: 22, height: 10, "aria-hidden": "true"},
    draw("line", {x1: 1, x2: 21, y1: 5, y2: 5, "stroke-dasharray": DASHES[agent.dash]}));
}
const STANDINGS = {failed: "failed", missing: "no record", unmeasured: "not measured", not_applicable: "has none"};
// What stands for the missing number of an agent on a workload, "" if all that was asked for is verified.
function standingOf(uri, name, trials) {
  const found = told.unverified.find((cell) => cell.workload === uri && cell.agent === name && String(cell.trials) === trials && cell.standing !== "verified");
  return found ? STANDINGS[found.standing] : "";
}

// -- what is chosen, in the fragment of the address so that a link keeps it ------------------------------
const chosen = new URLSearchParams(location.hash.slice(1));
function choose(name, value) {
  if (value === "" || value === null) chosen.delete(name); else chosen.set(name, value);
  history.replaceState(null, "", `#${chosen}`);
}
// Radio buttons in the fieldset `name` for [[value, text], …]; answers what is chosen.
function radios(name, options, preset, changed) {
  const wanted = chosen.get(name);
  const start = options.some(([value]) => value === wanted) ? wanted : preset;
  for (const [value, text] of options) {
    const input = make("input", {type: "radio", name, value, checked: value === start,
      onchange: () => { choose(name, value); changed(value); }});
    element(name).append(make("label", {}, input, ` ${text}`));
  }
  return start;
}
const trialOptions = told.trials.map((trials) => [String(trials), String(trials)]);
const mostTrials = String(told.trials[told.trials.length - 1]);

// -- the head of every page -------------------------------------------------------------------------------
{
  const threads = plural(told.target.num_threads || 0, "thread");
  element("where").textContent = [told.machine.cpu, `${told.target.backend}/${told.target.arch}, ${threads}`,
    plural(told.workloads.length, "workload"), plural(told.seeds.length, "seed"),
    `median of ${plural(told.sessions, "session")}`, told.made.slice(0, 10)].filter(Boolean).join(" · ");
  const go = element("go");
  for (const workload of told.workloads) go.append(make("option", {value: told.pages[workload.uri], selected: workload.uri === told.workload}, workload.label));
  go.addEventListener("change", () => { if (go.value) location.href = told.root + go.value; });
  const page = told.workload ? "kernel" : element("first") ? "compare" : "ranking";
  for (const link of document.querySelectorAll("nav a")) if (link.dataset.page === page) link.setAttribute("aria-current", "page");
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); element("content").focus(); });
  addEventListener("hashchange", () => location.reload());  // another link to this page
  for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
}
