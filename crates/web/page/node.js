// The view of a daemon: map, links, services, sockets, users, events.

import { bytes, clock, el, panel, say, short, svg, Table, when } from "./dom.js";
import { details, serviceText } from "./details.js";
import { drawMap } from "./map.js";
import { Rates, Tile } from "./rates.js";

/** Maximum number of events in the list. */
const EVENTS = 300;
/** The first service type of applications. */
const FIRST_TYPE = 64;
const WORDS = {
  "link-up": ["good", "link up"],
  "link-down": ["bad", "link down"],
  "node-up": ["good", "node up"],
  "node-down": ["bad", "node down"],
  "service-up": ["", "service published"],
  "service-down": ["muted", "service withdrawn"],
};

function perSecond(rate) {
  return rate === null || rate === undefined ? "–" : short(rate);
}

export class NodeView {
  constructor(main) {
    Object.assign(this, { rates: new Rates(), shown: new Map(), chosen: null, lastEvent: 0, state: null });
    this.choose = (kind, id) => {
      this.chosen = { kind, id };
      this.draw();
    };
    this.makeTiles();
    this.makeTables();
    this.picture = svg("svg", { id: "map", role: "group", "aria-label": "map of nodes and links" });
    this.details = el("section", { class: "panel", id: "details", "aria-label": "details" });
    this.events = el("ol", { class: "events" });
    this.noEvents = el("div", { class: "muted" }, "Nothing has happened since this port was opened.");
    const map = panel("Nodes and links", this.picture);
    const events = panel("Events", this.noEvents, el("div", { class: "scroll" }, this.events));
    main.replaceChildren(
      el("div", { class: "tiles" }, Object.values(this.tiles).map((tile) => tile.node)),
      el("div", { class: "pair" }, map, this.details),
      el("div", { class: "pair" }, this.links.node, events),
      el("div", { class: "pair" }, this.sockets.node, this.services.node),
      this.users.node,
    );
    new ResizeObserver(() => { if (this.state) this.drawPicture(); }).observe(this.picture.parentElement);
  }

  makeTiles() {
    this.tiles = {
      nodes: new Tile("Nodes up"),
      links: new Tile("Links up"),
      services: new Tile("Services", { title: "entries of the binding table" }),
      sockets: new Tile("Sockets"),
      programs: new Tile("Programs"),
      sent: new Tile("Sent, packets/s", { spark: true }),
      received: new Tile("Recv, packets/s", { spark: true }),
      turn: new Tile("Longest turn", { title: "longest turn of the daemon's event loop" }),
      refused: new Tile("Refusals", { title: "requests refused because of a quota" }),
    };
  }

  makeTables() {
    const linkState = (link) => !link.up ? "down" : link.active || link.broadcast ? "up" : "standby";
    const rate = (name) => perSecond(this.shown.get(name));
    this.links = new Table("Links", [
      { name: "Link", text: (link) => link.name, choose: (link) => this.choose("link", link.name) },
      { name: "State", kind: "word", text: linkState, tone: (link) => link.up ? "word good" : "word bad" },
      { name: "Sent/s", kind: "number", text: (link) => rate(`${link.name} sent`) },
      { name: "Recv/s", kind: "number", text: (link) => link.broadcast ? "" : rate(`${link.name} received`) },
      { name: "Retrans.", kind: "number wide", text: (link) => short(link.retransmitted) },
      { name: "Congest.", kind: "number wide", text: (link) => short(link.congestions) },
      { name: "Last failure", kind: "wide", text: (link) => link.down ? `${when(link.down.time_ms)} ${link.down.reason}` : "" },
    ], { key: (link) => link.name, filter: (link) => `${link.name} ${linkState(link)}` });
    this.services = new Table("Services", [
      { name: "Service", text: serviceText, choose: (service) => this.choose("service", String(service.type)) },
      { name: "Scope", kind: "wide", text: (service) => service.scope },
      { name: "Node", text: (service) => service.node },
      { name: "Socket", kind: "number", text: (service) => service.port },
    ], { key: (s) => `${s.type} ${s.lower} ${s.upper} ${s.node} ${s.port}`, filter: (s) => `${serviceText(s)} ${s.node} ${s.port} ${s.scope}` });
    this.sockets = new Table("Sockets", [
      { name: "Socket", text: (socket) => socket.port, choose: (socket) => this.choose("socket", socket.port) },
      { name: "Program", text: (socket) => socket.program ?? "" },
      { name: "Type", kind: "wide", text: (socket) => socket.kind },
      { name: "State", kind: "wide", text: (socket) => socket.connection ? "connected" : socket.bound ? "bound" : "open" },
      { name: "Sent/s", kind: "number", text: (socket) => rate(`${socket.port} sent`) },
      { name: "Recv/s", kind: "number", text: (socket) => rate(`${socket.port} received`) },
    ], { key: (socket) => socket.port, filter: (socket) => `${socket.port} ${socket.program} ${socket.kind} ${socket.pid}` });
    const amount = (row, value) => row.name === "memory" ? bytes(value) : value === null ? "–" : String(value);
    this.users = new Table("Users and quotas", [
      { name: "User", text: (row) => row.user ?? "all" },
      { name: "Resource", text: (row) => row.name },
      { name: "Used", kind: "number", text: (row) => amount(row, row.used), tone: (row) => row.limit && row.used > 0.8 * row.limit ? "number bad" : "number" },
      { name: "Limit", kind: "number", text: (row) => amount(row, row.limit) },
      { name: "Refused", kind: "number", text: (row) => row.refused, tone: (row) => row.refused ? "number warn" : "number" },
    ], { key: (row) => `${row.user} ${row.name}`, filter: (row) => `${row.user ?? "all"} ${row.name}` });
  }

  /** The paths that the page asks for. */
  paths() {
    return ["/api/state", `/api/events?after=${this.lastEvent}`];
  }

  title() {
    const { node } = this.state;
    return [node.identity || node.address, `node ${node.address} of cluster ${node.cluster}`];
  }

  isCurrent() {
    return this.state.is_current && Date.now() - this.state.time_ms < 30000;
  }

  update([state, events]) {
    if (this.state && this.state.started_ms !== state.started_ms) {
      // The daemon has been restarted: its events begin with number 1 again.
      this.lastEvent = 0;
      this.events.replaceChildren();
      events = [];
    }
    // The node's own types report nodes and links, which have separate lists.
    state.services = state.services.filter((service) => service.type >= FIRST_TYPE);
    const isNew = this.state?.time_ms !== state.time_ms;
    this.state = state;
    if (isNew) this.countRates();
    for (const event of events) this.addEvent(event);
    this.draw();
  }

  countRates() {
    this.rates.begin(this.state.time_ms);
    this.shown = new Map();
    const totals = { sent: null, received: null };
    const count = (name, counter, value) => {
      const rate = this.rates.of(`${name} ${counter}`, value);
      this.shown.set(`${name} ${counter}`, rate);
      return rate;
    };
    for (const link of this.state.links) {
      const [sent, received] = [count(link.name, "sent", link.sent), count(link.name, "received", link.received)];
      if (sent !== null) totals.sent = (totals.sent ?? 0) + sent;
      if (received !== null) totals.received = (totals.received ?? 0) + received;
    }
    for (const socket of this.state.sockets) {
      count(socket.port, "sent", socket.sent);
      count(socket.port, "received", socket.received);
    }
    for (const name of ["sent", "received"]) {
      this.tiles[name].update(perSecond(totals[name]), { sample: totals[name] });
    }
  }

  draw() {
    const { state } = this;
    const id = (kind) => this.chosen?.kind === kind ? this.chosen.id : null;
    const all = state.is_complete;
    const cut = (complete) => complete ? "" : " (the list is cut)";
    this.drawPicture();
    this.drawTiles();
    this.links.update(state.links, id("link"), cut(all.links));
    this.services.update(state.services, null, cut(all.services));
    this.sockets.update(state.sockets, id("socket"), cut(all.sockets));
    this.users.update(state.quotas.flatMap((quota) => quota.resources.map((each) => ({ user: quota.user, ...each }))));
    const parts = details(state, this.chosen, this.choose, { get: (key) => this.shown.get(key) ?? null });
    const fresh = el("div", {}, parts);
    // A replaced button would lose the focus.
    if (this.details.firstChild?.textContent !== fresh.textContent) this.details.replaceChildren(fresh);
  }

  drawPicture() {
    const { state } = this;
    const counts = new Map();
    for (const service of state.services) counts.set(service.node, (counts.get(service.node) ?? 0) + 1);
    const rate = (link) => (this.shown.get(`${link.name} sent`) ?? 0) + (this.shown.get(`${link.name} received`) ?? 0);
    drawMap(this.picture, state, {
      rate,
      chosen: this.chosen?.kind === "node" ? this.chosen.id : null,
      choose: (address) => this.choose("node", address),
      serviceCount: (address) => counts.get(address) ?? 0,
    });
  }

  drawTiles() {
    const { state, tiles } = this;
    const up = (all) => all.filter((each) => each.up).length;
    const links = state.links.filter((link) => !link.broadcast);
    const ratio = (all) => ({ tone: up(all) < all.length ? "bad" : "" });
    tiles.nodes.update(`${up(state.nodes)} of ${state.nodes.length}`, ratio(state.nodes));
    tiles.links.update(`${up(links)} of ${links.length}`, ratio(links));
    tiles.services.update(short(state.services.length));
    tiles.sockets.update(short(state.daemon.sockets), { note: `${short(state.daemon.lanes)} lanes` });
    tiles.programs.update(short(state.daemon.attached));
    const { longest, long } = state.daemon.turns;
    tiles.turn.update(`${(longest.micros / 1000).toFixed(1)} ms`, { note: `${longest.handler}; ${long} above 20 ms` });
    const refused = state.quotas.filter((quota) => quota.user === null)
      .flatMap((quota) => quota.resources).reduce((sum, each) => sum + each.refused, 0);
    tiles.refused.update(short(refused), { tone: refused ? "warn" : "" });
  }

  addEvent(event) {
    if (event.number <= this.lastEvent) return;
    this.lastEvent = event.number;
    this.noEvents.hidden = true;
    const [tone, words] = WORDS[event.kind] ?? ["", event.kind];
    const text = `${words}: ${event.what}${event.reason ? ` (${event.reason})` : ""}`;
    const item = el("li", { "data-kind": event.kind });
    item.append(el("time", { title: when(event.time_ms) }, clock(event.time_ms)), el("span", { class: tone }));
    say(item.lastChild, text);
    this.events.prepend(item);
    while (this.events.children.length > EVENTS) this.events.lastChild.remove();
  }
}
