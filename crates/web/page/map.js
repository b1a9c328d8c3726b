// The map: the own node in the middle, its peers around it, a line for each link.

import { short, svg } from "./dom.js";

/** Maximum number of peers on the map; the list of links has all. */
const MOST = 64;
/** Maximum number of peers with a rate on each link, and the map's minimum width for it. */
const LABELLED = 10;
const ROOM = 480;
/** Number of peers from which they form two rings, of which only the outer one has names. */
const CROWD = 21;

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function places(count, width, height) {
  return Array.from({ length: count }, (_, at) => {
    // Two peers are placed beside the node, where a peer's line does not cross its name.
    const angle = (2 * Math.PI * at) / count - (count === 2 ? Math.PI : Math.PI / 2);
    const inner = count >= CROWD && at % 2 === 1;
    const part = inner ? 0.62 : 1;
    return {
      x: width / 2 + Math.cos(angle) * (width / 2 - 62) * part,
      y: height / 2 + Math.sin(angle) * (height / 2 - 48) * part,
      inner,
      above: Math.sin(angle) < -0.2,
    };
  });
}

function circle(node, at, { own = false, chosen, choose, below, crowded }) {
  const name = node.identity || node.address;
  const state = own ? "own" : node.up ? "up" : "down";
  const group = svg("g", {
    class: `node ${state}${chosen ? " chosen" : ""}`,
    "data-node": node.address,
    tabindex: 0,
    role: "button",
    "aria-label": `node ${name}, ${own ? "this node" : state}`,
    transform: `translate(${at.x.toFixed(1)} ${at.y.toFixed(1)})`,
    onclick: choose,
    onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") choose(); },
  });
  group.append(svg("title", {}, `${name} (${node.address}): ${own ? "this node" : state}`));
  group.append(svg("circle", { r: own ? 20 : crowded ? 8 : 14 }));
  const named = own || !at.inner || chosen || !node.up;
  const y = own ? 35 : at.above ? (below ? -33 : -20) : crowded ? 22 : 29;
  if (named) group.append(svg("text", { y, class: "halo" }, cut(name, crowded ? 10 : 16)));
  if (below) group.append(svg("text", { y: y + 13, class: "small halo" }, below));
  return group;
}

function lines(links, from, to, rate, crowded) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  return links.map((link, at) => {
    const aside = (at - (links.length - 1) / 2) * 8;
    const [ax, ay] = [(-dy / length) * aside, (dx / length) * aside];
    const state = !link.up ? "down" : link.active ? "up" : "standby";
    const wide = crowded ? 1.2 : 1.5 + Math.min(4, Math.log10(1 + (rate(link) ?? 0)));
    return svg("line", {
      x1: (from.x + ax).toFixed(1), y1: (from.y + ay).toFixed(1),
      x2: (to.x + ax).toFixed(1), y2: (to.y + ay).toFixed(1),
      class: state, "stroke-width": wide.toFixed(1), "data-link": link.name,
    }, svg("title", {}, `${link.name}: ${state}${link.down ? ` (${link.down.reason})` : ""}`));
  });
}

/** Draws the map. `rate(link)`: packets per second; `chosen`: address; `choose(address)`. */
export function drawMap(picture, state, { rate, chosen, choose, serviceCount }) {
  const width = Math.max(280, picture.clientWidth || 600);
  const peers = state.nodes.slice(0, MOST);
  const crowded = peers.length >= CROWD;
  const height = Math.max(300, Math.min(crowded ? 560 : 460, width * (crowded ? 0.9 : 0.6)));
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("height", height);
  const focused = picture.contains(document.activeElement) ? document.activeElement.getAttribute("data-node") : null;
  const middle = { x: width / 2, y: height / 2 };
  const at = places(peers.length, width, height);
  const shapes = [];
  const labels = [];
  peers.forEach((peer, index) => {
    const links = state.links.filter((link) => link.peer === peer.address);
    shapes.push(...lines(links, middle, at[index], rate, crowded));
    const total = links.reduce((sum, link) => sum + (rate(link) ?? 0), 0);
    if (peers.length <= LABELLED && width >= ROOM && links.length) {
      const [x, y] = [middle.x + (at[index].x - middle.x) * 0.56, middle.y + (at[index].y - middle.y) * 0.56];
      labels.push(svg("text", { x, y, class: "small halo" }, peer.up ? `${short(Math.round(total))}/s` : "down"));
    }
  });
  peers.forEach((peer, index) => {
    const count = serviceCount(peer.address);
    const below = !crowded && peer.up ? `${count} service${count === 1 ? "" : "s"}` : null;
    shapes.push(circle(peer, at[index], { chosen: chosen === peer.address, choose: () => choose(peer.address), below, crowded }));
  });
  const own = state.node;
  const count = serviceCount(own.address);
  const below = `${count} service${count === 1 ? "" : "s"}, ${state.daemon.sockets} sockets`;
  shapes.push(circle(own, middle, { own: true, chosen: chosen === own.address, choose: () => choose(own.address), below }));
  if (state.nodes.length > MOST) {
    labels.push(svg("text", { x: width / 2, y: height - 4, class: "small" }, `${state.nodes.length - MOST} more nodes: see the links`));
  }
  picture.replaceChildren(...shapes.slice(0, -1), ...labels, shapes.at(-1));
  if (focused) picture.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
}
