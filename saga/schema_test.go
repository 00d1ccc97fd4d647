package saga

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

type money struct{ cents int64 }

func (m money) MarshalJSON() ([]byte, error)  { return json.Marshal(m.cents) }
func (m *money) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &m.cents) }

type town struct {
	City string `json:"city"`
}

type wideState struct {
	Text     string            `json:"text"`
	N        int               `json:"n,omitempty"`
	At       time.Time         `json:"at"`
	ID       uuid.UUID         `json:"id"`
	Price    money             `json:"price"`
	Raw      json.RawMessage   `json:"raw"`
	Bytes    []byte            `json:"bytes"`
	List     []town            `json:"list"`
	Map      map[string]town   `json:"map"`
	Pointer  *town             `json:"pointer"`
	Any      any               `json:"any"`
	Names    map[string]string `json:"names"`
	Ignored  func()            `json:"-"`
	internal int
}

// What a type encodes has to fit its schema, and what it does not decode must not.
func TestSchemaOfAState(t *testing.T) {
	s := schemaOf[wideState]("wide")
	if s == nil {
		t.Fatal("no schema")
	}
	full, err := json.Marshal(wideState{
		Text: "x", N: 1, At: time.Now(), ID: uuid.New(), Price: money{5}, Raw: json.RawMessage(`[1]`), Bytes: []byte("b"),
		List: []town{{"a"}}, Map: map[string]town{"k": {"b"}}, Pointer: &town{"c"}, Any: 1.5, Names: map[string]string{"a": "b"}, internal: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	zero, err := json.Marshal(wideState{})
	if err != nil {
		t.Fatal(err)
	}
	for _, fits := range []string{string(full), string(zero), `{}`, `{"text": "only this"}`, `{"price": 7, "list": [{}]}`, `{"raw": {"a": 1}, "any": null}`} {
		if err := s.check(json.RawMessage(fits)); err != nil {
			t.Errorf("%s: %v", fits, err)
		}
	}
	for bad, place := range map[string]string{
		`{"text": 5551234}`:                          "/properties/text",
		`{"n": 1.5551234}`:                           "/properties/n",
		`{"at": 5551234}`:                            "/properties/at",
		`{"id": 5551234}`:                            "/properties/id",
		`{"bytes": [5551234]}`:                       "/properties/bytes",
		`{"list": [{"city": 5551234}]}`:              "/properties/list/items/properties/city",
		`{"map": {"x": {"Town": "5551234"}}}`:        "additionalProperties",
		`{"texd": "5551234"}`:                        "/",
		`["5551234"]`:                                "/",
		`"5551234"`:                                  "/",
		`{"pointer": {"city": "x", "zip": 5551234}}`: "/properties/pointer",
	} {
		err := s.check(json.RawMessage(bad))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), place) {
			t.Errorf("%s: %v", bad, err)
		}
		if err != nil && strings.Contains(err.Error(), "5551234") {
			t.Errorf("the error quotes a value: %v", err)
		}
	}
}

type ring struct {
	Next *ring `json:"next"`
}

func TestStatesWithoutASchema(t *testing.T) {
	if s := schemaOf[ring]("ring"); s != nil {
		t.Errorf("%s", s.text)
	}
	if s := schemaOf[struct{ M map[int]string }]("numbers"); s != nil {
		t.Errorf("%s", s.text)
	}
	var none *stateSchema
	if err := none.check(json.RawMessage(`{"a": 1}`)); err != nil {
		t.Error(err)
	}
	if s := schemaOf[map[string]any]("any"); s == nil || s.check(json.RawMessage(`{"a": [1]}`)) != nil {
		t.Error("a map takes anything")
	}
}

func TestSchemaOfTheDefinition(t *testing.T) {
	d := Definition[map[string]any]{Name: "checkout", Steps: []Step[map[string]any]{{Name: "a", Execute: func(context.Context, *Run[map[string]any]) error { return nil }}}}
	d.Schema = json.RawMessage(`{"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 1}}}`)
	if err := checkDefinition(d); err != nil {
		t.Fatal(err)
	}
	s, err := d.schema()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.check(json.RawMessage(`{}`)); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if err := s.check(json.RawMessage(`{"amount": 1}`)); err != nil {
		t.Error(err)
	}
	if o := d.Outline(); string(o.Schema) != string(d.Schema) {
		t.Errorf("%s", o.Schema)
	}
	for _, bad := range []string{`{`, `{"type": 5}`, `{"properties": {"a": {"minimum": "x"}}}`, `{"a": "` + strings.Repeat("x", maxSchema) + `"}`} {
		d.Schema = json.RawMessage(bad)
		if err := checkDefinition(d); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "Schema") {
			t.Errorf("%.40s: %v", bad, err)
		}
	}
}
