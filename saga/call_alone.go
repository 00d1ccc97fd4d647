package saga

import (
	"slices"

	"github.com/leveret-go/leveret/store"
)

// WithReceived returns a copy of c that has received these signals: for tests of
// a step's function alone, without an engine, as package sagatest makes them.
func (c Call) WithReceived(list ...store.Message) Call {
	c.received = slices.Clone(list)
	return c
}

// WithChildren returns a copy of c whose step has started these executions: for
// tests of a step's function alone. Each has to have a Parent, whose Key tells
// it from the others.
func (c Call) WithChildren(list ...*Execution) Call {
	c.children = nil
	for _, x := range list {
		if x.Parent != nil {
			c.children = append(c.children, x.Clone())
		}
	}
	return c
}
