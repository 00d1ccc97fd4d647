package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leveret-go/leveret/store"
)

// gateText says what an execution waits for at its cursor.
func gateText(k clock, x *store.Execution) string {
	g := x.Gate
	if g == nil || g.Open || x.Status.Finished() {
		return ""
	}
	text := string(g.Kind)
	if len(g.Signals) > 0 {
		how := " "
		if len(g.Signals) > 1 {
			how = map[bool]string{true: " all of ", false: " one of "}[g.All]
		}
		text += how + strings.Join(g.Signals, ", ")
	}
	if g.Group != "" {
		text += " in group " + g.Group
	}
	text += " since " + k.at(g.Since)
	if g.Until != nil {
		text += ", until " + k.at(*g.Until)
	}
	if g.Prompt != "" {
		text += ": " + g.Prompt
	}
	var labels []string
	for _, choice := range g.Choices {
		labels = append(labels, choice.Label)
	}
	if labels != nil {
		text += " (" + strings.Join(labels, ", ") + ")"
	}
	return text
}

func parentText(p *store.Parent) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s, step %s, as %s", p.Execution, p.Step, p.Key)
}

func tagsText(tags map[string]string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		texts = append(texts, name+"="+tags[name])
	}
	return strings.Join(texts, " ")
}

// showInbox lists the signals that came, without what they carry.
func (c *call) showInbox(k clock, x *store.Execution) {
	if len(x.Inbox) == 0 {
		return
	}
	fmt.Fprintln(c.stdout)
	t := &table{heads: []string{"SIGNAL", "KEY", "CAME", "BYTES", "STATE", "BY"}, flex: 5}
	for _, m := range x.Inbox {
		state := "kept"
		switch {
		case m.Spent:
			state = "used up"
		case m.Step != "":
			state = "taken by " + m.Step
		}
		t.add(m.Name, m.Key, k.ago(m.At), fmt.Sprint(len(m.Payload)), state, strings.TrimSuffix(m.Actor+": "+m.Reason, ": "))
	}
	c.table(t)
}
