package route

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// set is one of the table's sets and maps that this package fills. The map
// "affinity" is not among them: packets fill it.
type set uint8

const (
	inner        set = iota // address, protocol, port: group; asked by this node and its pods
	outer                   // the same, asked by everybody else
	innerPorts              // node ports: protocol, port: group
	outerPorts              //
	loopPorts               // node ports at 127.0.0.0/8
	refused                 // address, protocol, port of what has no endpoint: what is done about it
	refusedPorts            // the same by node port
	groups                  // group: the chain that picks one of its members
	slots                   // group, number: member
	picks                   // group, number: member, where clients stick
	sticky                  // group, member: member, where clients stick
	members                 // member: address, port
	hairpins                // address, the same address: an endpoint of this node
	remotes                 // address, protocol, port: an endpoint elsewhere
	setCount
)

// field is how one word of a key or a value is written.
type field uint8

const (
	address  field = iota
	protocol       // 8 bits, padded
	port           // 16 bits, padded
	id             // nft's "classid": what meta priority holds
	mark
	number
	verdict
)

// shape is how a set is declared. A map has fields of values.
type shape struct {
	name        string
	key, value  []field
	of, valueOf string // declared by expressions ("typeof") instead of by types
}

const randomNumber = "meta priority . numgen random mod 2"

func (s set) shape() shape {
	service, nodePort := []field{address, protocol, port}, []field{protocol, port}
	switch s {
	case inner:
		return shape{name: "inner", key: service, value: []field{id}}
	case outer:
		return shape{name: "outer", key: service, value: []field{id}}
	case innerPorts:
		return shape{name: "inner-ports", key: nodePort, value: []field{id}}
	case outerPorts:
		return shape{name: "outer-ports", key: nodePort, value: []field{id}}
	case loopPorts:
		return shape{name: "loop-ports", key: nodePort, value: []field{id}}
	case refused:
		return shape{name: "refused", key: service, value: []field{verdict}}
	case refusedPorts:
		return shape{name: "refused-ports", key: nodePort, value: []field{verdict}}
	case groups:
		return shape{name: "groups", key: []field{id}, value: []field{verdict}}
	case slots:
		return shape{name: "slots", key: []field{id, number}, value: []field{id}, of: randomNumber, valueOf: "meta priority"}
	case picks:
		return shape{name: "picks", key: []field{id, number}, value: []field{mark}, of: randomNumber, valueOf: "meta mark"}
	case sticky:
		return shape{name: "sticky", key: []field{id, mark}, value: []field{id}}
	case members:
		return shape{name: "members", key: []field{id}, value: []field{address, port}}
	case hairpins:
		return shape{name: "hairpins", key: []field{address, address}}
	case remotes:
		return shape{name: "remotes", key: service}
	}
	panic(fmt.Sprintf("no set %d", s))
}

func (f field) nftType() string {
	return [...]string{
		address: "ipv4_addr", protocol: "inet_proto", port: "inet_service", id: "classid", mark: "mark", number: "", verdict: "verdict",
	}[f]
}

// key is an element's key in words: what the fields of its set hold, in order.
type key struct {
	set     set
	a, b, c uint32
}

// value is an element's value in words. A verdict is a chain of the package.
type value struct{ a, b uint32 }

// Verdicts of refused and refusedPorts.
const (
	reject = 1
	drop   = 2
)

func word(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func addrOf(w uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], w)
	return netip.AddrFrom4(b)
}

// Protocols by number, as in IP's header.
const (
	tcp  = 6
	udp  = 17
	sctp = 132
)

func protocolName(p uint32) string {
	switch p {
	case tcp:
		return "tcp"
	case udp:
		return "udp"
	case sctp:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}

// text writes words as nft reads them.
func text(fields []field, words ...uint32) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		w := words[i]
		switch f {
		case address:
			out[i] = addrOf(w).String()
		case protocol:
			out[i] = protocolName(w)
		case id:
			out[i] = fmt.Sprintf("%x:%x", w>>16, w&0xffff)
		case mark:
			out[i] = fmt.Sprintf("0x%08x", w)
		default:
			out[i] = strconv.FormatUint(uint64(w), 10)
		}
	}
	return out
}

func (k key) text() []string { return text(k.set.shape().key, k.a, k.b, k.c) }

func (k key) String() string {
	return k.set.shape().name + " { " + strings.Join(k.text(), " . ") + " }"
}

// valueText writes the value that an element with this key has; nil in a set.
func (k key) valueText(v value) []string {
	s := k.set.shape()
	if len(s.value) == 0 {
		return nil
	}
	if s.value[0] != verdict {
		return text(s.value, v.a, v.b)
	}
	if k.set == groups {
		return []string{"goto " + chainOf(v)}
	}
	if v.a == drop {
		return []string{"drop"}
	}
	return []string{"goto " + chainReject}
}

// decode reads words as the kernel holds them: four bytes each, numbers that come
// from packets in network order, others in the machine's.
func decode(fields []field, data []byte) (words [3]uint32, ok bool) {
	if len(data) < 4*(len(fields)-1)+1 || len(fields) > len(words) {
		return words, false
	}
	for i, f := range fields {
		var b [4]byte
		copy(b[:], data[4*i:])
		switch f {
		case address:
			words[i] = binary.BigEndian.Uint32(b[:])
		case protocol:
			words[i] = uint32(b[0])
		case port:
			words[i] = uint32(binary.BigEndian.Uint16(b[:]))
		default:
			words[i] = binary.NativeEndian.Uint32(b[:])
		}
	}
	return words, true
}

// encode is the reverse of decode, for looking one element up.
func encode(fields []field, words ...uint32) []byte {
	out := make([]byte, 4*len(fields))
	for i, f := range fields {
		b := out[4*i:]
		switch f {
		case address:
			binary.BigEndian.PutUint32(b, words[i])
		case protocol:
			b[0] = byte(words[i])
		case port:
			binary.BigEndian.PutUint16(b, uint16(words[i]))
		default:
			binary.NativeEndian.PutUint32(b, words[i])
		}
	}
	if n := len(fields); n == 1 && fields[0] == protocol {
		return out[:1]
	}
	return out
}

// verdictValue is what a verdict in the kernel means; one that is none of ours
// equals nothing that is wanted.
func verdictValue(s set, code int32, chain string) value {
	const nfDrop = 0
	if s == groups {
		return parseChain(chain)
	}
	switch {
	case chain == chainReject:
		return value{a: reject}
	case chain == "" && code == nfDrop:
		return value{a: drop}
	}
	return value{a: unknown}
}

// unknown stands for what this package cannot have written.
const unknown = ^uint32(0)
