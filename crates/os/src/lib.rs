//! Every system call that utipc makes: UDP, Ethernet, offloads, reactor.
