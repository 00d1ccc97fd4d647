package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leveret-go/leveret/store"
)

// A messageView is a signal in an execution's inbox, in JSON.
type messageView struct {
	Name    string          `json:"name"`
	Key     string          `json:"key,omitempty"`
	Actor   string          `json:"actor,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	At      time.Time       `json:"at"`
	Step    string          `json:"step,omitempty"`
	Spent   bool            `json:"spent,omitempty"`
	Bytes   int             `json:"bytes"`
	Payload json.RawMessage `json:"payload,omitempty"` // with -state
}

func viewMessage(m store.Message, payload bool) messageView {
	v := messageView{Name: m.Name, Key: m.Key, Actor: m.Actor, Reason: m.Reason, At: m.At, Step: m.Step, Spent: m.Spent, Bytes: len(m.Payload)}
	if payload {
		v.Payload = m.Payload
	}
	return v
}

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
