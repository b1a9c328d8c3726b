// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

/*
#cgo pkg-config: utipc
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utipc.h>

// errno and the text of a failure belong to the thread, which Go may change after each call, so both are collected
// here.
struct outcome {
	int value;
	int error;
	char *text;
};

static struct outcome done(int value)
{
	struct outcome out = { value, 0, NULL };
	if (value >= 0)
		return out;
	out.error = errno;
	if (out.error != EAGAIN && out.error != EINPROGRESS)
		out.text = strdup(utipc_strerror());
	return out;
}

static struct outcome go_own_node(uint32_t *node)
{
	*node = tipc_own_node();
	return done(*node ? 0 : -1);
}

static struct outcome go_socket(int kind)
{
	return done(tipc_socket(kind | SOCK_NONBLOCK));
}

static struct outcome go_connect(int sd, uint32_t type, uint32_t instance, uint32_t node)
{
	struct tipc_addr to = { .type = type, .instance = instance, .node = node };
	return done(tipc_connect(sd, &to));
}

static struct outcome go_connected(int sd)
{
	return done(utipc_connected(sd));
}

static struct outcome go_bind(int sd, uint32_t type, uint32_t lower, uint32_t upper, uint32_t scope)
{
	return done(tipc_bind(sd, type, lower, upper, scope));
}

static struct outcome go_unbind(int sd, uint32_t type, uint32_t lower, uint32_t upper)
{
	return done(tipc_unbind(sd, type, lower, upper));
}

static struct outcome go_join(int sd, struct tipc_addr member, int events, int loopback, int has_policy,
			      struct utipc_group_policy policy)
{
	return done(utipc_join(sd, &member, events != 0, loopback != 0, has_policy ? &policy : NULL));
}

static struct outcome go_leave(int sd)
{
	return done(tipc_leave(sd));
}

static struct outcome go_listen(int sd)
{
	return done(tipc_listen(sd, 0));
}

static struct outcome go_accept(int sd)
{
	struct outcome out = done(tipc_accept(sd, NULL));
	if (out.value >= 0)
		tipc_sock_non_block(out.value);
	return out;
}

static struct outcome go_address(int sd, int of_peer, struct tipc_addr *addr)
{
	return done(of_peer ? utipc_peeraddr(sd, addr) : tipc_sockaddr(sd, addr));
}

static struct outcome go_send(int sd, const void *data, size_t len)
{
	return done(tipc_send(sd, data, len));
}

static struct outcome go_send_to(int sd, const void *data, size_t len, int multicast, struct tipc_addr to)
{
	return done(multicast ? tipc_mcast(sd, data, len, &to) : tipc_sendto(sd, data, len, &to));
}

static struct outcome go_send_keyed(int sd, const void *data, size_t len, uint64_t key)
{
	return done(utipc_send_keyed(sd, data, len, NULL, key));
}

static struct outcome go_send_to_keyed(int sd, const void *data, size_t len, int multicast, struct tipc_addr to,
				       uint64_t key)
{
	return done(multicast ? utipc_mcast_keyed(sd, data, len, &to, key) :
				utipc_send_keyed(sd, data, len, &to, key));
}

static struct outcome go_receive(int sd, void *buffer, size_t len)
{
	return done(tipc_recv(sd, buffer, len, false));
}

struct message {
	struct outcome outcome;
	struct tipc_addr source;
	struct tipc_addr destination;
	int returned;
	int after_loss;
};

static struct message go_receive_from(int sd, void *buffer, size_t len)
{
	struct message message;
	memset(&message, 0, sizeof(message));
	message.outcome = done(tipc_recvfrom(sd, buffer, len, &message.source, &message.destination,
					     &message.returned));
	return message;
}

static struct message go_receive_group(int sd, void *buffer, size_t len)
{
	struct message message;
	struct utipc_group_info info = { UTIPC_NOT_OF_GROUP, 0 };
	memset(&message, 0, sizeof(message));
	message.outcome = done(utipc_recvgroup(sd, buffer, len, &message.source, &message.destination, &info));
	message.returned = (int)info.kind;
	message.after_loss = info.after_loss != 0;
	return message;
}

struct slow {
	struct outcome outcome;
	uint64_t dropped;
	uint64_t conflated;
	uint32_t kept;
};

static struct slow go_slow_member(int sd, struct tipc_addr member)
{
	struct slow slow;
	memset(&slow, 0, sizeof(slow));
	slow.outcome = done(utipc_slow_member(sd, &member, &slow.dropped, &slow.conflated, &slow.kept));
	return slow;
}

struct reason {
	struct outcome outcome;
	struct tipc_addr member;
	char text[256];
};

static struct reason go_wait_reason(int sd)
{
	struct reason reason;
	memset(&reason, 0, sizeof(reason));
	reason.outcome = done(utipc_wait_reason(sd, reason.text, sizeof(reason.text), &reason.member));
	return reason;
}

static struct outcome go_close(int sd)
{
	return done(tipc_close(sd));
}

static struct outcome go_shutdown(int sd)
{
	return done(utipc_shutdown(sd));
}

static struct outcome go_rejectable(int sd)
{
	return done(tipc_sock_rejectable(sd));
}

static struct outcome go_importance(int sd, uint32_t importance)
{
	return done(tipc_sock_importance(sd, importance));
}

static struct outcome go_nodelay(int sd, int nodelay)
{
	return done(utipc_sock_nodelay(sd, nodelay != 0));
}

static struct outcome go_connect_timeout(int sd, int ms)
{
	return done(utipc_sock_connect_timeout(sd, ms));
}
*/
import "C"

import (
	"syscall"
	"unsafe"
)

// Types of sockets, by the numbers of the C library.
const (
	stream    = syscall.SOCK_STREAM
	seqpacket = syscall.SOCK_SEQPACKET
	rdm       = syscall.SOCK_RDM
	dgram     = syscall.SOCK_DGRAM
)

// outcome is the result of a call of the C library.
type outcome struct {
	value int
	errno syscall.Errno
	text  string
}

// wouldBlock reports whether the call has to be repeated once the socket is ready.
func (o outcome) wouldBlock() bool { return o.errno == syscall.EAGAIN }

// err is the failure as an error, or nil.
func (o outcome) err() error {
	if o.errno == 0 {
		return nil
	}
	return &Error{Errno: o.errno, Text: o.text}
}

func taken(o C.struct_outcome) outcome {
	out := outcome{value: int(o.value), errno: syscall.Errno(o.error)}
	if o.text != nil {
		out.text = C.GoString(o.text)
		C.free(unsafe.Pointer(o.text))
	}
	return out
}

func callOwnNode() (NodeID, outcome) {
	var node C.uint32_t
	out := taken(C.go_own_node(&node))
	return NodeID(node), out
}

func callLeave() { C.utipc_leave() }

func callVersion() string { return C.GoString(C.utipc_version()) }

func callSocket(kind int) outcome { return taken(C.go_socket(C.int(kind))) }

func callClose(sd int) outcome { return taken(C.go_close(C.int(sd))) }

func callShutdown(sd int) outcome { return taken(C.go_shutdown(C.int(sd))) }

func callConnect(sd int, to words) outcome {
	return taken(C.go_connect(C.int(sd), C.uint32_t(to[0]), C.uint32_t(to[1]), C.uint32_t(to[2])))
}

func callConnected(sd int) outcome { return taken(C.go_connected(C.int(sd))) }

func callBind(sd int, r ServiceRange, scope NodeID) outcome {
	return taken(C.go_bind(C.int(sd), C.uint32_t(r.Type), C.uint32_t(r.Lower), C.uint32_t(r.Upper), C.uint32_t(scope)))
}

func callUnbind(sd int, r ServiceRange) outcome {
	return taken(C.go_unbind(C.int(sd), C.uint32_t(r.Type), C.uint32_t(r.Lower), C.uint32_t(r.Upper)))
}

// callJoin joins without a policy if that is nil.
func callJoin(sd int, member ServiceAddr, options GroupOptions, policy *policyWords) outcome {
	addr := cAddr(words{member.Type, member.Instance, uint32(member.Node)})
	var c C.struct_utipc_group_policy
	if policy != nil {
		c.slow, c.keys, c.bytes = C.uint32_t(policy.slow), C.uint32_t(policy.keys), C.uint32_t(policy.bytes)
		c.evict_after_ms = C.uint32_t(policy.evictAfter)
	}
	return taken(C.go_join(C.int(sd), addr, cBool(options.Events), cBool(options.Loopback), cBool(policy != nil), c))
}

func callLeaveGroup(sd int) outcome { return taken(C.go_leave(C.int(sd))) }

func callListen(sd int) outcome { return taken(C.go_listen(C.int(sd))) }

func callAccept(sd int) outcome { return taken(C.go_accept(C.int(sd))) }

func callAddress(sd int, ofPeer bool) (PortID, outcome) {
	var addr C.struct_tipc_addr
	out := taken(C.go_address(C.int(sd), cBool(ofPeer), &addr))
	w := wordsOf(addr)
	return PortID{Port: w[1], Node: NodeID(w[2])}, out
}

// The functions below pass buffers in the form &data[0], for which cgo checks only the buffer and not the whole object
// around it. The C library does not keep the address.

func callSend(sd int, data []byte) outcome {
	if len(data) == 0 {
		return taken(C.go_send(C.int(sd), nil, 0))
	}
	return taken(C.go_send(C.int(sd), unsafe.Pointer(&data[0]), C.size_t(len(data))))
}

func callSendTo(sd int, data []byte, to words, multicast bool) outcome {
	addr := cAddr(to)
	if len(data) == 0 {
		return taken(C.go_send_to(C.int(sd), nil, 0, cBool(multicast), addr))
	}
	return taken(C.go_send_to(C.int(sd), unsafe.Pointer(&data[0]), C.size_t(len(data)), cBool(multicast), addr))
}

func callSendKeyed(sd int, data []byte, key uint64) outcome {
	if len(data) == 0 {
		return taken(C.go_send_keyed(C.int(sd), nil, 0, C.uint64_t(key)))
	}
	return taken(C.go_send_keyed(C.int(sd), unsafe.Pointer(&data[0]), C.size_t(len(data)), C.uint64_t(key)))
}

func callSendToKeyed(sd int, data []byte, to words, multicast bool, key uint64) outcome {
	addr := cAddr(to)
	if len(data) == 0 {
		return taken(C.go_send_to_keyed(C.int(sd), nil, 0, cBool(multicast), addr, C.uint64_t(key)))
	}
	return taken(C.go_send_to_keyed(C.int(sd), unsafe.Pointer(&data[0]), C.size_t(len(data)), cBool(multicast), addr,
		C.uint64_t(key)))
}

func callReceive(sd int, buffer []byte) outcome {
	if len(buffer) == 0 {
		return taken(C.go_receive(C.int(sd), nil, 0))
	}
	return taken(C.go_receive(C.int(sd), unsafe.Pointer(&buffer[0]), C.size_t(len(buffer))))
}

// received is a message without its data.
type received struct {
	source, destination words
	returned            int
	afterLoss           bool
}

func callReceiveFrom(sd int, buffer []byte) (received, outcome) {
	var m C.struct_message
	if len(buffer) == 0 {
		m = C.go_receive_from(C.int(sd), nil, 0)
	} else {
		m = C.go_receive_from(C.int(sd), unsafe.Pointer(&buffer[0]), C.size_t(len(buffer)))
	}
	return newReceived(m), taken(m.outcome)
}

// callReceiveGroup receives of a member. The kind, as the C library numbers it, is in place of the reason of return.
func callReceiveGroup(sd int, buffer []byte) (received, outcome) {
	m := C.go_receive_group(C.int(sd), unsafe.Pointer(&buffer[0]), C.size_t(len(buffer)))
	return newReceived(m), taken(m.outcome)
}

func newReceived(m C.struct_message) received {
	return received{wordsOf(m.source), wordsOf(m.destination), int(m.returned), m.after_loss != 0}
}

func callSlowMember(sd int, member PortID) (SlowCounters, outcome) {
	slow := C.go_slow_member(C.int(sd), cAddr(words{0, member.Port, uint32(member.Node)}))
	return SlowCounters{uint64(slow.dropped), uint64(slow.conflated), uint32(slow.kept)}, taken(slow.outcome)
}

// callWaitReason returns the text, and the member that a send waits for. The value of the outcome is 1 if a call would
// wait.
func callWaitReason(sd int) (string, PortID, outcome) {
	reason := C.go_wait_reason(C.int(sd))
	member := wordsOf(reason.member)
	return C.GoString(&reason.text[0]), PortID{Port: member[1], Node: NodeID(member[2])}, taken(reason.outcome)
}

func callRejectable(sd int) outcome { return taken(C.go_rejectable(C.int(sd))) }

func callImportance(sd int, level Importance) outcome {
	return taken(C.go_importance(C.int(sd), C.uint32_t(level)))
}

func callNoDelay(sd int, on bool) outcome { return taken(C.go_nodelay(C.int(sd), cBool(on))) }

func callConnectTimeout(sd, ms int) outcome { return taken(C.go_connect_timeout(C.int(sd), C.int(ms))) }

// words are the first three words of struct tipc_addr: type, instance, node. Go cannot name the union in it.
type words [3]uint32

func cAddr(w words) (addr C.struct_tipc_addr) {
	*(*words)(unsafe.Pointer(&addr)) = w
	return addr
}

func wordsOf(addr C.struct_tipc_addr) words { return *(*words)(unsafe.Pointer(&addr)) }

func cBool(on bool) C.int {
	if on {
		return 1
	}
	return 0
}
