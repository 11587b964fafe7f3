// `table`: rows that are sorted by a click on a column's head; nothing is sorted before what has a value.
//   columns  [{name, head, title, value: row => number | string | null, cell: row => node | string,
//             number: bool, head_cell: bool, up: bool: ascending first}]
//   options  {name: accessible name, sort: column's name, down: bool, mark: row => class, empty: text}
// The table stands in a box that scrolls by itself. Answers {node, set(rows, columns)}.
function table(columns, rows, options) {
  let by = options.sort || null, down = options.down !== false;
  const head = make("thead"), body = make("tbody");
  const node = make("div", {class: "scroll", role: "region", "aria-label": options.name, tabindex: "0"},
    make("table", {}, make("caption", {class: "hidden"}, options.name), head, body));

  function sorted() {
    const column = columns.find((column) => column.name === by);
    if (!column) return rows;
    const direction = down ? -1 : 1;
    return [...rows].sort((a, b) => {
      const one = column.value(a), two = column.value(b);
      if (!known(one) || !known(two)) return known(two) - known(one);
      return direction * (typeof one === "string" ? one.localeCompare(two) : one - two);
    });
  }
  function heading(column) {
    const state = column.name !== by ? null : down ? "descending" : "ascending";
    const arrow = state === null ? "" : down ? " ▼" : " ▲";
    const sort = () => {
      down = column.name === by ? !down : column.number && !column.up;
      by = column.name;
      refresh();
      [...head.querySelectorAll("button")].find((button) => button.dataset.name === column.name)?.focus();
    };
    const button = make("button", {type: "button", title: column.title || null, "data-name": column.name, onclick: sort},
      make("span", {class: "clamp"}, column.head), make("span", {"aria-hidden": "true"}, arrow));
    return make("th", {scope: "col", "aria-sort": state, class: column.number ? "number" : null},
      column.value ? button : make("span", {class: "clamp", title: column.title || null}, column.head));
  }
  function line(row) {
    return make("tr", {class: options.mark ? options.mark(row) : null}, ...columns.map((column) => {
      const content = column.cell ? column.cell(row) : column.value(row);
      const parts = Array.isArray(content) ? content : [known(content) ? content : ""];
      const kind = [column.number ? "number" : "", column.kind ? column.kind(row) : ""].filter(Boolean).join(" ");
      return make(column.head_cell ? "th" : "td", {scope: column.head_cell ? "row" : null, class: kind || null}, ...parts);
    }));
  }
  function refresh() {
    head.replaceChildren(make("tr", {}, ...columns.map(heading)));
    const lines = sorted().map(line);
    const none = make("tr", {}, make("td", {colspan: columns.length, class: "quiet"}, options.empty || "nothing"));
    body.replaceChildren(...(lines.length ? lines : [none]));
  }
  refresh();
  return {node, set(newRows, newColumns) { rows = newRows; columns = newColumns || columns; refresh(); }};
}

// A dot on a logarithmic scale from `scale[0]` to `scale[1]` with a line from `low` to `high`; decoration of
// numbers that stand beside it. `dots` are more, smaller ones.
function whisker(value, low, high, scale, colour, dots = []) {
  const width = 104, at = (v) => 4 + (width - 8) * (Math.log(v / scale[0]) / (Math.log(scale[1] / scale[0]) || 1));
  const box = draw("svg", {class: `whisker line-${colour}`, width, height: 16, "aria-hidden": "true"});
  if (scale[0] <= 1 && scale[1] >= 1) box.append(draw("line", {class: "one", x1: at(1), x2: at(1), y1: 0, y2: 16}));
  if (known(low)) box.append(draw("line", {x1: at(low), x2: at(high), y1: 8, y2: 8}));
  for (const dot of dots) box.append(draw("circle", {class: "small", cx: at(dot), cy: 8, r: 2}));
  if (known(value)) box.append(draw("circle", {cx: at(value), cy: 8, r: 4}));
  return box;
}
// [smallest, largest] of the positive numbers in `values` and 1.
function logScale(values) {
  const good = values.filter((value) => known(value) && value > 0);
  return [Math.min(1, ...good) * 0.95, Math.max(1, ...good) * 1.05];
}
