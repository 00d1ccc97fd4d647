package memory

import (
	"bytes"
	"iter"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
)

// A place is where a row stands in an order: by time, then by id.
type place struct {
	at int64 // microseconds
	id uuid.UUID
}

func placeOf(t time.Time, id uuid.UUID) place { return place{t.UnixMicro(), id} }

func (p place) before(q place) bool {
	return p.at < q.at || p.at == q.at && bytes.Compare(p.id[:], q.id[:]) < 0
}

// An order keeps rows sorted by their places, so that a sweep over 100,000
// executions touches only those it returns. It is a skip list; the zero value
// is empty.
type order struct {
	head node
}

type node struct {
	place
	row  *row
	next []*node // per level, a level having about a quarter of the nodes of the one below
}

const maxLevel = 12

// search returns, per level, the last node before p.
func (o *order) search(p place) (prev [maxLevel]*node) {
	n := &o.head
	for level := maxLevel - 1; level >= 0; level-- {
		if level < len(o.head.next) {
			for n.next[level] != nil && n.next[level].before(p) {
				n = n.next[level]
			}
		}
		prev[level] = n
	}
	return prev
}

func (o *order) insert(p place, r *row) {
	if o.head.next == nil {
		o.head.next = make([]*node, maxLevel)
	}
	prev := o.search(p)
	height := min(1+bits.TrailingZeros64(rand.Uint64())/2, maxLevel)
	n := &node{place: p, row: r, next: make([]*node, height)}
	for level := range n.next {
		n.next[level] = prev[level].next[level]
		prev[level].next[level] = n
	}
}

func (o *order) remove(p place) {
	if o.head.next == nil {
		return
	}
	prev := o.search(p)
	n := prev[0].next[0]
	if n == nil || n.place != p {
		return
	}
	for level := range n.next {
		prev[level].next[level] = n.next[level]
	}
}

// from yields the rows after a place in order; nil: all of them. A nil order
// is empty. The order must not change meanwhile.
func (o *order) from(after *place) iter.Seq2[place, *row] {
	return func(yield func(place, *row) bool) {
		if o == nil || o.head.next == nil {
			return
		}
		n := o.head.next[0]
		if after != nil {
			if n = o.search(*after)[0].next[0]; n != nil && n.place == *after {
				n = n.next[0]
			}
		}
		for ; n != nil; n = n.next[0] {
			if !yield(n.place, n.row) {
				return
			}
		}
	}
}
