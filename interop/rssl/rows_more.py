"""Rows with our load tools at one end, with publishers that connect to a distributor, and with Java."""

import json
import os
import re

from rows import LOGGED_IN, PRICE, SERVICE, blocks, chain, consumer, price_is_complete, provider, row, steps
from rows_perf import cons_perf
from stage import check


@row("our-source", chains=("p2ps", "lan"), direct=True)
def our_source(stage):
    """The stock consumer on our load source: image, updates, no error."""
    upper, port = stage.ends()
    source = our_source_at(stage, upper, 20)
    stage.between([upper], port)
    one = consumer(stage, port, "-mp", "RDT0", "-mp", "RDT1").until(r"^UPDATE TYPE", 20, 20)
    one.end()
    check(one.count(LOGGED_IN) == 1, "no login")
    for item in ("RDT0", "RDT1"):
        kinds = [k for k, _ in blocks(one.text(), item, PRICE)]
        check(kinds[:1] == ["refresh"] and kinds.count("refresh") == 1 and len(kinds) > 5, "%s: %s" % (item, kinds[:5]))


def our_source_at(stage, port, rate):
    source = stage.ours("sink_driven_src", "--address", "127.0.0.1", "--port", port, "--service", SERVICE, "--update-rate", rate, "--quiet")
    stage.listening(port, source)
    return source


def measured(stage, port, count, seconds, *more):
    """Runs our load client; checks that all items are loaded and nothing is lost or disconnected; returns its report."""
    at = ["--host", "127.0.0.1", "--port", port, "--service", SERVICE, "--item-count", count, "--steady-state-time", seconds]
    one = stage.ours("rmdstestclient", *at, "--startup-time", 60, "--json", "--quiet", *more)
    code = one.wait(seconds + 90)
    lines = [line for line in one.text().splitlines() if line.startswith("{")]
    check(code == 0 and lines, "rmdstestclient exited with %s: %s" % (code, one.text()[-400:]))
    found = json.loads(lines[-1])
    counts = found["counts"]
    for wrong in ("lost", "suspect", "cuts"):
        check(not counts.get(wrong), "%s: %s" % (wrong, counts))
    check(counts["refreshes"] >= count, "%s images of %d" % (counts["refreshes"], count))
    latency = found["latency_us"]
    stage.figures.update(received=round(found["updates_per_s"]), mean_us=round(latency["mean"], 1), p99_us=round(latency["p99"], 1))
    return found


@row("our-client")
def our_client(stage):
    """Our load client on the stock provider: two images, updates."""
    port = chain(stage)
    path = os.path.join(stage.folder, "items.xml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("<itemList>%s</itemList>" % "".join('<item domain="MarketPrice" name="%s"/>' % n for n in ("TRI.N", "IBM.N")))
    found = measured(stage, port, 2, 6, "--item-file", path)
    check(found["steady_counts"]["updates"] >= 10, "too few updates: %s" % found["steady_counts"])


@row("perf-our-client", seconds=120)
def perf_our_client(stage):
    """Our load client on ProvPerf: 100,000 items, 100,000 updates/s."""
    upper, port = stage.ends()
    source = stage.stock("ProvPerf", "-p", upper, "-serviceName", SERVICE, "-updateRate", 100_000, "-runTime", 600)
    stage.listening(upper, source)
    stage.between([upper], port, cache=False)
    check(measured(stage, port, 100_000, 10)["updates_per_s"] >= 98_000, "updates are missing")


@row("perf-our-source", seconds=120)
def perf_our_source(stage):
    """ConsPerf on our load source: 100,000 items, 100,000 updates/s."""
    upper, port = stage.ends()
    our_source_at(stage, upper, 100_000)
    stage.between([upper], port, cache=False)
    cons_perf(stage, port, 100_000, 10)


@row("non-interactive", chains=("lan",), direct=False)
def non_interactive(stage):
    """The stock publisher connects to the source distributor; stock consumers get images from its cache, then updates."""
    port, accept = stage.port(), stage.port()
    stage.between([], port, accept=accept)
    more = ["-s", SERVICE, "-mp", "TRI.N", "-mp", "IBM.N", "-mbo", "A.V", "-runtime", 600]
    publisher = stage.stock("NIProvider", "-h", "127.0.0.1", "-p", accept, *more)
    publisher.until(r"(?i)login response", 20)
    one = consumer(stage, port, "-mp", "TRI.N", "-mp", "IBM.N", "-mbo", "A.V").until(r"^UPDATE TYPE", 30, 9)
    one.end()
    price_is_complete(one.text(), "TRI.N")
    price_is_complete(one.text(), "IBM.N")


@row("two-providers", chains=("p2ps", "lan"), direct=False)
def two_providers(stage):
    """Two stock providers with services of different names: one consumer for each, through one server."""
    first, second, port = stage.port(), stage.port(), stage.port()
    provider(stage, first)
    other = stage.stock("Provider", "-p", second, "-s", "OTHER_FEED", "-id", 7, "-runtime", 600)
    stage.listening(second, other)
    stage.between([first, second], port, apart=True)
    one = consumer(stage, port, "-mp", "TRI.N")
    two = stage.stock("Consumer", "-h", "127.0.0.1", "-p", port, "-s", "OTHER_FEED", "-runtime", 600, "-mp", "IBM.N")
    for each, item in ((one, "TRI.N"), (two, "IBM.N")):
        each.until(r"^UPDATE TYPE", 20, 4).end()
        price_is_complete(each.text(), item)


ETA = "com.refinitiv.eta.examples."
EMA = "com.refinitiv.ema.examples.training."


def java_price_is_complete(text, item):
    """As `price_is_complete`, for the output of the Java consumer."""
    parts = re.split(r"^(?=\S+ ?\nDOMAIN: )", text, flags=re.M)
    mine = [p for p in parts if re.match(r"%s ?\nDOMAIN: MARKET_PRICE" % re.escape(item), p)]
    check(mine and "State: Open/Ok" in mine[0] and not any("State:" in p for p in mine[1:]), item + ": not one image and updates")
    steps(re.findall(r"^\s+22/BID: (\S+)", "".join(mine), re.M), item + " BID")


@row("java")
def java(stage):
    """ETA Java consumer and provider: three domains."""
    upper, port = stage.ends()
    source = stage.java("Provider", ETA + "provider.Provider", "-p", upper, "-s", SERVICE, "-runtime", 600)
    stage.listening(upper, source, 40)
    stage.between([upper], port)
    more = ["-s", SERVICE, "-mp", "TRI", "-mbo", "A.V", "-mbp", "B.V", "-runtime", 600]
    one = stage.java("Consumer", ETA + "consumer.Consumer", "-h", "127.0.0.1", "-p", port, *more)
    one.until(r"^UPDATE TYPE", 40, 12)
    one.end()
    java_price_is_complete(one.text(), "TRI")
    for item, domain in (("A.V", "MARKET_BY_ORDER"), ("B.V", "MARKET_BY_PRICE")):
        check(one.count(r"^%s ?\nDOMAIN: %s\nState: Open/Ok" % (re.escape(item), domain)) >= 1, "no image of " + item)


@row("java-mixed")
def java_mixed(stage):
    """The C consumer on the Java provider."""
    upper, port = stage.ends()
    source = stage.java("Provider", ETA + "provider.Provider", "-p", upper, "-s", SERVICE, "-runtime", 600)
    stage.listening(upper, source, 40)
    stage.between([upper], port)
    one = consumer(stage, port, "-mp", "TRI.N", "-mbo", "A.V").until(r"^UPDATE TYPE", 30, 8)
    one.end()
    check(blocks(one.text(), "TRI.N", PRICE)[0][0] == "refresh", "no image")
    steps(re.findall(r"^\s+BID\s+(\S+)", "".join(t for _, t in blocks(one.text(), "TRI.N", PRICE)), re.M), "TRI.N BID")


@row("java-ema", direct=True)
def java_ema(stage):
    """EMA Java's streaming consumer, with the dictionaries downloaded."""
    chain(stage, consumer=14002)
    one = stage.java("Consumer", EMA + "consumer.series100.ex100_MP_Streaming.Consumer", files=())
    one.until(r"^UpdateMsgEnd", 40, 5)
    one.end()
    check(one.count(r"^RefreshMsg$") == 1, "not one image")
    steps(re.findall(r'fid="22".*value="([^"]+)"', one.text()), "IBM.N BID")


@row("java-ema-provider", direct=False)
def java_ema_provider(stage):
    """EMA Java's interactive provider with the C consumer, which cannot read its login reply directly."""
    upper, port = stage.ends(provider=14002)
    source = stage.java("IProvider", EMA + "iprovider.series100.ex100_MP_Streaming.IProvider")
    stage.listening(upper, source, 40)
    stage.between([upper], port)
    one = consumer(stage, port, "-mp", "IBM.N").until(r"^UPDATE TYPE", 30, 4)
    one.end()
    check([k for k, _ in blocks(one.text(), "IBM.N", PRICE)][:2] == ["refresh", "update"], "no image and updates")


@row("java-publisher", chains=("lan",), direct=False)
def java_publisher(stage):
    """ETA Java's publisher connects to the source distributor; the Java consumer reads its item."""
    port, accept = stage.port(), stage.port()
    stage.between([], port, accept=accept)
    stage.java("NIProvider", ETA + "niprovider.NIProvider", "-h", "127.0.0.1", "-p", accept, "-s", SERVICE, "-mp", "TRI", "-runtime", 600)
    one = consumer(stage, port, "-mp", "TRI").until(r"^UPDATE TYPE", 40, 4)
    one.end()
    check([k for k, _ in blocks(one.text(), "TRI", PRICE)][:2] == ["refresh", "update"], "no image and updates")
