package route

import (
	"fmt"
	"hash/fnv"
	"slices"
)

// numbers gives groups and members the 30-bit numbers by which the kernel's maps
// name them. They come from a hash of what they name, so that another process
// that knows the same Services gives the same numbers and a restart changes
// nothing in the kernel; where two meet, the later one takes the next free.
type numbers struct {
	groups  naming[groupName]
	members naming[memberName]
}

type groupName struct {
	service name
	port    string
	number  uint32
	proto   uint32
	scope   string
}

// memberName: a member of two groups has two numbers, so that a client that
// sticks to it by the one is not led there by the other.
type memberName struct {
	group  uint32
	target target
}

func newNumbers(bits int) *numbers {
	return &numbers{groups: newNaming[groupName](bits), members: newNaming[memberName](bits)}
}

// naming holds who has which number.
type naming[T comparable] struct {
	mask   uint32
	holder map[uint32]T
	moved  map[T]uint32 // those whose number is not the first choice
}

func newNaming[T comparable](bits int) naming[T] {
	return naming[T]{mask: 1<<bits - 1, holder: map[uint32]T{}, moved: map[T]uint32{}}
}

// numberBase keeps the numbers out of what others use for the priority of a
// packet: its upper half looks like the handle of a queueing discipline.
const numberBase = 0x40000000

func (n *naming[T]) get(of T) uint32 {
	if at, ok := n.moved[of]; ok {
		return at
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", of)
	for at := h.Sum32() & n.mask; ; at = (at + 1) & n.mask {
		holder, taken := n.holder[numberBase|at]
		if taken && holder != of {
			continue
		}
		if !taken {
			n.holder[numberBase|at] = of
			if at != h.Sum32()&n.mask {
				n.moved[of] = numberBase | at
			}
		}
		return numberBase | at
	}
}

func (n *naming[T]) free(number uint32) {
	delete(n.moved, n.holder[number])
	delete(n.holder, number)
}

// numberBits makes it rare that two want the same number.
const numberBits = 30

// release frees the numbers of groups and members that are no longer among a
// Service's elements, both sorted.
func (n *numbers) release(old, new []entry) {
	for _, e := range old {
		if _, kept := slices.BinarySearchFunc(new, e, entry.compare); kept {
			continue
		}
		switch e.key.set {
		case groups:
			n.groups.free(e.key.a)
		case members:
			n.members.free(e.key.a)
		}
	}
}
