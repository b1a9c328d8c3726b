"""Runs programs on the vendor's message interface for Java, which Maven fetches, over our chain, with default settings.

    python3 interop/rssl/ema/run.py [--chain CHAIN]... [--build]

The provider serves a dictionary of as many fields as the vendor's, made here. The output of every program is in
target/rssl-ema/CHAIN. Prints a line for each chain, then `rssl-ema: P passed, F failed`.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from run import enter_namespace  # noqa: E402
from stage import CHAINS, FILES, ROOT, Failed, Stage, check, target  # noqa: E402

OUT = os.path.join(ROOT, "target", "rssl-ema")
DICTIONARIES = FILES[:2]
SERVICE = "DIRECT_FEED"  # of the provider's default settings
FIELDS = 16145
KNOWN = {15: ("CURRENCY", "ENUMERATED", "5 ( 3 )", "ENUM", 2), 22: ("BID", "PRICE", "17", "REAL64", 7)}
ENUMS = """!tag Filename  ENUMTYPE.001
!tag Desc      interop
!tag Type      2
!tag RT_Version   4.20.03
!tag Build_RDMD     1
!tag DT_Version 1
!tag Date      1-Jan-2026
CURRENCY     15
    840        "USD"   US dollar
"""


def dictionary():
    """The lines of a dictionary of fields."""
    yield "!tag Filename  RWF.DAT\n!tag Desc      interop\n!tag Type      1\n!tag Version   4.20.03\n!tag Build     001\n!tag Date      1-Jan-2026\n"
    for fid in range(1, FIELDS + 1):
        name, kind, length, rwf, size = KNOWN.get(fid, ("FIELD_%d" % fid, "PRICE", "17", "REAL64", 7))
        yield '%-12s "%s" %d NULL %s %s %s %d\n' % (name, name.replace("_", " "), fid, kind, length, rwf, size)


def prepare():
    """Makes the dictionaries, fetches the library, and compiles the two programs."""
    jars = os.path.join(OUT, "java", "lib")
    os.makedirs(jars, exist_ok=True)
    with open(os.path.join(OUT, DICTIONARIES[0]), "w", encoding="ascii") as file:
        file.writelines(dictionary())
    with open(os.path.join(OUT, DICTIONARIES[1]), "w", encoding="ascii") as file:
        file.write(ENUMS)
    if not glob.glob(os.path.join(jars, "ema-*.jar")):
        fetch = ["mvn", "--quiet", "--batch-mode", "-f", os.path.join(HERE, "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*fetch, "-DoutputDirectory=" + jars, "-DincludeScope=runtime"], check=True)
    classes = os.path.join(OUT, "classes")
    sources = sorted(glob.glob(os.path.join(HERE, "*.java")))
    subprocess.run(["javac", "-Xlint:all", "-Werror", "-cp", os.path.join(jars, "*"), "-d", classes, *sources], check=True)
    shutil.make_archive(os.path.join(OUT, "own"), "zip", classes)
    os.replace(os.path.join(OUT, "own.zip"), os.path.join(OUT, "java", "own.jar"))


def run(chain):
    """Checks what the consumer gets over the chain; returns the milliseconds from its start to the image."""
    folder = os.path.join(OUT, chain)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    stage = Stage(OUT, chain, folder)
    try:
        above, below = stage.ends()
        stage.java("Provider", "Provider", above, files=DICTIONARIES, ready="^listening")
        stage.between([above], below)
        consumer = stage.java("Consumer", "Consumer", "127.0.0.1:%d" % below, SERVICE, files=())
        consumer.until("^[0-9]+ ms update", 40, 5).until("^[0-9]+ ms dictionary", 40)
        text = consumer.text()
        images = re.findall(r"^([0-9]+) ms image (.*)$", text, re.M)
        check(len(images) == 1, "%d images" % len(images))
        check("Open / Ok" in images[0][1] and "BID=39.99" in images[0][1] and "CURRENCY=USD" in images[0][1], "image " + images[0][1])
        fields = re.findall(r"ms dictionary ([0-9]+)", text)
        check(fields == [str(FIELDS)], "%s fields in the dictionary, not %d" % (fields, FIELDS))
        bids = [round(100 * float(bid)) for bid in re.findall(r"ms update BID=([0-9.]+)", text)]
        check(bids == list(range(bids[0], bids[0] + len(bids))), "updates %s" % bids)
        check("ms status" not in text, "a status")
        return int(images[0][0])
    finally:
        stage.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chain", action="append", choices=CHAINS, help="[default: all]")
    parser.add_argument("--build", action="store_true", help="build our programs first")
    args = parser.parse_args()
    if os.environ.get("RSSL_STOCK_ALONE") != "1":
        if args.build:
            command = [os.environ.get("CARGO", "cargo"), "build", "--quiet", "-p", "mdist", "-p", "utipc-tools", "--bins"]
            subprocess.run([*command, "--target-dir", target()], cwd=ROOT, check=True)
        prepare()
    enter_namespace(__file__)
    passed = failed = 0
    for chain in args.chain or CHAINS:
        try:
            print("passed  %-8s image=%d ms" % (chain, run(chain)), flush=True)
            passed += 1
        except Failed as reason:
            print("failed  %-8s %s" % (chain, reason), flush=True)
            failed += 1
    print("rssl-ema: %d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
