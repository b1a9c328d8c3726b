// Elements. Everything that comes from the network goes through text nodes and attributes, never through markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Sets text only if it differs: an unchanged node costs no layout. */
export function say(node, text) {
  if (node.textContent !== String(text)) node.textContent = text;
}

/** A number in at most five characters. */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(value) >= size) return (value / size).toFixed(value / size >= 100 ? 0 : 1) + unit;
  }
  return Number.isInteger(value) ? String(value) : value.toFixed(value >= 10 ? 0 : 1);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
  }
  return `${value} B`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

export function when(ms) {
  const date = new Date(ms);
  const today = new Date().toDateString() === date.toDateString();
  return today ? clock(ms) : `${date.toLocaleDateString("en-CA")} ${clock(ms)}`;
}

export function panel(title, ...children) {
  return el("section", { class: "panel", "aria-label": title }, el("h2", {}, title), ...children);
}

export function link(text, onclick, title) {
  return el("button", { class: "link", type: "button", onclick, title }, text);
}

/** A list of terms; a value is text or a node. */
export function terms(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", {}, shown.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

/** Maximum number of rows of a table. */
export const ROWS = 200;

/**
 * A table whose rows are kept from one update to the next, so that focus and selection stay. Columns: name, kind
 * ("number", "wide"), `text(item)`, and perhaps `choose(item)` for a button, `tone(item)` for a colour.
 */
export class Table {
  constructor(title, columns, { key, filter = null, empty = "none" }) {
    Object.assign(this, { columns, key, filter, empty, rows: new Map(), wanted: "", items: [] });
    this.body = el("tbody");
    this.count = el("span", { class: "muted" });
    const head = el("tr", {}, columns.map((column) => el("th", { class: column.kind, scope: "col" }, column.name)));
    const bar = el("div", { class: "bar" }, el("h2", {}, title), this.count);
    if (filter) {
      const typed = (event) => {
        this.wanted = event.target.value.trim().toLowerCase();
        this.update(this.items, this.chosen);
      };
      bar.append(el("input", { type: "search", placeholder: "filter", "aria-label": `filter ${title}`, oninput: typed }));
    }
    this.node = el("section", { class: "panel", "aria-label": title }, bar,
      el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), this.body)));
  }

  update(items, chosen = null, note = "") {
    Object.assign(this, { items, chosen });
    const matches = (item) => !this.wanted || this.filter(item).toLowerCase().includes(this.wanted);
    const found = this.filter ? items.filter(matches) : items;
    const shown = found.slice(0, ROWS);
    const more = found.length > shown.length ? `, the first ${ROWS} shown` : "";
    say(this.count, `${found.length}${more}${note}`);
    const rows = shown.map((item) => this.row(item, chosen));
    const kept = new Set(shown.map(this.key));
    for (const key of this.rows.keys()) if (!kept.has(key)) this.rows.delete(key);
    if (!rows.length) rows.push(el("tr", {}, el("td", { class: "empty", colspan: this.columns.length }, this.empty)));
    const same = rows.length === this.body.children.length && rows.every((row, at) => this.body.children[at] === row);
    if (!same) this.body.replaceChildren(...rows);
  }

  row(item, chosen) {
    const key = this.key(item);
    let row = this.rows.get(key);
    if (!row) {
      const cells = this.columns.map((column) => {
        const cell = el("td", { class: column.kind });
        const place = column.choose ? cell.appendChild(link("", () => column.choose(row.item))) : cell;
        return { cell, place };
      });
      row = el("tr", {}, cells.map(({ cell }) => cell));
      row.places = cells;
      this.rows.set(key, row);
    }
    row.item = item;
    row.classList.toggle("chosen", chosen === key);
    this.columns.forEach((column, at) => {
      const { cell, place } = row.places[at];
      say(place, column.text(item));
      if (column.tone) cell.className = column.tone(item);
    });
    return row;
  }
}
