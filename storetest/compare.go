package storetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// diff names the first difference of two values of one type, or returns "".
// Times are equal when they are the same moment, and no list equals an empty
// one.
func diff(got, want any) string {
	return diffValues("", reflect.ValueOf(got), reflect.ValueOf(want))
}

func diffValues(path string, got, want reflect.Value) string {
	switch g := got.Interface().(type) {
	case time.Time:
		if w := want.Interface().(time.Time); !g.Equal(w) {
			return fmt.Sprintf("%s: got %v, want %v", path, g, w)
		}
		return ""
	case json.RawMessage:
		if w := want.Interface().(json.RawMessage); string(g) != string(w) {
			return fmt.Sprintf("%s: got %s, want %s", path, cut(string(g)), cut(string(w)))
		}
		return ""
	}
	switch got.Kind() {
	case reflect.Pointer:
		if got.IsNil() != want.IsNil() {
			return fmt.Sprintf("%s: got nil %v, want nil %v", path, got.IsNil(), want.IsNil())
		}
		if !got.IsNil() {
			return diffValues(path, got.Elem(), want.Elem())
		}
	case reflect.Struct:
		for i := range got.NumField() {
			if d := diffValues(path+"."+got.Type().Field(i).Name, got.Field(i), want.Field(i)); d != "" {
				return d
			}
		}
	case reflect.Slice:
		if got.Len() != want.Len() {
			return fmt.Sprintf("%s: got %d, want %d", path, got.Len(), want.Len())
		}
		for i := range got.Len() {
			if d := diffValues(fmt.Sprintf("%s[%d]", path, i), got.Index(i), want.Index(i)); d != "" {
				return d
			}
		}
	case reflect.Map: // of texts; no map equals an empty one
		if got.Len() != want.Len() {
			return fmt.Sprintf("%s: got %d, want %d", path, got.Len(), want.Len())
		}
		for _, key := range want.MapKeys() {
			if v := got.MapIndex(key); !v.IsValid() || v.String() != want.MapIndex(key).String() {
				return fmt.Sprintf("%s[%q]: got %s, want %s", path, key, cut(fmt.Sprint(v)), cut(want.MapIndex(key).String()))
			}
		}
	default:
		if got.Interface() != want.Interface() {
			return fmt.Sprintf("%s: got %s, want %s", path, cut(fmt.Sprintf("%#v", got)), cut(fmt.Sprintf("%#v", want)))
		}
	}
	return ""
}

func cut(s string) string {
	if len(s) > 200 {
		return fmt.Sprintf("%.200s… (%d bytes)", s, len(s))
	}
	return s
}

// fill sets every field of the struct that p points at, also those that later
// versions add, to a value of its own.
func (e *env) fill(p any) { e.fillValue(reflect.ValueOf(p).Elem()) }

func (e *env) fillValue(v reflect.Value) {
	e.n++
	switch v.Addr().Interface().(type) {
	case *store.Status:
		v.SetString(string(store.StatusHalted))
	case *store.Direction:
		v.SetString(string(store.DirectionCompensate))
	case *store.StepStatus:
		v.SetString(string(store.StepInDoubt))
	case *store.InDoubt:
		v.SetString(string(store.InDoubtHalt))
	case *store.AttemptStatus:
		v.SetString(string(store.AttemptAbandoned))
	case *store.Turn:
		v.SetString(string(store.TurnCancel))
	case *store.GateKind:
		v.SetString(string(store.GateSignal))
	case *uuid.UUID:
		v.Set(reflect.ValueOf(uuid.Must(uuid.NewV7())))
	case *time.Time:
		v.Set(reflect.ValueOf(base.Add(time.Duration(e.n)*time.Hour + time.Duration(e.n)*time.Microsecond)))
	case *json.RawMessage:
		v.SetBytes(fmt.Appendf(nil, `{"n": %d}`, e.n))
	case *map[string]string:
		v.Set(reflect.ValueOf(map[string]string{"a.tag": fmt.Sprintf("text %d", e.n), "b": "\u00fc \"quoted\""}))
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString(fmt.Sprintf("text %d", e.n))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			v.SetInt(int64(e.n % 100))
		case reflect.Struct:
			for i := range v.NumField() {
				e.fillValue(v.Field(i))
			}
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			e.fillValue(v.Elem())
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			e.fillValue(v.Index(0))
			e.fillValue(v.Index(1))
		default:
			e.Fatalf("storetest cannot fill a %v: teach it", v.Type())
		}
	}
}

// full returns an execution in which every field is set. It belongs to the
// case's own saga and partition.
func (e *env) full() *store.Execution {
	x := new(store.Execution)
	e.fill(x)
	x.Saga, x.Partition, x.Revision = e.tag+"-saga", e.tag, 0
	return x
}

// empty returns an execution in which every field is zero that may be.
func (e *env) empty() *store.Execution {
	return &store.Execution{
		ID: uuid.Must(uuid.NewV7()), Saga: e.tag + "-saga", Partition: e.tag,
		Status: store.StatusCompleted, Direction: store.DirectionExecute, State: []byte(`{}`),
	}
}

// become makes y a later version of x: the same execution, with what an update
// must leave as it is.
func become(y, x *store.Execution) *store.Execution {
	y.ID, y.CreatedAt, y.Revision = x.ID, x.CreatedAt, x.Revision
	y.Parent, y.Continues, y.Deadline, y.Tags = x.Parent, x.Continues, x.Deadline, x.Tags
	return y
}

// fields calls f for everything in the struct that p points at that has this
// kind, however deep.
func fields(p any, kind reflect.Kind, f func(path string, v reflect.Value)) {
	visit("", reflect.ValueOf(p).Elem(), kind, f)
}

func visit(path string, v reflect.Value, kind reflect.Kind, f func(string, reflect.Value)) {
	switch v.Interface().(type) {
	case time.Time, json.RawMessage, uuid.UUID:
		return
	}
	switch {
	case v.Kind() == kind:
		f(path, v)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			visit(path+"."+v.Type().Field(i).Name, v.Field(i), kind, f)
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		visit(path, v.Elem(), kind, f)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			visit(fmt.Sprintf("%s[%d]", path, i), v.Index(i), kind, f)
		}
	}
}

// plain says whether a field holds a text, not one of a few words.
func plain(v reflect.Value) bool { return v.Type() == reflect.TypeFor[string]() }
