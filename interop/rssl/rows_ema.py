"""Rows with EMA's training programs in C++, which connect to localhost:14002 (publishers: 14003) and listen on 14002."""

import re

from rows import PRICE, SERVICE, blocks, chain, consumer, price_is_complete, row, steps
from stage import FILES, check

BID = r'fid="22" name="BID" dataType="Real" value="([^"]+)"'


def ema(stage, number, until, times=1, seconds=30, files=()):
    """Runs a stock consumer over the chain until it prints `until`; returns its output. Without files it downloads dictionaries."""
    chain(stage, consumer=14002)
    one = stage.stock("ema-cons-" + number, files=files).until(until, seconds, times)
    one.end()
    for wrong in ("OmmInvalid", "Closed / Suspect", "ClosedRecover"):
        check(wrong not in one.text(), "it printed %r" % wrong)
    return one.text()


@row("ema-100")
def streaming(stage):
    """100: MarketPrice streaming, dictionaries downloaded: one image, updates without a gap."""
    text = ema(stage, "100", r"^UpdateMsg$", 5)
    check(len(re.findall(r"^RefreshMsg$", text, re.M)) == 1, "not one image")
    check(text.index("RefreshMsg") < text.index("UpdateMsg"), "an update before the image")
    check('name="IBM.N"' in text and 'serviceName="%s"' % SERVICE in text and 'name="RDN_EXCHID"' in text, "not the item")
    steps(re.findall(BID, text), "IBM.N BID")


@row("ema-101")
def priority(stage):
    """101: with QoS and priority."""
    text = ema(stage, "101", r"^UpdateMsg$", 4)
    check('qos="RealTime/TickByTick"' in text, "another QoS")
    steps(re.findall(BID, text), "IBM.N BID")


@row("ema-102")
def snapshot(stage):
    """102: a snapshot."""
    text = ema(stage, "102", r"^RefreshMsgEnd$", 1)
    check("Non-streaming / Ok" in text and "UpdateMsg" not in text, "not a snapshot")


@row("ema-120")
def fields(stage):
    """120: every field by name, from files."""
    text = ema(stage, "120", r"^Fid: 22 Name: BID", 4, files=FILES)
    steps(re.findall(r"^Fid: 22 Name: BID value: (\S+)", text, re.M), "IBM.N BID")


@row("ema-140")
def by_order(stage):
    """140: MarketByOrder with summary and entries."""
    text = ema(stage, "140", r"^Action: Update", 3)
    check("Map Summary data:" in text and re.search(r"Name: CURRENCY Value: 840", text), "no summary")
    check(len(re.findall(r"^Action: Add", text, re.M)) >= 3, "fewer than three orders")


@row("ema-220")
def private(stage):
    """220: MarketByPrice on a private stream."""
    text = ema(stage, "220", r"(?i)^Item State: Open / Ok", 1)
    check("BBH.ITC" in text, "not the item")


@row("ema-330")
def login(stage):
    """330: the login stream, seen by the program."""
    text = ema(stage, "330", r"^Name: BID", 4)
    for element in ("SingleOpen", "AllowSuspectData", "SupportOMMPost", "SupportBatchRequests"):
        check(element in text, "no %s in the login" % element)


@row("ema-331")
def directory(stage):
    """331: the directory stream, seen by the program."""
    text = ema(stage, "331", r"^Name: BID", 4)
    check(SERVICE in text, "the service is not in the directory")


@row("ema-332")
def dictionary(stage):
    """332: the dictionary streams, seen by the program."""
    text = ema(stage, "332", r"(?i)RWFEnum", 1, seconds=40)
    check("RWFFld" in text, "no field dictionary")


@row("ema-340")
def on_stream_post(stage):
    """340: posts on the item's stream, acknowledged."""
    text = ema(stage, "340", r"^Received:\s+AckMsg", 1)
    check("Ack Id: 1" in text and "Nack" not in text, "not acknowledged")


@row("ema-341")
def off_stream_post(stage):
    """341: posts on the login stream; the stock provider refuses them, because the item is not open there."""
    text = ema(stage, "341", r"^Received:\s+AckMsg", 1)
    check("Ack Id: 1" in text, "no answer to the post")


@row("ema-350")
def pause(stage):
    """350: pause and resume of everything through the login stream."""
    text = ema(stage, "350", r"^Name: BID", 8, seconds=40)
    check("IBM.N" in text and "TRI.N" in text, "an item is missing")


@row("ema-360")
def view(stage):
    """360: a view."""
    text = ema(stage, "360", r"^Name: (BID|ASK)", 8)
    shown = set(re.findall(r"^Name: (\S+) Value", text, re.M))
    if stage.chain != "direct":
        check(shown <= {"BID", "ASK"}, "fields outside the view: %s" % sorted(shown))


@row("ema-370")
def batch(stage):
    """370: a batch of items."""
    text = ema(stage, "370", r"^Name: BID", 8)
    check("Closed / Ok" in text, "the batch is not closed")
    check("Item Name: IBM.N" in text and "Item Name: TRI.N" in text, "an item is missing")


@row("ema-provider", direct=True)
def provider(stage):
    """The interactive EMA provider with the C consumer."""
    upper, port = stage.ends(provider=14002)
    source = stage.stock("ema-iprov-100", files=FILES)
    stage.listening(upper, source)
    stage.between([upper], port)
    one = consumer(stage, port, "-mp", "IBM.N").until(r"^UPDATE TYPE", 30, 5)
    one.end()
    shown = blocks(one.text(), "IBM.N", PRICE)
    check(shown[0][0] == "refresh" and [k for k, _ in shown].count("refresh") == 1, "not one image")


@row("ema-generic", direct=True)
def generic(stage):
    """320: generic messages both ways between an EMA consumer and an EMA provider, on a domain of their own."""
    upper, port = stage.ends(consumer=14002)
    source = stage.stock("ema-iprov-320", files=FILES, config=port_of_provider(upper))
    stage.listening(upper, source)
    stage.between([upper], port)
    one = stage.stock("ema-cons-320", files=FILES).until(r"(?i)valueFromProvider", 30, 3)
    one.end()


def port_of_provider(port):
    """Configuration of EMA providers, whose port has no argument, with a service that has domain 200 too."""

    def named(tag, name, inside):
        return '<%s><Name value="%s"/>%s</%s>' % (tag, name, inside, tag)

    def group(tag, of, first, inside):
        default = '<Default%s value="%s"/>' % (of, first) if first else ""
        return "<%s>%s<%sList>%s</%sList></%s>" % (tag, default, of, inside, of, tag)

    domains = "".join('<CapabilitiesEntry value="%s"/>' % d for d in ("MMT_DICTIONARY", "MMT_MARKET_PRICE", 200))
    names = "".join("<Dictionaries%s><Dictionaries%sEntry value=\"D\"/></Dictionaries%s>" % (k, k, k) for k in ("Provided", "Used"))
    qos = '<QoS><QoSEntry><Timeliness value="Timeliness::RealTime"/><Rate value="Rate::TickByTick"/></QoSEntry></QoS>'
    info = "<InfoFilter><ServiceId value=\"1\"/>%s<Capabilities>%s</Capabilities>%s</InfoFilter>" % (names, domains, qos)
    state = '<StateFilter><ServiceState value="1"/><AcceptingRequests value="1"/></StateFilter>'
    server = '<ServerType value="ServerType::RSSL_SOCKET"/><Port value="%d"/>' % port
    files = (
        '<DictionaryType value="DictionaryType::FileDictionary"/><RdmFieldDictionaryItemName value="RWFFld"/><EnumTypeDefItemName value="RWFEnum"/>'
        '<RdmFieldDictionaryFileName value="./RDMFieldDictionary"/><EnumTypeDefFileName value="./enumtype.def"/>'
    )
    return "<EmaConfig>%s</EmaConfig>" % "".join(
        (
            group("IProviderGroup", "IProvider", "P", named("IProvider", "P", '<Server value="S"/><Directory value="R"/>')),
            group("ServerGroup", "Server", "", named("Server", "S", server)),
            group("DirectoryGroup", "Directory", "", named("Directory", "R", "<Service><Name value=\"%s\"/>%s%s</Service>" % (SERVICE, info, state))),
            group("DictionaryGroup", "Dictionary", "", named("Dictionary", "D", files)),
        )
    )


@row("ema-publisher", chains=("lan",), direct=False)
def publisher(stage):
    """The non-interactive EMA publisher connects to the source distributor; the C consumer reads its item."""
    port = stage.port()
    stage.between([], port, accept=14003)
    stage.stock("ema-niprov-100", files=FILES)
    one = stage.stock("Consumer", "-h", "127.0.0.1", "-p", port, "-s", "NI_PUB", "-runtime", 600, "-mp", "IBM.N")
    one.until(r"^UPDATE TYPE", 30, 5).end()
    shown = blocks(one.text(), "IBM.N", PRICE)
    check(shown[0][0] == "refresh", "no image first")
