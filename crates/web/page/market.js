// The view of p2ps and src_dist: services, items, mounts, upstreams, and live values of a watch list.

import { bytes, clock, el, link, panel, ROWS, say, short, Table, when } from "./dom.js";
import { Rates, Tile } from "./rates.js";

/** Where the browser keeps the watch list. */
const KEPT = "utipc-watch";
const MOST = 20;
const STATES = ["none", "being opened", "open"];

function perSecond(rate) {
  return rate === null || rate === undefined ? "–" : short(rate);
}

export class MarketView {
  constructor(main, about) {
    Object.assign(this, { about, rates: new Rates(), shown: new Map(), state: null, cards: new Map() });
    try {
      this.watch = JSON.parse(localStorage.getItem(KEPT) ?? "[]");
    } catch {
      this.watch = [];
    }
    this.makeTiles();
    this.makeTables();
    this.cardsNode = el("div", { class: "cards" });
    main.replaceChildren(
      el("div", { class: "tiles" }, Object.values(this.tiles).map((tile) => tile.node)),
      panel("Watch list", this.form(), this.cardsNode),
      el("div", { class: "pair" }, this.items.node, this.services.node),
      el("div", { class: "pair" }, this.mounts.node, this.upstreams.node),
      this.ends.node,
    );
  }

  form() {
    const service = el("input", { "aria-label": "service", placeholder: "service", required: "", list: "services" });
    const item = el("input", { "aria-label": "item", placeholder: "item", required: "" });
    this.names = el("datalist", { id: "services" });
    const submit = (event) => {
      event.preventDefault();
      this.add(service.value.trim(), item.value.trim());
      item.value = "";
    };
    return el("form", { class: "bar", id: "watch", onsubmit: submit }, service, item, this.names,
      el("button", { class: "action", type: "submit" }, "Watch"));
  }

  add(service, item) {
    if (!service || !item || this.watch.some(([s, i]) => s === service && i === item)) return;
    this.watch = [...this.watch, [service, item]].slice(-MOST);
    this.keep();
  }

  remove(service, item) {
    this.watch = this.watch.filter(([s, i]) => s !== service || i !== item);
    this.keep();
  }

  keep() {
    localStorage.setItem(KEPT, JSON.stringify(this.watch));
    if (this.state) this.drawWatch();
  }

  makeTiles() {
    this.tiles = {
      services: new Tile("Services up"),
      items: new Tile("Open items"),
      mounts: new Tile("Mounts"),
      upstreams: new Tile("Upstreams open"),
      updates: new Tile("Updates in/s", { spark: true }),
      messages: new Tile("Messages out/s", { spark: true }),
      waiting: new Tile("Waiting output", { title: "bytes that wait to be written to mounts" }),
      gaps: new Tile("Gaps", { title: "times that entries of a feed were lost" }),
    };
  }

  makeTables() {
    const rate = (name) => perSecond(this.shown.get(name));
    this.items = new Table("Items", [
      { name: "Item", text: (item) => item.name, choose: (item) => this.add(item.service, item.name) },
      { name: "Service", kind: "word", text: (item) => item.service },
      { name: "Domain", kind: "wide", text: (item) => item.domain },
      { name: "State", text: (item) => item.state, tone: (item) => item.ok ? "good" : "warn" },
      { name: "Requests", kind: "number wide", text: (item) => item.holders },
    ], { key: (item) => `${item.service}\t${item.domain}\t${item.name}`, filter: (item) => `${item.service} ${item.name}`, empty: "no item is open" });
    this.services = new Table("Services", [
      { name: "Service", text: (service) => service.name },
      { name: "State", kind: "word", text: (service) => service.up ? "up" : "down", tone: (service) => service.up ? "word good" : "word bad" },
      { name: "Requests", kind: "wide", text: (service) => service.accepting ? "accepted" : "not accepted" },
      { name: "Cache", text: (service) => service.cached ? "on" : "off" },
    ], { key: (service) => service.id, empty: "no source has announced a service" });
    this.mounts = new Table("Mounts", [
      { name: "Consumer", text: (mount) => mount.user || mount.peer },
      { name: "Peer", kind: "wide", text: (mount) => mount.peer },
      { name: "Position", kind: "wide", text: (mount) => mount.position },
      { name: "Streams", kind: "number", text: (mount) => short(mount.streams) },
      { name: "Out/s", kind: "number", text: (mount) => rate(`mount ${mount.peer}`) },
      { name: "Buffers", kind: "number", text: (mount) => `${mount.buffers}/${mount.buffers_max}`, tone: (mount) => mount.buffers > mount.buffers_max / 2 ? "number warn" : "number" },
      { name: "Waiting", kind: "number wide", text: (mount) => bytes(mount.bytes_waiting) },
    ], { key: (mount) => mount.peer, filter: (mount) => `${mount.user} ${mount.peer} ${mount.position} ${mount.application}`, empty: "no consumer is connected" });
    this.upstreams = new Table("Upstreams", [
      { name: "Upstream", text: (up) => up.name },
      { name: "Kind", kind: "wide", text: (up) => up.kind },
      { name: "State", kind: "word", text: (up) => STATES[up.state] ?? "", tone: (up) => up.state === 2 ? "word good" : "word bad" },
      { name: "In/s", kind: "number", text: (up) => rate(`up ${up.kind} ${up.name}`) },
      { name: "Reconnects", kind: "number wide", text: (up) => up.reconnects },
    ], { key: (up) => `${up.kind} ${up.name}` });
    this.ends = new Table("Ended connections", [
      { name: "Time", text: (end) => when(end.at_unix_s * 1000) },
      { name: "Kind", text: (end) => end.kind },
      { name: "Reason", text: (end) => end.reason },
      { name: "Details", kind: "wide", text: (end) => [end.what?.user, end.what?.peer ?? end.what?.name, end.what?.reason].filter((part) => typeof part === "string" && part).join(", ") },
    ], { key: (end) => `${end.at_unix_s} ${end.kind} ${JSON.stringify(end.what)}` });
  }

  paths() {
    const watch = this.watch.map((pair) => pair.join("\t")).join("\n");
    return [`/api/state?watch=${encodeURIComponent(watch)}`];
  }

  title() {
    return [this.about.program, `version ${this.about.version}, ${clock(this.state.time_ms)}`];
  }

  isCurrent() {
    return true;
  }

  update([state]) {
    this.state = state;
    this.rates.begin(state.time_ms);
    this.shown = new Map();
    for (const mount of state.mounts) this.count(`mount ${mount.peer}`, mount.messages_out);
    for (const up of state.upstreams) this.count(`up ${up.kind} ${up.name}`, up.messages);
    this.drawTiles();
    const services = state.services ?? [];
    this.items.update(state.items ?? []);
    this.services.update(services);
    this.mounts.update(state.mounts);
    this.upstreams.update(state.upstreams);
    this.ends.update(state.disconnects);
    if (this.names.children.length !== services.length) {
      this.names.replaceChildren(...services.map((service) => el("option", { value: service.name })));
    }
    this.drawWatch();
  }

  count(name, value) {
    const rate = this.rates.of(name, value);
    this.shown.set(name, rate);
    return rate;
  }

  drawTiles() {
    const { state, tiles } = this;
    const { totals } = state;
    const services = state.services ?? [];
    const part = (tile, all, isGood) => {
      const good = all.filter(isGood).length;
      tile.update(`${good} of ${all.length}`, { tone: good < all.length ? "bad" : "" });
    };
    part(tiles.services, services, (service) => service.up);
    part(tiles.upstreams, state.upstreams, (up) => up.state === 2);
    // The sum of a demo counts an item twice: in its distributor and in its server.
    const listed = this.state.items?.length ?? 0;
    tiles.items.update(short(listed > 0 && listed < ROWS ? listed : totals.hub_items ?? 0));
    tiles.mounts.update(totals.mounts_open === undefined ? "–" : short(totals.mounts_open));
    const updates = this.count("updates", totals.hub_updates_in ?? 0);
    tiles.updates.update(perSecond(updates), { sample: updates });
    const out = this.count("out", totals.mounts_messages_out ?? totals.backbone_messages_out ?? 0);
    tiles.messages.update(perSecond(out), { sample: out });
    tiles.waiting.update(bytes(totals.mounts_bytes_waiting ?? totals.backbone_backlog_bytes ?? 0));
    tiles.gaps.update(totals.backbone_gaps === undefined ? "–" : short(totals.backbone_gaps), { tone: totals.backbone_gaps ? "warn" : "" });
  }

  drawWatch() {
    const values = new Map(this.state.watch.map((each) => [`${each.service}\t${each.item}`, each.values]));
    const nodes = this.watch.map(([service, item]) => {
      const key = `${service}\t${item}`;
      let card = this.cards.get(key);
      if (!card) {
        card = { fields: new Map(), list: el("dl"), note: el("p", { class: "muted" }) };
        card.node = el("section", { class: "card", "aria-label": item },
          el("div", { class: "bar" }, el("strong", {}, item), el("span", { class: "muted" }, service),
            link("remove", () => this.remove(service, item))), card.note, el("div", { class: "scroll" }, card.list));
        this.cards.set(key, card);
      }
      this.fill(card, values.get(key));
      return card.node;
    });
    const old = [...this.cardsNode.children];
    if (old.length !== nodes.length || nodes.some((node, at) => old[at] !== node)) this.cardsNode.replaceChildren(...nodes);
  }

  fill(card, values) {
    const fields = Array.isArray(values) ? values : [];
    say(card.note, Array.isArray(values) ? "" : values ?? "asked");
    card.note.hidden = Array.isArray(values);
    const names = fields.map((field) => field.name).join("\n");
    if (card.names !== names) {
      card.names = names;
      card.places = fields.map(() => el("dd"));
      card.list.replaceChildren(...fields.flatMap((field, at) => [el("dt", {}, field.name), card.places[at]]));
    }
    fields.forEach((field, at) => {
      const place = card.places[at];
      const changed = place.textContent !== "" && place.textContent !== field.value;
      say(place, field.value);
      place.classList.toggle("changed", changed);
    });
  }
}
