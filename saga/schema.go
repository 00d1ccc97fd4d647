package saga

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// maxSchema is the longest schema that an outline carries, in bytes.
const maxSchema = 64 << 10

// A stateSchema is the JSON Schema of a saga's state.
type stateSchema struct {
	text     json.RawMessage
	resolved *jsonschema.Resolved
}

// schemaOf makes the schema of a type, or returns nil when it has none: a type
// that contains itself, or a map whose keys are no texts.
//
// No property is required: a state begins without what the steps will add.
func schemaOf[S any](name string) *stateSchema {
	t := reflect.TypeFor[S]()
	special := map[reflect.Type]*jsonschema.Schema{}
	ownSchemas(t, map[reflect.Type]bool{}, special)
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: special})
	if err != nil {
		return nil
	}
	relax(s)
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", name
	if s.Type == "" && len(s.Types) == 0 {
		s.Type = "object" // a state is one, whatever its type says
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil
	}
	out, err := parseSchema(text)
	if err != nil {
		return nil
	}
	return out
}

// parseSchema reads a schema and makes sure that it is one.
func parseSchema(text json.RawMessage) (*stateSchema, error) {
	if len(text) > maxSchema {
		return nil, fmt.Errorf("is longer than %d bytes", maxSchema)
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("is no JSON Schema: %w", err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("is no JSON Schema: %w", err)
	}
	return &stateSchema{text: text, resolved: resolved}, nil
}

// ownSchemas finds the types whose JSON does not follow from their Go type.
func ownSchemas(t reflect.Type, seen map[reflect.Type]bool, out map[reflect.Type]*jsonschema.Schema) {
	if seen[t] {
		return
	}
	seen[t] = true
	if k := t.Kind(); k != reflect.Pointer && k != reflect.Interface {
		switch p := reflect.PointerTo(t); {
		case isOf[json.RawMessage](t):
			out[t] = &jsonschema.Schema{} // anything
			return
		case p.Implements(reflect.TypeFor[json.Marshaler]()) && known(t):
			return // the library knows it
		case p.Implements(reflect.TypeFor[json.Marshaler]()):
			out[t] = &jsonschema.Schema{}
			return
		case p.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
			out[t] = &jsonschema.Schema{Type: "string"}
			return
		case isOf[json.Number](t):
			out[t] = &jsonschema.Schema{Type: "number"}
			return
		case k == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
			out[t] = &jsonschema.Schema{Types: []string{"null", "string"}, ContentEncoding: "base64"}
			return
		}
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		ownSchemas(t.Elem(), seen, out)
	case reflect.Struct:
		for i := range t.NumField() {
			ownSchemas(t.Field(i).Type, seen, out)
		}
	}
}

func isOf[T any](t reflect.Type) bool { return t == reflect.TypeFor[T]() }

// known reports whether the library has a schema of its own for a type that
// encodes itself.
func known(t reflect.Type) bool {
	s, err := jsonschema.ForType(t, nil)
	return err == nil && s.Type == "string" && t.Kind() != reflect.String
}

// relax makes no property required, however deep, and lets a map be null, as an
// empty one of Go is.
func relax(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	s.Required = nil
	inner := append([]*jsonschema.Schema{s.Items, s.AdditionalProperties}, slices.Collect(maps.Values(s.Properties))...)
	for _, p := range inner {
		if p != nil && p.Type == "object" {
			p.Type, p.Types = "", []string{"null", "object"}
		}
		relax(p)
	}
}

var schemaPlace = regexp.MustCompile(`validating (/[^\s:]*)`)

// check reports why a state does not fit. It names the place, and never quotes a
// value.
func (s *stateSchema) check(state json.RawMessage) error {
	if s == nil {
		return nil
	}
	var v any
	if err := json.Unmarshal(state, &v); err != nil {
		return fmt.Errorf("%w: the state is not valid JSON", ErrInvalid)
	}
	err := s.resolved.Validate(v)
	if err == nil {
		return nil
	}
	place := "/"
	if m := schemaPlace.FindAllStringSubmatch(err.Error(), -1); len(m) > 0 {
		place = m[len(m)-1][1]
	}
	return fmt.Errorf("%w: the state does not fit the schema of the saga, by the rule at %.200q", ErrInvalid, place)
}

// schema returns the schema of the definition's state, nil for none.
func (d Definition[S]) schema() (*stateSchema, error) {
	if d.Schema != nil {
		return parseSchema(d.Schema)
	}
	return schemaOf[S](string(d.Name)), nil
}
