// Makes the views from hostile data; returns whether it is shown, the elements that it made, and whether no script ran.
(async () => {
  const evil = "<img src=x onerror='window.harmed=1'><script>window.harmed=1</script>\"'>";
  const { NodeView } = await import("/page/node.js");
  const { MarketView } = await import("/page/market.js");
  const place = document.createElement("main");
  document.body.append(place);
  const state = await (await fetch("/api/state")).json();
  for (const all of [state.nodes, state.links, state.sockets, state.services]) for (const one of all) {
    for (const key of Object.keys(one)) if (typeof one[key] === "string" && key !== "address" && key !== "peer") one[key] = evil;
  }
  const view = new NodeView(place);
  view.update([state, [{ number: 1, time_ms: 1, kind: evil, node: evil, what: evil, reason: evil }]]);
  for (const [kind, id] of [["node", state.nodes[0].address], ["link", evil], ["socket", state.sockets[0].port], ["service", evil]]) view.choose(kind, id);
  const shown = place.textContent.includes(evil);
  const market = document.createElement("main");
  document.body.append(market);
  const other = new MarketView(market, { program: evil, version: evil });
  other.watch = [[evil, evil]];
  other.update([{ time_ms: 1, program: evil, services: [{ id: 1, name: evil, up: true }],
    items: [{ service: evil, name: evil, domain: evil, ok: true, state: evil, holders: 1 }],
    watch: [{ service: evil, item: evil, values: [{ name: evil, value: evil }] }], totals: {},
    upstreams: [{ kind: evil, name: evil, state: 2, messages: 1 }],
    mounts: [{ user: evil, peer: evil, position: evil, messages_out: 1 }],
    disconnects: [{ at_unix_s: 1, kind: evil, reason: evil, what: { user: evil } }] }]);
  const made = document.querySelectorAll("main img, main script").length;
  return [shown && market.textContent.includes(evil), made, window.harmed === undefined];
})()
