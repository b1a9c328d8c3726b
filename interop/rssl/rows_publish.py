"""Rows with stock publishers, which connect to the source distributor: consumers that come first, posts, dictionaries."""

import re

from rows import PRICE, SERVICE, blocks, consumer, price_is_complete, row
from stage import FILES, check

WAITS = r"(?s)State: Open/Suspect.*?Waiting for the item to be published"


def publisher(stage, port, *items, files=FILES):
    """The stock publisher with these prices."""
    more = [x for item in items for x in ("-mp", item)]
    return stage.stock("NIProvider", "-h", "127.0.0.1", "-p", port, "-s", SERVICE, "-runtime", 600, *more, files=files)


def came_late(text, item):
    """The stream waited for the item, got a complete image, and was never closed."""
    waits = re.search(WAITS, text)
    check(waits, "%s: no status says that it is pending" % item)
    price_is_complete(text[waits.end() :], item)
    check(not re.search(r"State: Closed(?!/Ok)", text), "%s was closed" % item)


@row("publisher-later", chains=("lan",), direct=False)
def later(stage):
    """An item requested before any publisher has it: the stream waits until a second publisher publishes it."""
    port, accept = stage.port(), stage.port()
    stage.between([], port, accept=accept)
    publisher(stage, accept, "IBM.N")
    one = consumer(stage, port, "-mp", "TRI.N").until(WAITS, 20)
    publisher(stage, accept, "TRI.N")
    one.until(r"^UPDATE TYPE", 30, 4).end()
    came_late(one.text(), "TRI.N")


@row("publisher-restart", chains=("lan",), direct=False)
def restart(stage):
    """The publisher is killed while a consumer has an item of it and waits for another; restarted, it publishes both."""
    port, accept = stage.port(), stage.port()
    stage.between([], port, accept=accept)
    first = publisher(stage, accept, "IBM.N")
    one = consumer(stage, port, "-mp", "TRI.N", "-mp", "IBM.N").until(WAITS, 20).until(r"^UPDATE TYPE", 30, 3)
    first.end(9)
    one.until(r"State: Open/Suspect.*\"Source lost", 20)
    seen = len(one.text())
    publisher(stage, accept, "TRI.N", "IBM.N")
    updates = one.count(r"^UPDATE TYPE")
    one.until(r"^UPDATE TYPE", 30, updates + 8).end()
    after = one.text()[seen:]
    for item in ("TRI.N", "IBM.N"):
        kinds = [(k, "State: Open/Ok" in t) for k, t in blocks(after, item, PRICE)]
        check(("refresh", True) in kinds and ("update", False) in kinds, "%s: no image and updates: %s" % (item, kinds))
    check(not re.search(r"State: Closed(?!/Ok)", one.text()), "an item was closed")


@row("publisher-post", chains=("lan",), direct=False, seconds=90)
def post(stage):
    """Posts for the item of a publisher are acknowledged, and return as updates with the poster's name."""
    port, accept = stage.port(), stage.port()
    stage.between([], port, accept=accept)
    source = publisher(stage, accept, "TRI.N")
    one = consumer(stage, port, "-post", "-mp", "TRI.N").until(r"^Received AckMsg for stream", 40, 2)
    one.until(r"^Received UpdateMsg for stream \d+ from publisher", 15)
    one.end()
    check(one.count("nakCode") == 0, "a post was refused: " + "".join(re.findall(r"nakCode.*\n.*", one.text())[:1]))
    sent, acknowledged = (re.findall(p, one.text()) for p in (r"postId\s+= (\d+)", r"ackId=(\d+)"))
    check(acknowledged and sent[: len(acknowledged)] == acknowledged, "posts %s, acknowledged %s" % (sent, acknowledged))
    check(source.alive() and "Unhandled" not in source.text(), "the publisher was disturbed")


@row("publisher-dictionary", chains=("lan",), direct=False)
def dictionary(stage):
    """A publisher without dictionary files downloads them from the distributor."""
    port, accept = stage.port(), stage.port()
    stage.between([], port, accept=accept)
    source = publisher(stage, accept, "TRI.N", files=())
    source.until(r"(?i)^Send Dictionary Request", 20)
    one = consumer(stage, port, "-mp", "TRI.N").until(r"^UPDATE TYPE", 30, 4)
    one.end()
    text = one.text()
    check(source.alive() and [k for k, _ in blocks(text, "TRI.N", PRICE)][-1:] == ["update"], "no updates")
