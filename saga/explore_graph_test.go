package saga

import "hash/maphash"

// A graph holds the worlds that were found, each once, with how they were found.
// Budgets are kept apart: a world is found again with more of one and less of
// the other.
type graph struct {
	n       int
	chunks  [][]world
	budgets []budget
	parent  []int32
	how     []move
	slots   []int32 // hash table, open addressing: index of a world from 1, or 0
	seed    maphash.Seed
}

type budget struct{ faults, acts int8 }

// within reports whether y is x with more of its budgets left.
func (x world) within(y world) bool {
	if x.faults > y.faults || x.acts > y.acts {
		return false
	}
	x.faults, x.acts = y.faults, y.acts
	return x == y
}

const chunkWorlds = 1 << 13

func (g *graph) at(i int32) *world { return &g.chunks[i/chunkWorlds][i%chunkWorlds] }

// world returns world i with its budgets.
func (g *graph) world(i int32) world {
	x := *g.at(i)
	x.faults, x.acts = g.budgets[i].faults, g.budgets[i].acts
	return x
}

// add returns the index of y, or of the same world with more of its budgets
// left; and whether it is new.
//
//go:norace
func (g *graph) add(y world, parent int32, how move) (int32, bool) {
	b := budget{y.faults, y.acts}
	y.faults, y.acts = 0, 0
	if g.n*2 >= len(g.slots) {
		g.grow()
	}
	s := g.slot(&y)
	for ; g.slots[s] != 0; s = (s + 1) & (len(g.slots) - 1) {
		k := g.slots[s] - 1
		if had := g.budgets[k]; had.faults >= b.faults && had.acts >= b.acts && *g.at(k) == y {
			return k, false
		}
	}
	k := int32(g.n)
	g.slots[s] = k + 1
	g.n++
	if k%chunkWorlds == 0 {
		g.chunks = append(g.chunks, make([]world, 0, chunkWorlds))
	}
	c := &g.chunks[k/chunkWorlds]
	*c = append(*c, y)
	g.budgets, g.parent, g.how = append(g.budgets, b), append(g.parent, parent), append(g.how, how)
	return k, true
}

func (g *graph) slot(x *world) int {
	return int(maphash.Comparable(g.seed, *x)) & (len(g.slots) - 1)
}

//go:norace
func (g *graph) grow() {
	if len(g.slots) == 0 {
		g.seed = maphash.MakeSeed()
	}
	g.slots = make([]int32, max(1<<12, 4*len(g.slots)))
	for i := range int32(g.n) {
		s := g.slot(g.at(i))
		for g.slots[s] != 0 {
			s = (s + 1) & (len(g.slots) - 1)
		}
		g.slots[s] = i + 1
	}
}
