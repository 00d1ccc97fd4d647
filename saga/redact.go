package saga

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Redacted stands in the place of what is hidden, in states and in texts.
const Redacted = "[redacted]"

const (
	maxRedact    = 100 // pointers of one definition
	minSecret    = 4   // bytes of a value that is looked for in texts
	redactedJSON = `"` + Redacted + `"`
)

// A jsonPointer is a JSON pointer (RFC 6901), split into its tokens.
type jsonPointer []string

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

func parsePointer(s string) (jsonPointer, error) {
	if !strings.HasPrefix(s, "/") {
		return nil, fmt.Errorf("%q is no JSON pointer into the state: it begins with /", s)
	}
	for i := range len(s) {
		if s[i] == '~' && (i+1 == len(s) || s[i+1] != '0' && s[i+1] != '1') {
			return nil, fmt.Errorf("%q is no JSON pointer: ~ is followed by 0 or 1", s)
		}
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		tokens[i] = unescapePointer.Replace(t)
	}
	return tokens, nil
}

func parsePointers(list []string) (out []jsonPointer, err error) {
	if len(list) > maxRedact {
		return nil, fmt.Errorf("are more than %d", maxRedact)
	}
	for _, s := range list {
		p, err := parsePointer(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// replace returns doc with the value at p replaced by what with returns of it,
// and doc itself where there is no such value. A list is passed through: where
// a token is no index into it, it is meant in each of its elements.
func (p jsonPointer) replace(doc json.RawMessage, with func(json.RawMessage) json.RawMessage) json.RawMessage {
	if len(p) == 0 {
		return with(doc)
	}
	switch doc = bytes.TrimSpace(doc); {
	case len(doc) > 0 && doc[0] == '{':
		var object map[string]json.RawMessage
		if json.Unmarshal(doc, &object) != nil {
			return doc
		}
		v, ok := object[p[0]]
		if !ok {
			return doc
		}
		object[p[0]] = p[1:].replace(v, with)
		return encoded(object, doc)
	case len(doc) > 0 && doc[0] == '[':
		var list []json.RawMessage
		if json.Unmarshal(doc, &list) != nil {
			return doc
		}
		if i, err := strconv.Atoi(p[0]); err == nil {
			if i >= 0 && i < len(list) {
				list[i] = p[1:].replace(list[i], with)
			}
		} else {
			for i := range list {
				list[i] = p.replace(list[i], with)
			}
		}
		return encoded(list, doc)
	}
	return doc
}

func encoded(v any, otherwise json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return otherwise // it is made of valid JSON
	}
	return bytes.TrimSpace(b.Bytes())
}

// A Redactor hides in the states of executions what the definitions of their
// sagas say ([Definition.Redact]), for who shows them to people. Of a saga that
// no outline is known of it hides everything. It may be used from any number of
// goroutines.
type Redactor struct{ pointers map[string][]jsonPointer }

// NewRedactor returns a redactor by these outlines, such as those of
// [Engine.Outlines] and [Engine.StoredOutlines] together. Of several versions of
// a saga all that one of them hides is hidden.
func NewRedactor(outlines ...Outline) *Redactor {
	r := &Redactor{pointers: make(map[string][]jsonPointer)}
	for _, o := range outlines {
		list := r.pointers[o.Saga]
		for _, s := range o.Redact {
			p, err := parsePointer(s)
			if err != nil { // it was written by a later version: it hides all
				p = jsonPointer{}
			}
			if !slices.ContainsFunc(list, func(q jsonPointer) bool { return slices.Equal(p, q) }) {
				list = append(list, p)
			}
		}
		r.pointers[o.Saga] = list
	}
	return r
}

// State returns a state of the saga with [Redacted] in the place of each value
// that is hidden. What is no JSON is hidden as a whole; nil stays nil.
func (r *Redactor) State(saga string, state json.RawMessage) json.RawMessage {
	list, known := r.pointers[saga]
	switch {
	case state == nil:
		return nil
	case !known || !json.Valid(state):
		return json.RawMessage(redactedJSON)
	}
	return redacted(list, state)
}

// Knows reports whether an outline of the saga is known.
func (r *Redactor) Knows(saga string) bool {
	_, known := r.pointers[saga]
	return known
}

// Restore returns an edited state with the values of the current one in the
// places where [Redacted] was left standing: in a list by their order. Where a
// list has become longer or shorter it cannot tell which is which, and returns
// [ErrInvalid].
func (r *Redactor) Restore(saga string, edited, current json.RawMessage) (json.RawMessage, error) {
	for _, p := range r.pointers[saga] {
		values := p.values(current)
		now := p.values(edited)
		left := slices.ContainsFunc(now, func(v json.RawMessage) bool { return string(v) == redactedJSON })
		if left && len(now) != len(values) {
			return nil, fmt.Errorf("%w: the state has %s in other places than before: which value belongs there?", ErrInvalid, Redacted)
		}
		i := -1
		edited = p.replace(edited, func(v json.RawMessage) json.RawMessage {
			if i++; left && string(v) == redactedJSON {
				return values[i]
			}
			return v
		})
	}
	return edited, nil
}

// values returns what there is at p.
func (p jsonPointer) values(doc json.RawMessage) (list []json.RawMessage) {
	p.replace(doc, func(v json.RawMessage) json.RawMessage {
		list = append(list, v)
		return v
	})
	return list
}

// Detail returns what an audit entry says besides who did what (such as how a
// state was edited) without the values that are hidden.
func (r *Redactor) Detail(saga string, detail json.RawMessage) json.RawMessage {
	list, known := r.pointers[saga]
	var d stateEdit
	if detail == nil || json.Unmarshal(detail, &d) != nil || d.Diff == nil {
		return detail
	}
	if !known {
		list = []jsonPointer{{}}
	}
	d.redact(list)
	return encoded(d, detail)
}

// redact hides values in the differences of two states.
func (d *stateEdit) redact(list []jsonPointer) {
	for i := range d.Diff {
		diff := &d.Diff[i]
		at, err := parsePointer(diff.Path)
		if err != nil { // the whole state
			at = jsonPointer{}
		}
		for _, p := range list {
			switch {
			case len(p) <= len(at) && slices.Equal(p, at[:len(p)]):
				diff.From, diff.To = hidden(diff.From), hidden(diff.To)
			case len(p) > len(at) && slices.Equal(p[:len(at)], at):
				diff.From, diff.To = redacted([]jsonPointer{p[len(at):]}, diff.From), redacted([]jsonPointer{p[len(at):]}, diff.To)
			}
		}
	}
}

func hidden(v json.RawMessage) json.RawMessage {
	if v == nil {
		return nil
	}
	return json.RawMessage(redactedJSON)
}

func redacted(list []jsonPointer, state json.RawMessage) json.RawMessage {
	for _, p := range list {
		state = p.replace(state, hidden)
	}
	return state
}

// secretsIn returns the texts and numbers that are hidden in a state, to find
// them in texts: those that are too short to be told from other words are left
// out.
func secretsIn(list []jsonPointer, state json.RawMessage) (out []string) {
	for _, p := range list {
		for _, v := range p.values(state) {
			out = append(out, leaves(v)...)
		}
	}
	return out
}

func leaves(v json.RawMessage) (out []string) {
	dec := json.NewDecoder(bytes.NewReader(v))
	dec.UseNumber()
	for {
		t, err := dec.Token()
		if err != nil {
			return out
		}
		s, _ := t.(string)
		if n, ok := t.(json.Number); ok {
			s = n.String()
		}
		if len(s) >= minSecret {
			out = append(out, s)
		}
	}
}

func scrub(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, Redacted)
	}
	return text
}

// A scrubbedError is an error whose text does not say what is hidden.
type scrubbedError struct {
	text string
	err  error
}

func (e *scrubbedError) Error() string { return e.text }
func (e *scrubbedError) Unwrap() error { return e.err }

// scrub takes what is hidden in the state out of the texts of a result.
func (r *result) scrub(secrets []string) {
	if len(secrets) == 0 {
		return
	}
	if r.failure != nil {
		f := *r.failure
		f.Class, f.Message = cutClass(scrub(f.Class, secrets)), scrub(f.Message, secrets)
		r.failure = &f
	}
	r.reason, r.stack = cut(scrub(r.reason, secrets), maxMessage), cut(scrub(r.stack, secrets), maxStack)
	if r.failure != nil {
		r.failure.Message = cut(r.failure.Message, maxMessage)
	}
	if r.err != nil {
		r.err = scrubbed(r.err, secrets)
	}
}

// scrubbed returns err with a text that does not say what is hidden.
func scrubbed(err error, secrets []string) error {
	if text := scrub(err.Error(), secrets); text != err.Error() {
		return &scrubbedError{text, err}
	}
	return err
}

// secrets are those of the state that a step began with and of the one it left,
// the longest first, as one may be a part of another.
func (p *plan) secrets(state json.RawMessage, left any) []string {
	if p == nil || len(p.redact) == 0 {
		return nil
	}
	list := secretsIn(p.redact, state)
	if b, err := json.Marshal(left); err == nil {
		list = append(list, secretsIn(p.redact, b)...)
	}
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	return list
}

// redactDetail hides values in what an audit entry says of an edited state.
func (p *plan) redactDetail(detail json.RawMessage) json.RawMessage {
	if p == nil || len(p.redact) == 0 {
		return detail
	}
	r := &Redactor{pointers: map[string][]jsonPointer{p.saga: p.redact}}
	return r.Detail(p.saga, detail)
}
