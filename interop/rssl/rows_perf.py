"""The vendor's performance tools end to end: 100,000 items."""

import re

from rows import SERVICE, row
from stage import check

ITEMS = 100_000


def figure(text, section, name):
    """A number of the summary that ConsPerf prints at its end."""
    part = text.split(section)[-1]
    found = re.search(r"%s\s*:\s*([\d.]+)" % re.escape(name), part)
    check(found, "no %r in its summary" % name)
    return float(found[1])


def cons_perf(stage, port, rate, seconds, items=ITEMS):
    """ConsPerf for `seconds`: every image, the rate, the latency, the processor time of the others."""
    more = ["-serviceName", SERVICE, "-itemCount", items, "-steadyStateTime", seconds]
    one = stage.stock("ConsPerf", "-h", "127.0.0.1", "-p", port, *more)
    code = one.wait(seconds + 60)
    text = one.text()
    check("Overall Statistics" in text, "it ended (%s) without statistics: %s" % (code, text[-400:]))
    refreshes = figure(text, "Test Statistics", "Refreshes received")
    check(refreshes == items, "%d images of %d" % (refreshes, items))
    steady = "Steady State Statistics"
    got = figure(text, steady, "Avg update rate")
    mean, most = (figure(text, steady, "Latency %s (usec)" % which) for which in ("avg", "max"))
    stage.figures.update(rate=rate, received=round(got), mean_us=mean, max_us=most)
    for process in stage.processes:
        if process.alive():
            stage.figures["cpu_s_" + process.name.rsplit("-", 1)[0]] = round(process.cpu(), 2)
    check(got >= 0.98 * rate, "%d updates/s arrived of %d" % (got, rate))


def pair(stage, rate, seconds):
    """ProvPerf, the chain, ConsPerf."""
    upper, port = stage.ends()
    source = stage.stock("ProvPerf", "-p", upper, "-serviceName", SERVICE, "-updateRate", rate, "-runTime", 600)
    stage.listening(upper, source)
    stage.between([upper], port, cache=False)
    cons_perf(stage, port, rate, seconds)


@row("perf-10k")
def slow(stage):
    """ConsPerf and ProvPerf, 100,000 items, 10,000 updates/s."""
    pair(stage, 10_000, 10)


@row("perf-200k", seconds=120)
def fast(stage):
    """ConsPerf and ProvPerf, 100,000 items, 200,000 updates/s."""
    pair(stage, 200_000, 20)


@row("perf-publisher", chains=("lan",), direct=False, seconds=120)
def publisher(stage):
    """NIProvPerf connects to the source distributor with 100,000 items; ConsPerf gets every image."""
    port, accept, rate, seconds = stage.port(), stage.port(), 50_000, 10
    stage.between([], port, accept=accept)
    more = ["-serviceName", SERVICE, "-itemCount", ITEMS, "-updateRate", rate, "-runTime", 600]
    stage.stock("NIProvPerf", "-h", "127.0.0.1", "-p", accept, *more).until(r"(?i)images sent|UpdRate: +[1-9]|updates", 60)
    cons_perf(stage, port, rate, seconds)
