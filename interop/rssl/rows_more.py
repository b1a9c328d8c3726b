"""Rows with our load tools at one end, with publishers that dial in, and with Java."""

import re

from rows import LOGGED_IN, PRICE, SERVICE, blocks, chain, consumer, price_is_complete, provider, row, steps
from stage import check


@row("our-source", chains=("p2ps", "lan"), direct=True)
def our_source(stage):
    """The stock consumer on our load source: image, updates, no error."""
    upper, port = stage.ends()
    source = stage.ours("sink_driven_src", "--listen", "127.0.0.1:%d" % upper, "--service", SERVICE, "--rate", 20)
    stage.listening(upper, source)
    stage.between([upper], port)
    one = consumer(stage, port, "-mp", "RDT0", "-mp", "RDT1").until(r"^UPDATE TYPE", 20, 20)
    one.end()
    check(one.count(LOGGED_IN) == 1, "no login")
    for item in ("RDT0", "RDT1"):
        kinds = [k for k, _ in blocks(one.text(), item, PRICE)]
        check(kinds[:1] == ["refresh"] and kinds.count("refresh") == 1 and len(kinds) > 5, "%s: %s" % (item, kinds[:5]))


@row("our-client", chains=("p2ps", "lan"), direct=True)
def our_client(stage):
    """Our load client on the stock provider: every image, updates, no gap."""
    port = chain(stage)
    items = ["--item", "TRI.N", "--item", "IBM.N"]
    one = stage.ours("rmdstestclient", "--connect", "127.0.0.1:%d" % port, "--service", SERVICE, *items, "--seconds", 6)
    check(one.wait(30) == 0, "its result is bad: " + one.text()[-300:])
    check(re.search(r"(?i)images?\D+2\b", one.text()), "not two images")


@row("non-interactive", chains=("lan",), direct=False)
def non_interactive(stage):
    """The stock publisher dials the source distributor; stock consumers get images from its cache, then updates."""
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
    """The same as `price_is_complete`, of what the Java consumer prints."""
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

