#!/bin/sh
# In the lab's machine (`cargo xtask lab run -t 900 interop/bench.sh`): the kernel's TIPC and SCTP beside utipc and TCP, in one
# run. The processor is emulated, so the ratios count and the times do not. Build first: cargo build --release
bench=$(dirname "$0")/../target/release/utipc
[ -x "$bench" ] || { echo "$bench is missing (run: cargo build --release)"; exit 1; }
parties=utipc,tcp,uds,kernel-tipc,sctp
"$bench" bench latency --engine daemon --size 64 --transport "$parties" --rounds 5 || exit 1
"$bench" bench throughput --engine daemon --size 64,1024 --transport "$parties" --rounds 5 || exit 1
"$bench" bench throughput --engine daemon --size 65536 --transport utipc,tcp,uds,kernel-tipc --rounds 5 || exit 1
"$bench" bench latency --scope inter --size 64 --transport utipc,tcp,udp --rounds 5
