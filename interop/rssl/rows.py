"""The rows: stock programs at one or both ends, our programs between them or at the other end.

A row is a function of a `Stage`. With the chain `direct` it runs the stock programs alone, which tests the row itself.
"""

import re

from stage import check

ROWS = {}
SERVICE = "DIRECT_FEED"
MBO, MBP, PRICE, LIST = "RSSL_DMT_MARKET_BY_ORDER", "RSSL_DMT_MARKET_BY_PRICE", "RSSL_DMT_MARKET_PRICE", "RSSL_DMT_SYMBOL_LIST"


def row(name, chains=("p2ps", "lan"), direct=True, seconds=60):
    """Registers a row for these chains; `direct`: it also runs with the stock programs alone."""

    def register(function):
        ROWS[name] = (function, chains, direct, seconds)
        return function

    return register


# Output of the C consumer.
LOGGED_IN = r"^Received Login Response for Username"
DIRECTORY = r'^Received serviceName: %s$' % SERVICE


def blocks(text, item, domain):
    """Kind (`refresh`, `update`, `other`) and text of everything printed for an item, in order."""
    found, head = [], re.compile(r"^(\S+)(?: \(PRIVATE STREAM\))?\nDOMAIN: (\S+)\n(State|UPDATE TYPE)?", re.M)
    marks = list(head.finditer(text))
    for mark, after in zip(marks, marks[1:] + [None]):
        if mark[1] == item and mark[2] == domain:
            kind = {"State": "refresh", "UPDATE TYPE": "update"}.get(mark[3], "other")
            found.append((kind, text[mark.start() : after.start() if after else len(text)]))
    return found


def steps(values, what):
    """Checks values that a stock provider raises by 0.01 per update: none is lost or repeated."""
    cents = [round(float(v) * 100) for v in values]
    check(len(cents) >= 4, "%s: only %d values" % (what, len(cents)))
    odd = [(a, b) for a, b in zip(cents, cents[1:]) if b - a != 1]
    check(not odd, "%s: values are not consecutive: %s" % (what, odd[:3]))


def price_is_complete(text, item):
    """Checks that one image with all its fields comes first, then updates without a gap."""
    shown = blocks(text, item, PRICE)
    check([k for k, _ in shown[:1]] == ["refresh"], "%s: the first message is not a refresh: %s" % (item, [k for k, _ in shown][:3]))
    check(all(k == "update" for k, _ in shown[1:]), "%s: other messages than updates follow: %s" % (item, [k for k, _ in shown]))
    check("State: Open/Ok" in shown[0][1], "%s: the image's state: %s" % (item, shown[0][1].splitlines()[2]))
    for field in ("RDNDISPLAY", "RDN_EXCHID", "DIVPAYDATE", "TRDPRC_1", "BID", "ASK", "ACVOL_1", "NETCHNG_1", "ASK_TIME"):
        check(re.search(r"^\s%s\s+\S" % field, shown[0][1], re.M), "%s: no %s in the image" % (item, field))
    steps(re.findall(r"^\s+BID\s+(\S+)", "".join(t for _, t in shown), re.M), item + " BID")


def provider(stage, port, *more, **how):
    process = stage.stock("Provider", "-p", port, "-s", SERVICE, "-runtime", 600, *more, **how)
    stage.listening(port, process)
    return process


def consumer(stage, port, *more, **how):
    return stage.stock("Consumer", "-h", "127.0.0.1", "-p", port, "-s", SERVICE, "-runtime", 600, *more, **how)


def chain(stage, **fixed):
    """A stock provider, our programs of the chain, and the port for consumers."""
    upper, port = stage.ends(**fixed)
    provider(stage, upper)
    stage.between([upper], port)
    stage.consumers_at = port
    return port


@row("price")
def price(stage):
    """MarketPrice, three items: images complete, updates without a gap, everything closed at the end."""
    port = chain(stage)
    items = ["TRI.N", "IBM.N", "GOOG.O"]
    one = consumer(stage, port, *[x for i in items for x in ("-mp", i)])
    one.until(r"^UPDATE TYPE", 20, 15)
    check(one.count(LOGGED_IN) == 1 and one.count(DIRECTORY) == 1, "no login or no directory")
    one.end()
    for item in items:
        price_is_complete(one.text(), item)


@row("consumers")
def consumers(stage):
    """A second consumer of an item that is open gets its own image, then the same updates."""
    port = chain(stage)
    first = consumer(stage, port, "-mp", "TRI.N").until(r"^UPDATE TYPE", 20, 3)
    second = consumer(stage, port, "-mp", "TRI.N").until(r"^UPDATE TYPE", 20, 5)
    for one in (first, second):
        one.end()
    if stage.chain != "direct":
        bids = [re.findall(r"^\s+BID\s+(\S+)", one.text(), re.M) for one in (first, second)]
        check(set(bids[1][1:]) <= set(bids[0]) or len(set(bids[1][1:]) - set(bids[0])) <= 1, "not the same updates: %s" % bids)
        price_is_complete(second.text(), "TRI.N")
    price_is_complete(first.text(), "TRI.N")


@row("by-order")
def by_order(stage):
    """MarketByOrder: summary and three orders in the image, then updates of entries."""
    one = consumer(stage, chain(stage), "-mbo", "A.V").until(r"^UPDATE TYPE", 20, 6)
    one.end()
    shown = blocks(one.text(), "A.V", MBO)
    check(shown[0][0] == "refresh" and all(k == "update" for k, _ in shown[1:]), "not one image and then updates")
    check("SUMMARY DATA" in shown[0][1] and re.search(r"CURRENCY\s+USD\(840\)", shown[0][1]), "no summary in the image")
    orders = re.findall(r"^ORDER ID: (\d+)\nACTION: RSSL_MPEA_ADD_ENTRY", shown[0][1], re.M)
    check(orders == ["100", "101", "102"], "orders of the image: %s" % orders)
    check(any("ACTION: RSSL_MPEA_UPDATE_ENTRY" in t for k, t in shown if k == "update"), "no updates of orders")


@row("by-price")
def by_price(stage):
    """MarketByPrice: the image in its parts, then updates of entries."""
    one = consumer(stage, chain(stage), "-mbp", "B.V").until(r"^UPDATE TYPE", 20, 6)
    one.end()
    shown = blocks(one.text(), "B.V", MBP)
    check(shown[0][0] == "refresh" and any(k == "update" for k, _ in shown), "the order is %s" % [k for k, _ in shown])
    image = "".join(t for k, t in shown if k == "refresh")
    points = re.findall(r"^PRICE POINT: (\S+)\nACTION: RSSL_MPEA_ADD_ENTRY", image, re.M)
    check(points == ["34.59b", "35.59a", "36.59a"], "price points of the image: %s" % points)


@row("symbol-list")
def symbol_list(stage):
    """The provider's symbol list, with names added while it runs."""
    one = consumer(stage, chain(stage), "-sl", "-mp", "TRI.N").until(r"^UPDATE TYPE", 20, 4)
    one.end()
    shown = blocks(one.text(), "_ETA_ITEM_LIST", LIST)
    check(shown and shown[0][0] == "refresh", "no symbol list")
    check(re.search(r"^\S+\tRSSL_MPEA_ADD_ENTRY", shown[0][1], re.M), "an empty symbol list")


@row("private-stream")
def private_stream(stage):
    """Private streams of three domains."""
    one = consumer(stage, chain(stage), "-mpps", "TRI.N", "-mbops", "A.V", "-mbpps", "B.V").until(r"^UPDATE TYPE", 20, 9)
    one.end()
    price_is_complete(one.text(), "TRI.N")
    for item, domain in (("TRI.N", PRICE), ("A.V", MBO), ("B.V", MBP)):
        shown = blocks(one.text(), item, domain)
        check(shown and shown[0][0] == "refresh" and "(PRIVATE STREAM)" in shown[0][1], "%s is not on a private stream" % item)


@row("snapshot")
def snapshot(stage):
    """Snapshots: one image each, non-streaming, and nothing after it."""
    one = consumer(stage, chain(stage), "-snapshot", "-mp", "TRI.N", "-mbo", "A.V").until(r"^State: Non-streaming/Ok", 20, 2)
    other = consumer(stage, stage.consumers_at, "-mp", "IBM.N").until(r"^UPDATE TYPE", 20, 3)
    one.end()
    other.end()
    check(one.count(r"^State: Non-streaming/Ok") == 2 and one.count(r"^UPDATE TYPE") == 0, "more than two images")


@row("view")
def view(stage):
    """Dynamic views: only requested fields arrive. The stock provider itself does not support views."""
    one = consumer(stage, chain(stage), "-view", "-mp", "TRI.N").until(r"^UPDATE TYPE", 20, 4)
    one.end()
    refused = one.count("does not support Dynamic View")
    fields = set(re.findall(r"^\t([A-Z][A-Z_0-9]+)\s{2,}", one.text(), re.M))
    if stage.chain == "direct":
        check(refused == 1 and len(fields) == 9, "the stock provider supports views now: change this row")
        return
    check(refused == 0, "views are not offered")
    check(fields == {"BID", "ASK"}, "fields in the view: %s" % sorted(fields))


@row("post")
def post(stage):
    """Posts on the item's stream: each is acknowledged, and returns as an update with its publisher."""
    one = consumer(stage, chain(stage), "-post", "-mp", "TRI.N").until(r"^Received AckMsg for stream", 40, 2)
    one.until(r"^Received UpdateMsg for stream \d+ from publisher", 15)
    one.end()
    check(one.count("nakCode") == 0, "a post was refused: " + "".join(re.findall(r"nakCode.*\n.*", one.text())[:1]))
    sent, acknowledged = (re.findall(p, one.text()) for p in (r"postId\s+= (\d+)", r"ackId=(\d+)"))
    check(acknowledged and sent[: len(acknowledged)] == acknowledged, "posts %s, acknowledged %s" % (sent, acknowledged))


@row("off-stream-post")
def off_stream_post(stage):
    """Posts on the login stream reach the provider of the service, whose answer is returned."""
    one = consumer(stage, chain(stage), "-offpost", "-mp", "TRI.N").until(r"^Received AckMsg for stream 1", 40, 1)
    one.end()
    check(one.count("ackId=1$") == 1, "another post is acknowledged")


@row("dictionary")
def dictionary(stage):
    """A consumer without dictionary files downloads both dictionaries, and reads its item with them."""
    one = consumer(stage, chain(stage), "-mp", "TRI.N", files=()).until(r"^UPDATE TYPE", 30, 4)
    one.end()
    check(one.count("^Received Dictionary Response: RWFFld") >= 1, "no field dictionary")
    check(one.count("^Enumerated Types Dictionary complete") == 1, "no enumerated types")
    check(re.search(r"RDN_EXCHID\s+SES\(155\)", one.text()), "an enumerated value is not shown as text")
    price_is_complete(one.text(), "TRI.N")


@row("unknown-service", direct=True)
def unknown_service(stage):
    """A consumer of an unknown service learns from the directory that it does not exist."""
    port = chain(stage)
    one = stage.stock("Consumer", "-h", "127.0.0.1", "-p", port, "-s", "NO_SUCH", "-runtime", 600, "-mp", "TRI.N")
    one.until(r"NO_SUCH.*not|not.*NO_SUCH|(?i:service not up|not found)", 20)
    check(one.count(r"^UPDATE TYPE") == 0, "data of an unknown service")


@row("restart", chains=("p2ps", "lan"), direct=False, seconds=90)
def restart(stage):
    """The provider is killed and restarted: the item becomes suspect, then recovers with a new image on the same stream."""
    upper, port = stage.ends()
    first = provider(stage, upper)
    stage.between([upper], port)
    one = consumer(stage, port, "-mp", "TRI.N").until(r"^UPDATE TYPE", 20, 3)
    first.end(9)
    one.until(r"State: Open/Suspect", 20)
    seen = one.count(r"^UPDATE TYPE")
    provider(stage, upper)
    one.until(r"^UPDATE TYPE", 30, seen + 3)
    one.end()
    after = one.text().split("State: Open/Suspect")[-1]
    check(re.search(r"State: Open/Ok", after), "no image after the provider came back")
    check(not re.search(r"State: Closed", one.text()), "the item was closed")


@row("watchlist")
def watchlist(stage):
    """The consumer on the vendor's reactor and watchlist: two prices, orders, price points."""
    port = chain(stage)
    more = ["-s", SERVICE, "-runTime", 600, "-mp", "TRI.N", "-mp", "IBM.N", "-mbo", "A.V", "-mbp", "B.V"]
    one = stage.stock("WatchlistConsumer", "-c", "socket", "-h", "127.0.0.1", "-p", port, *more)
    one.until(r"Msg Class: RSSL_MC_UPDATE", 30, 16)
    one.end()
    items = (("TRI.N", PRICE), ("IBM.N", PRICE), ("A.V", MBO), ("B.V", MBP))
    for item, domain in items:
        of = r"^Name: %s\s+Domain: %s\nStream: \d+\s+Msg Class: RSSL_MC_" % (re.escape(item), domain)
        check(one.count(of + "REFRESH\nState: Open/Ok") >= 1 and one.count(of + "UPDATE") >= 2, "no image or no updates of " + item)
