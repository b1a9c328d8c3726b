#!/bin/sh
# Compares the kernel's TIPC and SCTP with utipc and TCP, in one run in the lab's machine:
# `cargo xtask lab run -t 900 interop/bench.sh`. The processor is emulated, so only ratios are
# meaningful. Build first: cargo build --profile dist -p utipc-lab
bench=$(dirname "$0")/../target/dist/utipc-lab
[ -x "$bench" ] || { echo "$bench is missing (run: cargo build --profile dist -p utipc-lab)"; exit 1; }
parties=utipc,tcp,uds,kernel-tipc,sctp
"$bench" bench latency --engine daemon --size 64 --transport "$parties" --rounds 5 || exit 1
"$bench" bench throughput --engine daemon --size 64,1024 --transport "$parties" --rounds 5 || exit 1
"$bench" bench throughput --engine daemon --size 65536 --transport utipc,tcp,uds,kernel-tipc --rounds 5 || exit 1
"$bench" bench latency --scope inter --size 64 --transport utipc,tcp,udp --rounds 5
