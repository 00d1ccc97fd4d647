package main

import (
	"fmt"
	"strings"

	"github.com/leveret-go/leveret/saga"
)

// showPlan says what an act would do.
func (c *call) showPlan(k clock, p *saga.Plan) {
	if p.Refused != nil {
		c.fields("act", verb(p.Act), "execution", p.Execution.String(), "revision", fmt.Sprint(p.Revision), "refused", p.RefusedBecause)
		return
	}
	ends := string(p.EndsAs)
	if p.HaltsAt != "" {
		ends += " at " + p.HaltsAt
	}
	requested := ""
	if p.Requested {
		requested = "an attempt is running, the act is left to it as a request"
	}
	c.fields("act", verb(p.Act), "execution", p.Execution.String(), "revision", fmt.Sprint(p.Revision), "requested", requested,
		"not before", k.atPtr(p.NotBefore), "stays as it is", strings.Join(p.Cannot, ", "), "ends", ends)
	if len(p.Steps) == 0 {
		fmt.Fprintln(c.stdout, "No step is run or undone.")
		return
	}
	t := &table{heads: []string{"", "STEP", "DIRECTION", "NOTE"}, flex: 3}
	for i, st := range p.Steps {
		var note []string
		if st.Running {
			note = append(note, "running now")
		}
		if st.InDoubt {
			note = append(note, "may have had its effect before")
		}
		if st.Waits != "" {
			note = append(note, "waits: "+string(st.Waits))
		}
		if st.Conditional {
			note = append(note, "only if its condition holds then")
		}
		t.add(fmt.Sprint(i+1), st.Name, string(st.Direction), strings.Join(note, ", "))
	}
	c.table(t)
}
