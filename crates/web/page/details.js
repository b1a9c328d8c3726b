// Details of the selected node, link, socket or service.

import { bytes, el, link, short, terms, when } from "./dom.js";

export function serviceText({ type, lower, upper }) {
  return lower === upper ? `{${type},${lower}}` : `{${type},${lower},${upper}}`;
}

function list(items, most = 30) {
  if (!items.length) return el("div", { class: "muted" }, "none");
  const more = items.length > most ? el("div", { class: "muted" }, `${items.length - most} more`) : null;
  return el("div", {}, items.slice(0, most).map((item) => el("div", {}, item)), more);
}

function rateText(rate) {
  return rate === null ? "–" : `${short(rate)}/s`;
}

function ofNode(state, address, choose) {
  const own = address === state.node.address;
  const node = own ? { ...state.node, up: true } : state.nodes.find((each) => each.address === address);
  if (!node) return null;
  const links = state.links.filter((each) => each.peer === address);
  const services = state.services.filter((each) => each.node === address);
  return [
    el("h2", {}, own ? "This node" : "Node"),
    terms([
      ["Identity", node.identity],
      ["Address", node.address],
      ["Cluster", own ? String(state.node.cluster) : ""],
      ["State", el("span", { class: node.up ? "good" : "bad" }, own ? "this node" : node.up ? "up" : "down")],
    ]),
    own ? null : el("h3", {}, "Links"),
    own ? null : list(links.map((each) => link(each.name, () => choose("link", each.name)))),
    el("h3", {}, `Services (${services.length})`),
    list(services.map((each) => {
      const text = `${serviceText(each)} of socket ${each.port}`;
      return own ? link(text, () => choose("socket", each.port)) : text;
    })),
  ];
}

function ofLink(state, name, choose, rates) {
  const found = state.links.find((each) => each.name === name);
  if (!found) return null;
  const down = found.down ? `${when(found.down.time_ms)}: ${found.down.reason}` : "";
  return [
    el("h2", {}, "Link"),
    terms([
      ["Name", found.name],
      ["Peer", found.peer ? link(found.peer, () => choose("node", found.peer)) : "all nodes"],
      ["State", el("span", { class: found.up ? "good" : "bad" }, !found.up ? "down" : found.active || found.broadcast ? "up" : "standby")],
      ["Last failure", down],
      ["Sent", `${found.sent} packets, ${rateText(rates.get(`${name} sent`))}`],
      ["Received", found.broadcast ? "" : `${found.received} packets, ${rateText(rates.get(`${name} received`))}`],
      ["Retransmitted", String(found.retransmitted)],
      ["Congestions", String(found.congestions)],
      ["Send queue", found.broadcast ? "" : `${found.queue_average} packets on average, ${found.queue_max} at most`],
      ["Window", found.window === null ? "" : `${found.window} packets`],
      ["Tolerance", found.tolerance_ms === null ? "" : `${found.tolerance_ms} ms`],
      ["Priority", found.priority === null ? "" : String(found.priority)],
      ["MTU", found.mtu ? `${found.mtu} bytes` : ""],
    ]),
  ];
}

function ofSocket(state, port, choose, rates) {
  const found = state.sockets.find((each) => each.port === port);
  if (!found) return null;
  const bindings = state.services.filter((each) => each.node === state.node.address && each.port === port);
  const to = found.connection;
  return [
    el("h2", {}, `Socket ${found.port}`),
    terms([
      ["Type", found.kind],
      ["Program", found.program],
      ["Process", found.pid ? String(found.pid) : "the daemon itself"],
      ["User", found.uid === null ? "" : String(found.uid)],
      ["Connected to", to ? `socket ${to.port} of node ${to.node}${to.service ? `, by {${to.service.join(", ")}}` : ""}` : ""],
      ["Sent", `${found.sent} messages, ${bytes(found.sent_bytes)}, ${rateText(rates.get(`${port} sent`))}`],
      ["Received", `${found.received} messages, ${bytes(found.received_bytes)}, ${rateText(rates.get(`${port} received`))}`],
      ["Returned", String(found.returned)],
      ["Refused", String(found.refused)],
    ]),
    el("h3", {}, `Bindings (${bindings.length})`),
    list(bindings.map((each) => link(`${serviceText(each)}, scope ${each.scope}`, () => choose("service", String(each.type))))),
  ];
}

function ofService(state, type, choose) {
  const bound = state.services.filter((each) => String(each.type) === type);
  if (!bound.length) return null;
  return [
    el("h2", {}, `Service type ${type}`),
    el("h3", {}, `Bindings (${bound.length})`),
    list(bound.map((each) => {
      const text = `${serviceText(each)}, scope ${each.scope}: socket ${each.node}:${each.port}`;
      return each.node === state.node.address ? link(text, () => choose("socket", each.port)) : text;
    }), 100),
  ];
}

const KINDS = { node: ofNode, link: ofLink, socket: ofSocket, service: ofService };

/** The details of what was chosen: `{kind, id}`. Rates are by name, as the lists have computed them. */
export function details(state, chosen, choose, rates) {
  if (!chosen) return [el("h2", {}, "Details"), el("p", { class: "muted" }, "Choose a node on the map, or a link, service or socket in the lists.")];
  const found = KINDS[chosen.kind](state, chosen.id, choose, rates);
  return found ?? [el("h2", {}, "Details"), el("p", { class: "muted" }, `The ${chosen.kind} ${chosen.id} no longer exists.`)];
}
