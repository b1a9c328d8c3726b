// SPDX-License-Identifier: Apache-2.0 OR MIT

package utipc

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// network is what the addresses of this package return from Network.
const network = "tipc"

// NodeID is the address of a node. 0 stands for any node.
type NodeID uint32

// String returns the address in hexadecimal, as TIPC shows it.
func (n NodeID) String() string { return strconv.FormatUint(uint64(n), 16) }

// ServiceAddr is the address of a service, served by every socket that is bound to it, on any node.
type ServiceAddr struct {
	Type, Instance uint32
	// Node restricts the address to one node. A socket that binds it is then visible only on that node, which must be its
	// own.
	Node NodeID
}

// ServiceRange is a range of service addresses. A message to it goes to every socket bound in the range.
type ServiceRange struct {
	Type, Lower, Upper uint32
	// Node restricts a binding to the own node; 0 is the whole cluster. Multicasts ignore it.
	Node NodeID
}

// PortID is the address of one socket.
type PortID struct {
	Port uint32
	Node NodeID
}

// Service is what a socket can be bound to: a [ServiceAddr] or a [ServiceRange].
type Service interface {
	net.Addr
	span() ServiceRange
}

var (
	_ Service  = ServiceAddr{}
	_ Service  = ServiceRange{}
	_ net.Addr = PortID{}
)

// Network returns "tipc".
func (ServiceAddr) Network() string { return network }

// Network returns "tipc".
func (ServiceRange) Network() string { return network }

// Network returns "tipc".
func (PortID) Network() string { return network }

// String returns the address in the form {type,instance}, with @node in hexadecimal if it has one.
func (a ServiceAddr) String() string { return fmt.Sprintf("{%d,%d}%s", a.Type, a.Instance, at(a.Node)) }

// String returns the range in the form {type,lower,upper}, with @node in hexadecimal if it has one.
func (r ServiceRange) String() string {
	return fmt.Sprintf("{%d,%d,%d}%s", r.Type, r.Lower, r.Upper, at(r.Node))
}

// String returns the address in the form node:port, the node in hexadecimal.
func (p PortID) String() string { return fmt.Sprintf("%v:%d", p.Node, p.Port) }

func at(node NodeID) string {
	if node == 0 {
		return ""
	}
	return "@" + node.String()
}

func (a ServiceAddr) span() ServiceRange  { return ServiceRange{a.Type, a.Instance, a.Instance, a.Node} }
func (r ServiceRange) span() ServiceRange { return r }

// AllInstances returns the range of all instances of a service type.
func AllInstances(service uint32) ServiceRange { return ServiceRange{Type: service, Upper: ^uint32(0)} }

// ParseServiceAddr parses "type:instance" or "{type,instance}", optionally followed by "@node" in hexadecimal.
func ParseServiceAddr(text string) (ServiceAddr, error) {
	invalid := func() (ServiceAddr, error) {
		return ServiceAddr{}, &net.AddrError{Err: "not a service address (type:instance, as 4711:1)", Addr: text}
	}
	address, node, onNode := strings.Cut(text, "@")
	separator := ":"
	if inner, braced := strings.CutPrefix(address, "{"); braced {
		if address, braced = strings.CutSuffix(inner, "}"); !braced {
			return invalid()
		}
		separator = ","
	}
	service, instance, found := strings.Cut(address, separator)
	t, errType := strconv.ParseUint(service, 10, 32)
	i, errInstance := strconv.ParseUint(instance, 10, 32)
	if !found || errType != nil || errInstance != nil {
		return invalid()
	}
	parsed := ServiceAddr{Type: uint32(t), Instance: uint32(i)}
	if onNode {
		n, err := strconv.ParseUint(node, 16, 32)
		if err != nil {
			return invalid()
		}
		parsed.Node = NodeID(n)
	}
	return parsed, nil
}

// target is the destination of a message or of a connection request, and whether it is a multicast.
func target(addr net.Addr) (to words, multicast bool, err error) {
	switch a := addr.(type) {
	case ServiceAddr:
		return words{a.Type, a.Instance, uint32(a.Node)}, false, nil
	case PortID:
		return words{0, a.Port, uint32(a.Node)}, false, nil
	case ServiceRange:
		return words{a.Type, a.Lower, a.Upper}, true, nil
	default:
		return words{}, false, &net.AddrError{
			Err:  "not an address of TIPC (pass a ServiceAddr, ServiceRange or PortID)",
			Addr: fmt.Sprint(addr),
		}
	}
}
