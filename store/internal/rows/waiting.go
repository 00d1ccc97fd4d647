package rows

import (
	"encoding/json"

	"github.com/leveret-go/leveret/store"
)

// In the columns gate and inbox a payload is the text of its JSON, in a JSON
// string: as a part of the JSON around it, its spaces would be lost.
type (
	gate struct {
		store.Gate
		Choices []choice `json:"choices,omitempty"`
	}
	choice struct {
		store.Choice
		Payload *string `json:"payload,omitempty"`
	}
	message struct {
		store.Message
		Payload *string `json:"payload,omitempty"`
	}
)

func encodeGate(g *store.Gate) (*string, error) {
	if g == nil {
		return nil, nil
	}
	h := gate{Gate: *g.Clone()}
	for _, c := range h.Gate.Choices {
		h.Choices = append(h.Choices, choice{c, text(c.Payload)})
	}
	return encode("gate", &h)
}

func decodeGate(s *string) (*store.Gate, error) {
	h, err := decode[gate](s)
	if h == nil || err != nil {
		return nil, err
	}
	for _, c := range h.Choices {
		c.Choice.Payload = raw(c.Payload)
		h.Gate.Choices = append(h.Gate.Choices, c.Choice)
	}
	h.Since = store.Micros(h.Since)
	if h.Until != nil {
		*h.Until = store.Micros(*h.Until)
	}
	return &h.Gate, nil
}

func encodeInbox(inbox []store.Message) (*string, error) {
	if len(inbox) == 0 {
		return nil, nil
	}
	list := make([]message, len(inbox))
	for i, m := range inbox {
		list[i] = message{m, text(m.Payload)}
		list[i].At = store.Micros(m.At)
	}
	return encode("inbox", list)
}

func decodeInbox(s *string) ([]store.Message, error) {
	if s == nil {
		return nil, nil
	}
	var list []message
	if err := json.Unmarshal([]byte(*s), &list); err != nil {
		return nil, err
	}
	inbox := make([]store.Message, len(list))
	for i, m := range list {
		inbox[i] = m.Message
		inbox[i].Payload, inbox[i].At = raw(m.Payload), store.Micros(m.At)
	}
	return inbox, nil
}
