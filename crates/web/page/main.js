// Starts the view of the program that serves the page, and asks it for its state every second.

import { el, say } from "./dom.js";
import { MarketView } from "./market.js";
import { NodeView } from "./node.js";

const INTERVAL_MS = 1000;
/** Time after which a request counts as failed. */
const PATIENCE_MS = 5000;
const status = document.getElementById("status");

function show(state, text) {
  status.dataset.state = state;
  say(status, text);
}

async function ask(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store" });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return response.json();
}

async function round(view) {
  const paths = view.paths();
  view.update(await Promise.all(paths.map(ask)));
  const [title, subtitle] = view.title();
  say(document.getElementById("title"), title);
  say(document.getElementById("subtitle"), subtitle);
  document.title = `${title} – utipc`;
  if (view.isCurrent()) show("live", "live");
  else show("lost", "outdated: the program does not answer");
}

async function start() {
  const about = await ask("/api/about");
  const main = document.getElementById("main");
  const view = about.views.includes("market") ? new MarketView(main, about) : new NodeView(main, about);
  for (;;) {
    // A hidden page costs the program nothing.
    if (!document.hidden) {
      await round(view).catch((why) => {
        if (why instanceof TypeError || why.name === "TimeoutError") show("lost", "no reply");
        else throw why;
      });
    }
    await new Promise((next) => setTimeout(next, INTERVAL_MS));
  }
}

start().catch((why) => {
  show("lost", "stopped");
  document.getElementById("main").prepend(el("p", { class: "panel bad" }, `The page has stopped: ${why.message} (load it again)`));
  throw why;
});
