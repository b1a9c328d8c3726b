// Rates of counters from successive states.

import { el, svg } from "./dom.js";

/** Values of a chart. */
const SAMPLES = 60;

/** Keeps the last value of each counter. */
export class Rates {
  constructor() {
    this.last = new Map();
    this.next = new Map();
    this.time = null;
  }

  /** A new state; values of keys that it does not have are forgotten. */
  begin(time) {
    if (this.now !== time) [this.time, this.now] = [this.now, time];
    if (this.next.size) this.last = this.next;
    this.next = new Map();
  }

  /** Change of a counter per second; `null` without an earlier value, or after a restart. */
  of(key, value) {
    this.next.set(key, value);
    const before = this.last.get(key);
    const seconds = (this.now - this.time) / 1000;
    if (before === undefined || value < before || !(seconds > 0)) return null;
    return (value - before) / seconds;
  }
}

/** A line of the last values. */
export class Spark {
  constructor() {
    this.values = [];
    this.line = svg("polyline", { points: "" });
    this.node = svg("svg", { viewBox: `0 0 ${SAMPLES} 20`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.line);
  }

  add(value) {
    this.values.push(value ?? 0);
    if (this.values.length > SAMPLES) this.values.shift();
    const most = Math.max(...this.values, 1);
    const first = SAMPLES - this.values.length;
    const points = this.values.map((each, at) => `${first + at},${(19 - (each / most) * 18).toFixed(1)}`);
    this.line.setAttribute("points", points.join(" "));
  }
}

/** A number with its name, perhaps with a line of the last values. */
export class Tile {
  constructor(name, { spark = false, title = null } = {}) {
    this.value = el("div", { class: "value" }, "–");
    this.note = el("div", { class: "note" });
    this.spark = spark ? new Spark() : null;
    this.node = el("div", { class: "tile", title }, el("div", { class: "name" }, name), this.value, this.spark?.node, this.note);
  }

  update(text, { note = "", tone = "", sample = null } = {}) {
    if (this.value.textContent !== text) this.value.textContent = text;
    this.value.className = `value ${tone}`;
    if (this.note.textContent !== note) this.note.textContent = note;
    this.spark?.add(sample);
  }
}
