package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// observed is what the kernel has of a table.
type observed struct {
	rules    map[string]int // chains, with their numbers of rules
	elements map[key]value  // nil when a set is missing
}

// kernel reads nf_tables through netlink. The program nft would answer in JSON,
// for a large table in seconds and hundreds of megabytes.
type kernel struct{ table string }

// generation counts the transactions of the network namespace, whosoever they are.
func (k kernel) generation() (uint32, error) {
	var gen uint32
	err := request(unix.NFT_MSG_GETGEN, 0, func(msg []byte) error {
		for typ, data := range attributes(msg) {
			if typ == unix.NFTA_GEN_ID && len(data) == 4 {
				gen = binary.BigEndian.Uint32(data)
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read generation of nftables: %w", err)
	}
	return gen, nil
}

// observe reads the table. It returns nil when there is none.
func (k kernel) observe() (*observed, error) {
	const tries = 10
	for try := 1; ; try++ {
		o, err := k.read()
		if errors.Is(err, netlink.ErrDumpInterrupted) && try < tries {
			continue // somebody changed the rules meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("read nftables table %s: %w", k.table, err)
		}
		return o, nil
	}
}

func (k kernel) read() (*observed, error) {
	o := &observed{rules: map[string]int{}, elements: map[key]value{}}
	err := request(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, func(msg []byte) error {
		var table, chain string
		for typ, data := range attributes(msg) {
			switch typ {
			case unix.NFTA_CHAIN_TABLE:
				table = zeroEnded(data)
			case unix.NFTA_CHAIN_NAME:
				chain = zeroEnded(data)
			}
		}
		if table == k.table {
			o.rules[chain] = 0
		}
		return nil
	})
	if err != nil || len(o.rules) == 0 {
		return nil, err
	}
	err = request(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, func(msg []byte) error {
		for typ, data := range attributes(msg) {
			if typ == unix.NFTA_RULE_CHAIN {
				o.rules[zeroEnded(data)]++
			}
		}
		return nil
	}, nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(k.table)))
	if err != nil {
		return nil, err
	}
	for s := range setCount {
		err := k.list(s, func(key key, v value) { o.elements[key] = v })
		if errors.Is(err, syscall.ENOENT) {
			o.elements = nil
			return o, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return o, nil
}

// lookup returns the value of one element.
func (k kernel) lookup(of key) (value, bool, error) {
	shape := of.set.shape()
	elem := nl.NewRtAttr(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, nil)
	elem.AddRtAttr(unix.NLA_F_NESTED|unix.NFTA_SET_ELEM_KEY, nil).
		AddRtAttr(unix.NFTA_DATA_VALUE, encode(shape.key, of.a, of.b, of.c))
	list := nl.NewRtAttr(unix.NLA_F_NESTED|unix.NFTA_SET_ELEM_LIST_ELEMENTS, nil)
	list.AddChild(elem)
	var found value
	var ok bool
	err := k.elements(of.set, 0, func(_ key, v value) { found, ok = v, true }, list)
	if errors.Is(err, syscall.ENOENT) {
		return value{}, false, nil
	}
	if err != nil {
		return value{}, false, fmt.Errorf("look %s up in nftables table %s: %w", of, k.table, err)
	}
	return found, ok, nil
}

func (k kernel) list(s set, each func(key, value)) error {
	return k.elements(s, unix.NLM_F_DUMP, each)
}

func (k kernel) elements(s set, flags int, each func(key, value), more ...nl.NetlinkRequestData) error {
	shape := s.shape()
	return request(unix.NFT_MSG_GETSETELEM, flags, func(msg []byte) error {
		for typ, data := range attributes(msg) {
			if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, elem := range nested(data) {
				key, v, ok := element(s, shape, elem)
				if !ok {
					return fmt.Errorf("set %s has an element of %d bytes that cannot be read", shape.name, len(elem))
				}
				each(key, v)
			}
		}
		return nil
	}, append([]nl.NetlinkRequestData{
		nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(k.table)),
		nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(shape.name)),
	}, more...)...)
}

// element reads one element of a dump.
func element(s set, shape shape, elem []byte) (key, value, bool) {
	k, v, read := key{set: s}, value{}, false
	for typ, data := range nested(elem) {
		for inner, data := range nested(data) {
			switch {
			case typ == unix.NFTA_SET_ELEM_KEY && inner == unix.NFTA_DATA_VALUE:
				words, ok := decode(shape.key, data)
				if !ok {
					return k, v, false
				}
				k.a, k.b, k.c, read = words[0], words[1], words[2], true
			case typ == unix.NFTA_SET_ELEM_DATA && inner == unix.NFTA_DATA_VALUE:
				words, ok := decode(shape.value, data)
				if !ok {
					return k, v, false
				}
				v = value{words[0], words[1]}
			case typ == unix.NFTA_SET_ELEM_DATA && inner == unix.NFTA_DATA_VERDICT:
				v = readVerdict(s, data)
			}
		}
	}
	return k, v, read
}

func readVerdict(s set, data []byte) value {
	code, chain := int32(-1), ""
	for typ, data := range nested(data) {
		switch {
		case typ == unix.NFTA_VERDICT_CODE && len(data) == 4:
			code = int32(binary.BigEndian.Uint32(data))
		case typ == unix.NFTA_VERDICT_CHAIN:
			chain = zeroEnded(data)
		}
	}
	return verdictValue(s, code, chain)
}

// request asks nf_tables of the family ip and calls each with every answer.
func request(message, flags int, each func(msg []byte) error, data ...nl.NetlinkRequestData) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_IPV4, Version: nl.NFNETLINK_V0})
	for _, d := range data {
		req.AddData(d)
	}
	var bad error
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		bad = each(msg)
		return bad == nil
	})
	return errors.Join(bad, err)
}

// attributes are those of a message, after its header.
func attributes(msg []byte) iter.Seq2[uint16, []byte] {
	return nested(msg[min(nl.SizeofNfgenmsg, len(msg)):])
}

// nested are those in a nest.
func nested(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			n := int(binary.NativeEndian.Uint16(b))
			if n < unix.SizeofNlAttr || n > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&nl.NLA_TYPE_MASK, b[unix.SizeofNlAttr:n]) {
				return
			}
			b = b[min((n+3)&^3, len(b)):]
		}
	}
}

func zeroEnded(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
